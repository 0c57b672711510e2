//! AMQP 0-9-1 on the wire, as far as a publisher needs it.
//!
//! Layouts: the protocol's reference (`amqp0-9-1.extended.xml`) and RabbitMQ's errata.

/// What a client says first.
pub(super) const PROTOCOL_HEADER: &[u8] = b"AMQP\x00\x00\x09\x01";

/// The channel of the connection itself.
pub(super) const CONNECTION: u16 = 0;
/// The one channel that a lane publishes on.
pub(super) const CHANNEL: u16 = 1;

/// Bytes of a frame around its payload.
pub(super) const FRAME_OVERHEAD: usize = 8;

const METHOD: u8 = 1;
const HEADER: u8 = 2;
const BODY: u8 = 3;
const HEARTBEAT: u8 = 8;
const FRAME_END: u8 = 0xce;

const BASIC: u16 = 60;

/// A string of more than 255 bytes where the protocol has room for no more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TooLong;

/// What the server sent is not AMQP 0-9-1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Malformed {
    /// It answers with its own protocol header, or with bytes of something else.
    NotAmqp,
    /// A TLS record.
    Tls,
    /// A frame that breaks the protocol.
    Frame,
}

/// What the server says.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Incoming {
    Start {
        mechanisms: String,
    },
    Tune {
        frame_max: u32,
        heartbeat: u16,
    },
    OpenOk,
    ConnectionClose {
        code: u16,
        text: String,
    },
    ConnectionCloseOk,
    Blocked {
        reason: String,
    },
    Unblocked,
    ChannelOpenOk,
    ChannelClose {
        code: u16,
        text: String,
    },
    ExchangeDeclareOk,
    ConfirmSelectOk,
    Ack {
        tag: u64,
        multiple: bool,
    },
    Nack {
        tag: u64,
        multiple: bool,
    },
    Return {
        code: u16,
        text: String,
    },
    /// Properties and size of the message that was returned.
    Content {
        message_id: String,
        size: u64,
    },
    /// A part of its body.
    Body {
        size: u64,
    },
    Heartbeat,
    /// A method that no server should send to a publisher.
    Other {
        class: u16,
        method: u16,
    },
}

/// Appends frames to a buffer.
pub(super) struct Writer<'a> {
    out: &'a mut Vec<u8>,
}

impl<'a> Writer<'a> {
    pub(super) fn new(out: &'a mut Vec<u8>) -> Self {
        Self { out }
    }

    pub(super) fn start_ok(&mut self, user: &str, password: &str, name: &str) {
        self.method(CONNECTION, 10, 11, |w| {
            w.table(|w| {
                w.table_text("product", "Posthaste");
                w.table_text("version", env!("CARGO_PKG_VERSION"));
                w.table_text("platform", "Rust");
                w.table_text("connection_name", name);
                w.table_name("capabilities", b'F');
                w.table(|w| {
                    // Without these the broker neither says that it blocks publishers, nor why it
                    // refuses a login.
                    for capability in [
                        "publisher_confirms",
                        "connection.blocked",
                        "authentication_failure_close",
                        "basic.nack",
                    ] {
                        w.table_name(capability, b't');
                        w.u8(1);
                    }
                });
            });
            w.literal("PLAIN");
            w.long(&[b"\0", user.as_bytes(), b"\0", password.as_bytes()]);
            w.literal("en_US");
        });
    }

    pub(super) fn tune_ok(&mut self, frame_max: u32, heartbeat: u16) {
        self.method(CONNECTION, 10, 31, |w| {
            w.u16(CHANNEL);
            w.u32(frame_max);
            w.u16(heartbeat);
        });
    }

    pub(super) fn open(&mut self, vhost: &str) -> Result<(), TooLong> {
        self.try_method(CONNECTION, 10, 40, |w| {
            w.short(vhost)?;
            w.literal("");
            w.u8(0);
            Ok(())
        })
    }

    pub(super) fn connection_close(&mut self) {
        self.method(CONNECTION, 10, 50, |w| {
            w.u16(200);
            w.literal("done");
            w.u16(0);
            w.u16(0);
        });
    }

    pub(super) fn channel_open(&mut self) {
        self.method(CHANNEL, 20, 10, |w| w.literal(""));
    }

    pub(super) fn exchange_declare_passive(&mut self, exchange: &str) -> Result<(), TooLong> {
        self.try_method(CHANNEL, 40, 10, |w| {
            w.u16(0);
            w.short(exchange)?;
            w.literal("");
            w.u8(1);
            w.table(|_| {});
            Ok(())
        })
    }

    pub(super) fn confirm_select(&mut self) {
        self.method(CHANNEL, 85, 10, |w| w.u8(0));
    }

