//! The things that a peer says, as far as a publisher needs them.

use super::value::{Malformed, Reader, Value};

/// A frame's body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Incoming {
    Open(PeerOpen),
    Begin {
        /// The number of its next transfer to us, of which there are none.
        next_outgoing_id: u32,
        incoming_window: u32,
        /// The greatest handle that the peer takes.
        handle_max: u32,
    },
    Attach {
        handle: u32,
        name: String,
        /// Bytes of a message at the most; none: no limit.
        message_bytes_max: Option<u64>,
    },
    Flow(Flow),
    Disposition(Disposition),
    Detach {
        handle: u32,
        error: Option<Condition>,
    },
    End(Option<Condition>),
    Close(Option<Condition>),
    Mechanisms(Vec<String>),
    SaslOutcome(u64),
    /// A frame without a body, or of something that means nothing to a publisher.
    Nothing,
}

/// How a peer introduces itself.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct PeerOpen {
    pub(crate) container_id: String,
    /// Bytes of a frame at the most.
    pub(crate) frame_max: u32,
    /// It wants to hear something at least this often, in milliseconds.
    pub(crate) idle_millis: Option<u32>,
    pub(crate) capabilities: Vec<String>,
    pub(crate) product: Option<String>,
    pub(crate) version: Option<String>,
}

/// Room for more, on the session and perhaps on a link.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Flow {
    pub(super) next_incoming_id: Option<u32>,
    pub(super) incoming_window: u32,
    /// None: of the session alone.
    pub(super) handle: Option<u32>,
    pub(super) delivery_count: u32,
    pub(super) credit: u32,
    pub(super) drain: bool,
    pub(super) echo: bool,
}

/// How deliveries of these ids ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Disposition {
    pub(super) first: u32,
    pub(super) last: u32,
    pub(super) settled: bool,
    pub(super) state: State,
}

/// The state that a peer gives a delivery.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum State {
    Accepted,
    Rejected(Option<Condition>),
    Released,
    Modified,
    /// No outcome: bytes have come so far, a transaction decides, or nothing is said.
    NoOutcome,
}

/// Why something was refused or ended.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Condition {
    pub(crate) name: String,
    pub(crate) description: String,
}

/// The fields of a performative. Fields that are left out at the end are null.
struct Fields(std::vec::IntoIter<Value>);

impl Fields {
    fn of(value: Value) -> Result<Self, Malformed> {
        match value {
            Value::List(fields) => Ok(Self(fields.into_iter())),
            _ => Err(Malformed),
        }
    }

    fn skip(&mut self, count: usize) {
        (0..count).for_each(|_| drop(self.next()));
    }

    fn next(&mut self) -> Value {
        self.0.next().unwrap_or(Value::Null)
    }

    fn text(&mut self) -> Option<String> {
        match self.next() {
            Value::Text(text) => Some(text),
            _ => None,
        }
    }

    fn unsigned(&mut self) -> Option<u64> {
        match self.next() {
            Value::Unsigned(number) => Some(number),
            _ => None,
        }
    }

    fn uint(&mut self) -> Option<u32> {
        self.unsigned()
            .and_then(|number| u32::try_from(number).ok())
    }

    fn needed(&mut self) -> Result<u32, Malformed> {
        self.uint().ok_or(Malformed)
    }

    fn bool(&mut self) -> bool {
        self.next() == Value::Bool(true)
    }

    /// Several names, or one.
    fn names(&mut self) -> Vec<String> {
        let all = match self.next() {
            Value::List(all) => all,
            one => vec![one],
        };
        let names = all.into_iter().filter_map(|value| match value {
            Value::Text(name) => Some(name),
            _ => None,
        });
        names.collect()
    }

    fn condition(&mut self) -> Option<Condition> {
        let Value::Described(ERROR, fields) = self.next() else {
            return None;
        };
        let mut fields = Fields::of(*fields).ok()?;
        Some(Condition {
            name: fields.text()?,
            description: fields.text().unwrap_or_default(),
        })
    }

