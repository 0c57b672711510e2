//! AMQP 0-9-1 on the wire, as far as a publisher needs it: frames of the broker.
//!
//! Layouts: the protocol's reference (`amqp0-9-1.extended.xml`) and RabbitMQ's errata.

/// The first bytes of a client.
pub(super) const PROTOCOL_HEADER: &[u8] = b"AMQP\x00\x00\x09\x01";

/// The channel of the connection itself.
pub(super) const CONNECTION: u16 = 0;
/// The one channel that messages are published on.
pub(super) const CHANNEL: u16 = 1;

/// Bytes of a frame around its payload.
pub(crate) const FRAME_OVERHEAD: usize = 8;

pub(crate) const METHOD: u8 = 1;
pub(crate) const HEADER: u8 = 2;
pub(crate) const BODY: u8 = 3;
pub(super) const HEARTBEAT: u8 = 8;
pub(crate) const FRAME_END: u8 = 0xce;

pub(super) const BASIC: u16 = 60;

/// Why bytes of a server are not AMQP 0-9-1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Malformed {
    /// It answers with its own protocol header, or with bytes of something else.
    NotAmqp,
    /// A TLS record.
    Tls,
    /// A frame that breaks the protocol.
    Frame,
}

/// A frame of the server.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Incoming {
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
        routing_key: String,
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

/// Reads one frame from the front of `input`. Answers it and its length; none when more must come.
pub(crate) fn read(input: &[u8], frame_max: usize) -> Result<Option<(Incoming, usize)>, Malformed> {
    match input {
        // One byte of a TLS record tells nothing yet.
        [] | [0x15 | 0x16] => return Ok(None),
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
    let mut reader = PayloadReader(payload);
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
struct PayloadReader<'a>(&'a [u8]);

impl PayloadReader<'_> {
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
            (BASIC, 50) => {
                let (code, text, _exchange) = (self.u16()?, self.short()?, self.short()?);
                Incoming::Return {
                    code,
                    text,
                    routing_key: self.short()?,
                }
            }
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

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: u8, payload: &[u8]) -> Vec<u8> {
        let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
        [&[kind, 0, 1], &length[..], payload, &[FRAME_END]].concat()
    }

    #[test]
    fn frames_are_read_once_they_are_whole() {
        let ack = frame(METHOD, &[0, 60, 0, 80, 0, 0, 0, 0, 0, 0, 1, 2, 1]);
        for end in 0..ack.len() {
            assert_eq!(read(&ack[..end], 100), Ok(None), "{end}");
        }
        let two = [&ack[..], &[9]].concat();
        let expected = Incoming::Ack {
            tag: 258,
            multiple: true,
        };
        assert_eq!(read(&two, 100), Ok(Some((expected, ack.len()))));
    }

    #[test]
    fn the_message_id_is_found_behind_every_other_property() {
        let mut payload = vec![0, 60, 0, 0, 0, 0, 0, 0, 0, 0, 0, 7, 0xff, 0xfc];
        payload.extend(b"\x01c\x01e");
        payload.extend([0, 0, 0, 3, 1, b'h', b'V', 2, 9]);
        payload.extend(b"\x01o\x01r\x01x\x03mid");
        let expected = Incoming::Content {
            message_id: "mid".to_owned(),
            size: 7,
        };
        let frame = frame(HEADER, &payload);
        assert_eq!(read(&frame, 100), Ok(Some((expected, frame.len()))));
    }

    #[test]
    fn a_tls_record_is_known_however_it_is_cut() {
        assert_eq!(read(b"\x15", 100), Ok(None));
        assert_eq!(read(b"\x15\x03", 100), Err(Malformed::Tls));
        assert_eq!(read(b"\x15P", 100), Err(Malformed::NotAmqp));
    }

    #[test]
    fn what_is_no_frame_is_refused() {
        let mut broken = frame(BODY, b"x");
        *broken.last_mut().unwrap() = 0;
        for (bytes, fault) in [
            (&b"HTTP/1.1 400"[..], Malformed::NotAmqp),
            (b"AMQP\x00\x00\x09\x01", Malformed::NotAmqp),
            (b"\x15\x03\x03\x00\x02", Malformed::Tls),
            (&broken, Malformed::Frame),
            (&frame(BODY, &[0; 101]), Malformed::Frame),
            (&frame(METHOD, &[0, 60, 0, 80, 0]), Malformed::Frame),
            (&frame(HEADER, &[0, 60]), Malformed::Frame),
        ] {
            assert_eq!(read(bytes, 100), Err(fault), "{bytes:?}");
        }
    }
}
