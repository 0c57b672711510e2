//! Frames: what is read of them, and each that a publisher sends.

use super::{
    performative::{self, Incoming},
    value::{Elements, Malformed, Writer},
};

/// The protocol itself, and the login before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Protocol {
    Amqp,
    Sasl,
}

impl Protocol {
    /// The bytes with which it begins, on both sides.
    pub(super) fn header(self) -> [u8; HEADER_BYTES] {
        [b'A', b'M', b'Q', b'P', self.id(), 1, 0, 0]
    }

    fn id(self) -> u8 {
        match self {
            Self::Amqp => 0,
            Self::Sasl => 3,
        }
    }

    fn frame_type(self) -> u8 {
        match self {
            Self::Amqp => 0,
            Self::Sasl => 1,
        }
    }
}

pub(super) const HEADER_BYTES: usize = 8;

/// Bytes before a frame's body.
const FRAME_HEADER_BYTES: usize = 8;
/// Bytes of a frame of a peer at the most. It sends little: outcomes, and room for more.
pub(super) const FRAME_BYTES_MAX: u32 = 64 << 10;
/// Bytes of a transfer before its part of the message, at the most.
const TRANSFER_BYTES: usize = 64;

/// Transfers to us that the peer may send. It has no link to send any on.
const INCOMING_WINDOW: u32 = 2_048;

/// The next frame among these bytes and its length; none while it is not whole.
pub(super) fn read(bytes: &[u8]) -> Result<Option<(Incoming, usize)>, Malformed> {
    let Some((head, _)) = bytes.split_first_chunk::<FRAME_HEADER_BYTES>() else {
        return Ok(None);
    };
    let [a, b, c, d, doff, ..] = *head;
    let size = u32::from_be_bytes([a, b, c, d]);
    let body_at = usize::from(doff) * 4;
    let length = usize::try_from(size).map_err(|_| Malformed)?;
    if size > FRAME_BYTES_MAX || body_at < FRAME_HEADER_BYTES || body_at > length {
        return Err(Malformed);
    }
    match bytes.get(..length) {
        None => Ok(None),
        Some(frame) => Ok(Some((performative::read(&frame[body_at..])?, length))),
    }
}