    /// `basic.publish`, mandatory.
    pub(super) fn publish(&mut self, exchange: &str, routing_key: &str) -> Result<(), TooLong> {
        self.try_method(CHANNEL, BASIC, 40, |w| {
            w.u16(0);
            w.short(exchange)?;
            w.short(routing_key)?;
            w.u8(1);
            Ok(())
        })
    }

    /// The content header of a message of `size` bytes. `flags` and what `properties` writes must
    /// agree.
    pub(super) fn content_header<E>(
        &mut self,
        size: u64,
        flags: u16,
        properties: impl FnOnce(&mut Self) -> Result<(), E>,
    ) -> Result<(), E> {
        self.frame(HEADER, CHANNEL, |w| {
            w.u16(BASIC);
            w.u16(0);
            w.u64(size);
            w.u16(flags);
            properties(w)
        })
    }

    pub(super) fn body(&mut self, bytes: &[u8]) {
        let Ok(()) = self.frame(BODY, CHANNEL, |w| {
            w.bytes(bytes);
            Ok::<(), std::convert::Infallible>(())
        });
    }

    pub(super) fn heartbeat(&mut self) {
        let Ok(()) = self.frame(HEARTBEAT, CONNECTION, |_| {
            Ok::<(), std::convert::Infallible>(())
        });
    }

    fn method(&mut self, channel: u16, class: u16, id: u16, arguments: impl FnOnce(&mut Self)) {
        let Ok(()) = self.frame(METHOD, channel, |w| {
            w.u16(class);
            w.u16(id);
            arguments(w);
            Ok::<(), std::convert::Infallible>(())
        });
    }

    fn try_method(
        &mut self,
        channel: u16,
        class: u16,
        id: u16,
        arguments: impl FnOnce(&mut Self) -> Result<(), TooLong>,
    ) -> Result<(), TooLong> {
        self.frame(METHOD, channel, |w| {
            w.u16(class);
            w.u16(id);
            arguments(w)
        })
    }

    /// On failure the buffer holds half a frame: the caller cuts it off.
    fn frame<E>(
        &mut self,
        kind: u8,
        channel: u16,
        payload: impl FnOnce(&mut Self) -> Result<(), E>,
    ) -> Result<(), E> {
        self.u8(kind);
        self.u16(channel);
        self.sized(payload)?;
        self.u8(FRAME_END);
        Ok(())
    }

    /// Four bytes of length, then what it counts.
    fn sized<E>(&mut self, content: impl FnOnce(&mut Self) -> Result<(), E>) -> Result<(), E> {
        let at = self.out.len();
        self.u32(0);
        content(self)?;
        // Nothing here comes near 4 GiB: bodies are cut into frames, headers refused when too long.
        let length = u32::try_from(self.out.len() - at - 4).unwrap_or(u32::MAX);
        self.out[at..at + 4].copy_from_slice(&length.to_be_bytes());
        Ok(())
    }

    pub(super) fn table(&mut self, fields: impl FnOnce(&mut Self)) {
        let Ok(()) = self.sized(|w| {
            fields(w);
            Ok::<(), std::convert::Infallible>(())
        });
    }

    pub(super) fn try_table(
        &mut self,
        fields: impl FnOnce(&mut Self) -> Result<(), TooLong>,
    ) -> Result<(), TooLong> {
        self.sized(fields)
    }

    /// `name` is one of ours and short.
    fn table_name(&mut self, name: &'static str, kind: u8) {
        self.literal(name);
        self.u8(kind);
    }

    fn table_text(&mut self, name: &'static str, text: &str) {
        self.table_name(name, b'S');
        self.long(&[text.as_bytes()]);
    }

    /// A short string of ours.
    fn literal(&mut self, text: &'static str) {
        debug_assert!(text.len() <= 255);
        self.u8(u8::try_from(text.len()).unwrap_or(u8::MAX));
        self.bytes(text.as_bytes());
    }

    pub(super) fn short(&mut self, text: &str) -> Result<(), TooLong> {
        self.u8(u8::try_from(text.len()).map_err(|_| TooLong)?);
        self.bytes(text.as_bytes());
        Ok(())
    }

    /// A long string of these parts.
    pub(super) fn long(&mut self, parts: &[&[u8]]) {
        let Ok(()) = self.sized(|w| {
            for part in parts {
                w.bytes(part);
            }
            Ok::<(), std::convert::Infallible>(())
        });
    }

    pub(super) fn u8(&mut self, value: u8) {
        self.out.push(value);
    }

    fn u16(&mut self, value: u16) {
        self.bytes(&value.to_be_bytes());
    }

    fn u32(&mut self, value: u32) {
        self.bytes(&value.to_be_bytes());
    }