    fn state(&mut self) -> State {
        let Value::Described(code, fields) = self.next() else {
            return State::NoOutcome;
        };
        match code {
            0x24 => State::Accepted,
            0x25 => State::Rejected(Fields::of(*fields).ok().and_then(|mut f| f.condition())),
            0x26 => State::Released,
            0x27 => State::Modified,
            _ => State::NoOutcome,
        }
    }
}

const ERROR: u64 = 0x1d;

/// Reads a frame's body.
pub(super) fn read(body: &[u8]) -> Result<Incoming, Malformed> {
    if body.is_empty() {
        return Ok(Incoming::Nothing);
    }
    let Value::Described(code, fields) = Reader(body).value()? else {
        return Err(Malformed);
    };
    let mut fields = Fields::of(*fields)?;
    Ok(match code {
        0x10 => Incoming::Open(open(&mut fields)),
        0x11 => {
            fields.skip(1);
            let next_outgoing_id = fields.needed()?;
            let incoming_window = fields.needed()?;
            fields.skip(1);
            let handle_max = fields.uint().unwrap_or(u32::MAX);
            Incoming::Begin {
                next_outgoing_id,
                incoming_window,
                handle_max,
            }
        }
        0x12 => {
            let name = fields.text().ok_or(Malformed)?;
            let handle = fields.needed()?;
            fields.skip(8);
            Incoming::Attach {
                handle,
                name,
                message_bytes_max: fields.unsigned().filter(|&limit| limit > 0),
            }
        }
        0x13 => Incoming::Flow(flow(&mut fields)?),
        0x15 => {
            // The role: a publisher has no deliveries of the other direction.
            fields.skip(1);
            let first = fields.needed()?;
            Incoming::Disposition(Disposition {
                first,
                last: fields.uint().unwrap_or(first),
                settled: fields.bool(),
                state: fields.state(),
            })
        }
        0x16 => {
            let handle = fields.needed()?;
            fields.skip(1);
            let error = fields.condition();
            Incoming::Detach { handle, error }
        }
        0x17 => Incoming::End(fields.condition()),
        0x18 => Incoming::Close(fields.condition()),
        0x40 => Incoming::Mechanisms(fields.names()),
        0x44 => Incoming::SaslOutcome(fields.unsigned().ok_or(Malformed)?),
        _ => Incoming::Nothing,
    })
}

fn open(fields: &mut Fields) -> PeerOpen {
    let container_id = fields.text().unwrap_or_default();
    fields.skip(1);
    let frame_max = fields.uint().unwrap_or(u32::MAX);
    fields.skip(1);
    let idle_millis = fields.uint().filter(|&millis| millis > 0);
    fields.skip(2);
    let capabilities = fields.names();
    fields.skip(1);
    let mut open = PeerOpen {
        container_id,
        frame_max,
        idle_millis,
        capabilities,
        ..PeerOpen::default()
    };
    if let Value::Map(properties) = fields.next() {
        for property in properties {
            match property {
                (Value::Text(name), Value::Text(text)) if name == "product" => {
                    open.product = Some(text);
                }
                (Value::Text(name), Value::Text(text)) if name == "version" => {
                    open.version = Some(text);
                }
                _ => {}
            }
        }
    }
    open
}

fn flow(fields: &mut Fields) -> Result<Flow, Malformed> {
    let next_incoming_id = fields.uint();
    let incoming_window = fields.needed()?;
    fields.skip(2);
    let handle = fields.uint();
    let delivery_count = fields.uint().unwrap_or_default();
    let credit = fields.uint().unwrap_or_default();
    fields.skip(1);
    Ok(Flow {
        next_incoming_id,
        incoming_window,
        handle,
        delivery_count,
        credit,
        drain: fields.bool(),
        echo: fields.bool(),
    })
}