/// Appends a frame with this body.
fn frame(out: &mut Vec<u8>, protocol: Protocol, body: impl FnOnce(&mut Writer<'_>)) {
    let start = out.len();
    out.extend_from_slice(&[0, 0, 0, 0, 2, protocol.frame_type(), 0, 0]);
    body(&mut Writer(out));
    finish(out, start);
}

fn finish(out: &mut [u8], start: usize) {
    // A frame is bounded by the peer's limit, which is such a number.
    let size = u32::try_from(out.len() - start).unwrap_or(u32::MAX);
    out[start..start + 4].copy_from_slice(&size.to_be_bytes());
}

fn performative(out: &mut Vec<u8>, code: u8, fields: impl FnOnce(&mut Elements<'_>)) {
    frame(out, Protocol::Amqp, |w| {
        w.descriptor(code);
        w.list(fields);
    });
}

/// Appends a frame without a body, which shows that we are there.
pub(super) fn heartbeat(out: &mut Vec<u8>) {
    frame(out, Protocol::Amqp, |_| {});
}

pub(super) fn sasl_init(out: &mut Vec<u8>, mechanism: &str, response: &[u8], host: &str) {
    frame(out, Protocol::Sasl, |w| {
        w.descriptor(0x41);
        w.list(|fields| {
            fields.next().symbol(mechanism);
            fields.next().binary(response);
            fields.next().string(host);
        });
    });
}

/// Opens the connection. The peer gives it up when it hears nothing for so long.
pub(super) fn open(out: &mut Vec<u8>, container_id: &str, host: &str, idle_millis: u32) {
    performative(out, 0x10, |fields| {
        fields.next().string(container_id);
        fields.next().string(host);
        fields.next().uint(FRAME_BYTES_MAX);
        // One session, which is number 0.
        fields.next().ushort(0);
        fields.next().uint(idle_millis);
        fields.nulls(4);
        fields.next().map(|properties| {
            for (name, value) in [
                ("product", "posthaste"),
                ("version", env!("CARGO_PKG_VERSION")),
            ] {
                properties.next().symbol(name);
                properties.next().string(value);
            }
        });
    });
}

pub(super) fn begin(out: &mut Vec<u8>) {
    performative(out, 0x11, |fields| {
        fields.nulls(1);
        fields.next().uint(0);
        fields.next().uint(INCOMING_WINDOW);
        fields.next().uint(u32::MAX);
    });
}

/// Attaches a link that sends to this address, which has to be of this kind. Each delivery is
/// settled by the peer, at once.
pub(super) fn attach(
    out: &mut Vec<u8>,
    handle: u32,
    name: &str,
    address: &str,
    kind: Option<&'static str>,
) {
    performative(out, 0x12, |fields| {
        fields.next().string(name);
        fields.next().uint(handle);
        fields.next().bool(false);
        fields.next().ubyte(0);
        fields.next().ubyte(0);
        let mut source = fields.next();
        source.descriptor(0x28);
        source.list(|_| {});
        let mut target = fields.next();
        target.descriptor(0x29);
        target.list(|fields| {
            fields.next().string(address);
            if let Some(kind) = kind {
                fields.nulls(5);
                fields.next().symbol(kind);
            }
        });
        fields.nulls(2);
        fields.next().uint(0);
    });
}

/// The session's numbers, as a flow tells them.
#[derive(Debug, Clone, Copy)]
pub(super) struct SessionNumbers {
    pub(super) next_incoming_id: u32,
    pub(super) next_outgoing_id: u32,
}

/// Tells the session's numbers. With `echo` the peer answers with its own, in its turn.
pub(super) fn session_flow(out: &mut Vec<u8>, session: SessionNumbers, echo: bool) {
    performative(out, 0x13, |fields| {
        session_fields(fields, session);
        fields.nulls(5);
        fields.next().bool(echo);
    });
}

/// Tells that the link's credit is used up.
pub(super) fn drained(
    out: &mut Vec<u8>,
    session: SessionNumbers,
    handle: u32,
    delivery_count: u32,
) {
    performative(out, 0x13, |fields| {
        session_fields(fields, session);
        fields.next().uint(handle);
        fields.next().uint(delivery_count);
        fields.next().uint(0);
        fields.next().uint(0);
        fields.next().bool(true);
    });
}

fn session_fields(fields: &mut Elements<'_>, session: SessionNumbers) {
    fields.next().uint(session.next_incoming_id);
    fields.next().uint(INCOMING_WINDOW);
    fields.next().uint(session.next_outgoing_id);
    fields.next().uint(u32::MAX);
}

/// Bytes of a message that one frame of the peer's limit takes.
pub(super) fn part_bytes_max(frame_max: u32) -> usize {
    usize::try_from(frame_max).map_or(usize::MAX, |max| max.saturating_sub(TRANSFER_BYTES))
}

/// A part of a message on its way.
#[derive(Debug, Clone, Copy)]
pub(super) struct Part<'a> {
    pub(super) handle: u32,
    pub(super) delivery_id: u32,
    pub(super) bytes: &'a [u8],
    pub(super) has_more: bool,
}

pub(super) fn transfer(out: &mut Vec<u8>, part: Part<'_>) {
    let start = out.len();
    performative(out, 0x14, |fields| {
        fields.next().uint(part.handle);
        fields.next().uint(part.delivery_id);
        fields.next().binary(&part.delivery_id.to_be_bytes());
        fields.next().uint(0);
        fields.next().bool(false);
        fields.next().bool(part.has_more);
    });
    out.extend_from_slice(part.bytes);
    finish(out, start);
}

/// Settles deliveries whose outcome the peer has told.
pub(super) fn settled(out: &mut Vec<u8>, first: u32, last: u32) {
    performative(out, 0x15, |fields| {
        fields.next().bool(false);
        fields.next().uint(first);
        fields.next().uint(last);
        fields.next().bool(true);
    });
}

/// Ends a link for good.
pub(super) fn detach(out: &mut Vec<u8>, handle: u32) {
    performative(out, 0x16, |fields| {
        fields.next().uint(handle);
        fields.next().bool(true);
    });
}

/// Ends the connection, and its session with it.
pub(super) fn close(out: &mut Vec<u8>) {
    performative(out, 0x18, |_| {});
}