    pub(super) fn u64(&mut self, value: u64) {
        self.bytes(&value.to_be_bytes());
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.out.extend_from_slice(bytes);
    }
}

/// Reads one frame from the front of `input`. Answers it and its length; none when more must come.
pub(super) fn read(input: &[u8], frame_max: usize) -> Result<Option<(Incoming, usize)>, Malformed> {
    match input {
        [] => return Ok(None),
        // Handshake or alert, TLS 1.x. A frame of this kind does not exist.
        [0x15 | 0x16, 0x03, ..] => return Err(Malformed::Tls),
        [METHOD | HEADER | BODY | HEARTBEAT, ..] => {}
        _ => return Err(Malformed::NotAmqp),
    }
    let Some((head, rest)) = input.split_at_checked(7) else {
        return Ok(None);
    };
    let length = u32::from_be_bytes([head[3], head[4], head[5], head[6]]) as usize;
    if length > frame_max {
        return Err(Malformed::Frame);
    }
    let (Some(payload), Some(&end)) = (rest.get(..length), rest.get(length)) else {
        return Ok(None);
    };
    if end != FRAME_END {
        return Err(Malformed::Frame);
    }
    let mut reader = Reader(payload);
    let incoming = match head[0] {
        METHOD => reader.method(),
        HEADER => reader.content(),
        BODY => Some(Incoming::Body {
            size: payload.len() as u64,
        }),
        _ => Some(Incoming::Heartbeat),
    };
    let incoming = incoming.ok_or(Malformed::Frame)?;
    Ok(Some((incoming, length + FRAME_OVERHEAD)))
}

/// Takes values off the front; none when they are cut short.
struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn method(&mut self) -> Option<Incoming> {
        let (class, method) = (self.u16()?, self.u16()?);
        Some(match (class, method) {
            (10, 10) => {
                self.take(2)?;
                self.long()?;
                Incoming::Start {
                    mechanisms: self.long()?,
                }
            }
            (10, 30) => {
                self.u16()?;
                Incoming::Tune {
                    frame_max: self.u32()?,
                    heartbeat: self.u16()?,
                }
            }
            (10, 41) => Incoming::OpenOk,
            (10, 50) => Incoming::ConnectionClose {
                code: self.u16()?,
                text: self.short()?,
            },
            (10, 51) => Incoming::ConnectionCloseOk,
            (10, 60) => Incoming::Blocked {
                reason: self.short()?,
            },
            (10, 61) => Incoming::Unblocked,
            (20, 11) => Incoming::ChannelOpenOk,
            (20, 40) => Incoming::ChannelClose {
                code: self.u16()?,
                text: self.short()?,
            },
            (40, 11) => Incoming::ExchangeDeclareOk,
            (85, 11) => Incoming::ConfirmSelectOk,
            (BASIC, 50) => Incoming::Return {
                code: self.u16()?,
                text: self.short()?,
            },
            (BASIC, 80) => Incoming::Ack {
                tag: self.u64()?,
                multiple: self.u8()? & 1 != 0,
            },
            (BASIC, 120) => Incoming::Nack {
                tag: self.u64()?,
                multiple: self.u8()? & 1 != 0,
            },
            _ => Incoming::Other { class, method },
        })
    }

    /// A content header. Of the properties only the message id matters.
    fn content(&mut self) -> Option<Incoming> {
        self.take(4)?;
        let size = self.u64()?;
        let flags = self.u16()?;
        let has = |bit: u16| flags & (1 << bit) != 0;
        for _ in [15, 14].into_iter().filter(|&bit| has(bit)) {
            self.short()?;
        }
        if has(13) {
            self.long()?;
        }
        for _ in [12, 11].into_iter().filter(|&bit| has(bit)) {
            self.u8()?;
        }
        for _ in [10, 9, 8].into_iter().filter(|&bit| has(bit)) {
            self.short()?;
        }
        let message_id = if has(7) { self.short()? } else { String::new() };
        Some(Incoming::Content { message_id, size })
    }

    fn take(&mut self, count: usize) -> Option<&[u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }

    fn u8(&mut self) -> Option<u8> {
        self.array().map(u8::from_be_bytes)
    }

    fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_be_bytes)
    }

    fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_be_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_be_bytes)
    }

    /// Words of the server: shown to people, so not refused for a wrong byte.
    fn short(&mut self) -> Option<String> {
        let length = usize::from(self.u8()?);
        Some(String::from_utf8_lossy(self.take(length)?).into_owned())
    }

    /// A long string, or a table, which begins as one does.
    fn long(&mut self) -> Option<String> {
        let length = self.u32()? as usize;
        Some(String::from_utf8_lossy(self.take(length)?).into_owned())
    }
}
