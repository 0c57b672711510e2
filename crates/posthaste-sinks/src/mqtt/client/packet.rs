//! The broker's half of the protocol, as far as a publisher meets it.

/// The largest packet that a broker may send; `CONNECT` says so. Answers have a few words.
pub(super) const PACKET_BYTES_MAX: u32 = 64 << 10;

/// A version of the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::mqtt) enum Version {
    /// 3.1.1: no properties, and no reason why a message is refused.
    V3,
    /// 5.
    V5,
}

/// A packet of the broker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::mqtt) enum Incoming {
    /// The answer to `CONNECT`.
    Connected(ConnAck),
    /// The answer to a packet with this id.
    Answer { step: Step, id: u16, reason: Reason },
    /// It is there.
    Pong,
    /// It ends the connection.
    Disconnect(Reason),
    /// It asks for more than a login.
    Auth,
}

/// The packet in which an answer came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::mqtt) enum Step {
    /// `PUBACK`: the end of a message of QoS 1.
    Acknowledged,
    /// `PUBREC`: a message of QoS 2 has arrived.
    Received,
    /// `PUBCOMP`: the end of a message of QoS 2.
    Completed,
}

/// Why something was refused, or how it was taken.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(in crate::mqtt) struct Reason {
    /// The protocol's code; 0x80 and above are refusals. Of a 3.1.1 broker's `CONNACK` 1 to 5.
    pub(in crate::mqtt) code: u8,
    /// The broker's own words.
    pub(in crate::mqtt) words: Option<String>,
    /// The server to use instead.
    pub(in crate::mqtt) server: Option<String>,
}

impl Reason {
    pub(in crate::mqtt) fn is_refusal(&self) -> bool {
        self.code >= 0x80
    }
}

/// The broker's side of a connection. None: it does not say, as brokers of 3.1.1 never do.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(in crate::mqtt) struct ConnAck {
    pub(in crate::mqtt) reason: Reason,
    /// It has kept a session of the client id.
    pub(in crate::mqtt) has_session: bool,
    /// How many messages it takes without having answered them.
    pub(in crate::mqtt) receive_maximum: Option<u16>,
    pub(in crate::mqtt) maximum_qos: Option<u8>,
    pub(in crate::mqtt) retain_available: Option<bool>,
    /// Bytes of the largest packet that it takes.
    pub(in crate::mqtt) maximum_packet_size: Option<u32>,
    /// Its keep-alive instead of ours, in seconds.
    pub(in crate::mqtt) server_keep_alive: Option<u16>,
}

/// Bytes that are not MQTT of this version, or no packet of a broker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::mqtt) struct Malformed;

/// Reads the first packet, and answers its length; none: it has not come whole.
pub(in crate::mqtt) fn read(
    bytes: &[u8],
    version: Version,
) -> Result<Option<(Incoming, usize)>, Malformed> {
    let Some((&first, rest)) = bytes.split_first() else {
        return Ok(None);
    };
    let kind = Kind::of(first, version)?;
    let Some((length, behind)) = length(rest)? else {
        return Ok(None);
    };
    let Some(body) = behind.get(..length) else {
        return Ok(None);
    };
    let whole = bytes.len() - behind.len() + length;
    let mut rest = Rest(body);
    let incoming = match kind {
        Kind::ConnAck => Incoming::Connected(rest.conn_ack(version)?),
        Kind::Answer(step) => Incoming::Answer {
            step,
            id: rest.id()?,
            reason: rest.reason(version)?,
        },
        Kind::PingResp => Incoming::Pong,
        Kind::Disconnect => Incoming::Disconnect(rest.reason(version)?),
        Kind::Auth => {
            rest.reason(version)?;
            Incoming::Auth
        }
    };
    match rest.0.is_empty() {
        true => Ok(Some((incoming, whole))),
        false => Err(Malformed),
    }
}

/// The kinds of packets that a broker sends to a publisher.
enum Kind {
    ConnAck,
    Answer(Step),
    PingResp,
    Disconnect,
    Auth,
}

impl Kind {
    /// By the first byte: a type, and four bits that are none in all of these.
    fn of(first: u8, version: Version) -> Result<Self, Malformed> {
        match (first, version) {
            (0x20, _) => Ok(Self::ConnAck),
            (0x40, _) => Ok(Self::Answer(Step::Acknowledged)),
            (0x50, _) => Ok(Self::Answer(Step::Received)),
            (0x70, _) => Ok(Self::Answer(Step::Completed)),
            (0xD0, _) => Ok(Self::PingResp),
            (0xE0, Version::V5) => Ok(Self::Disconnect),
            (0xF0, Version::V5) => Ok(Self::Auth),
            _ => Err(Malformed),
        }
    }
}

/// The length of a packet's body, and the bytes behind it.
fn length(bytes: &[u8]) -> Result<Option<(usize, &[u8])>, Malformed> {
    let mut rest = Rest(bytes);
    // It may have come in part.
    if bytes.len() < 4 && bytes.iter().all(|byte| byte & 0x80 != 0) {
        return Ok(None);
    }
    let length = rest.variable()?;
    match length <= PACKET_BYTES_MAX {
        true => Ok(Some((
            usize::try_from(length).map_err(|_| Malformed)?,
            rest.0,
        ))),
        false => Err(Malformed),
    }
}

/// The bytes of a packet that are not read yet.
struct Rest<'a>(&'a [u8]);

impl<'a> Rest<'a> {
    fn bytes(&mut self, count: usize) -> Result<&'a [u8], Malformed> {
        let (taken, rest) = self.0.split_at_checked(count).ok_or(Malformed)?;
        self.0 = rest;
        Ok(taken)
    }

    fn byte(&mut self) -> Result<u8, Malformed> {
        Ok(self.bytes(1)?[0])
    }

    fn short(&mut self) -> Result<u16, Malformed> {
        let bytes = self.bytes(2)?;
        Ok(u16::from_be_bytes([bytes[0], bytes[1]]))
    }

    fn long(&mut self) -> Result<u32, Malformed> {
        let bytes = self.bytes(4)?;
        Ok(u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
    }

    /// Seven bits a byte, the lowest first; four bytes at the most.
    fn variable(&mut self) -> Result<u32, Malformed> {
        let mut number = 0;
        for shift in [0, 7, 14, 21] {
            let byte = self.byte()?;
            number |= u32::from(byte & 0x7F) << shift;
            if byte & 0x80 == 0 {
                return Ok(number);
            }
        }
        Err(Malformed)
    }

    fn text(&mut self) -> Result<String, Malformed> {
        let length = self.short()?;
        let bytes = self.bytes(usize::from(length))?;
        String::from_utf8(bytes.to_vec()).map_err(|_| Malformed)
    }

    /// The id of a packet, which is never zero.
    fn id(&mut self) -> Result<u16, Malformed> {
        match self.short()? {
            0 => Err(Malformed),
            id => Ok(id),
        }
    }

    /// A code and its properties. Either may be left out at the end.
    fn reason(&mut self, version: Version) -> Result<Reason, Malformed> {
        let mut reason = Reason::default();
        if version == Version::V3 || self.0.is_empty() {
            return Ok(reason);
        }
        reason.code = self.byte()?;
        if !self.0.is_empty() {
            self.properties(|property| property.of_a_reason(&mut reason))?;
        }
        Ok(reason)
    }

    fn conn_ack(&mut self, version: Version) -> Result<ConnAck, Malformed> {
        let mut ack = ConnAck::default();
        match self.byte()? {
            0 => {}
            1 => ack.has_session = true,
            _ => return Err(Malformed),
        }
        ack.reason.code = self.byte()?;
        // A broker that knows no 5 answers as it can.
        if version == Version::V3 || self.0.is_empty() && ack.reason.code != 0 {
            return Ok(ack);
        }
        self.properties(|property| {
            match property {
                Property::Byte(0x24, qos) => ack.maximum_qos = Some(qos),
                Property::Byte(0x25, is) => ack.retain_available = Some(is != 0),
                Property::Short(0x21, 0) => return Err(Malformed),
                Property::Short(0x21, count) => ack.receive_maximum = Some(count),
                Property::Short(0x13, seconds) => ack.server_keep_alive = Some(seconds),
                Property::Long(0x27, 0) => return Err(Malformed),
                Property::Long(0x27, bytes) => ack.maximum_packet_size = Some(bytes),
                other => other.of_a_reason(&mut ack.reason)?,
            }
            Ok(())
        })?;
        Ok(ack)
    }

    fn properties(
        &mut self,
        mut take: impl FnMut(Property) -> Result<(), Malformed>,
    ) -> Result<(), Malformed> {
        let length = self.variable()?;
        let length = usize::try_from(length).map_err(|_| Malformed)?;
        let mut rest = Rest(self.bytes(length)?);
        while !rest.0.is_empty() {
            take(rest.property()?)?;
        }
        Ok(())
    }

    /// All that the protocol has, since what is not known has no known end.
    fn property(&mut self) -> Result<Property, Malformed> {
        let id = self.byte()?;
        Ok(match id {
            0x01 | 0x17 | 0x19 | 0x24 | 0x25 | 0x28 | 0x29 | 0x2A => {
                Property::Byte(id, self.byte()?)
            }
            0x13 | 0x21 | 0x22 | 0x23 => Property::Short(id, self.short()?),
            0x02 | 0x11 | 0x18 | 0x27 => Property::Long(id, self.long()?),
            0x03 | 0x08 | 0x12 | 0x15 | 0x1A | 0x1C | 0x1F => Property::Text(id, self.text()?),
            0x09 | 0x16 => {
                let length = self.short()?;
                self.bytes(usize::from(length))?;
                Property::Other
            }
            0x0B => {
                self.variable()?;
                Property::Other
            }
            0x26 => {
                self.text()?;
                self.text()?;
                Property::Other
            }
            _ => return Err(Malformed),
        })
    }
}

/// A property with the number of its kind.
enum Property {
    Byte(u8, u8),
    Short(u8, u16),
    Long(u8, u32),
    Text(u8, String),
    /// Of no meaning to a publisher.
    Other,
}

impl Property {
    fn of_a_reason(self, reason: &mut Reason) -> Result<(), Malformed> {
        match self {
            Self::Text(0x1F, words) => reason.words = Some(words),
            Self::Text(0x1C, server) => reason.server = Some(server),
            _ => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(step: Step, id: u16, code: u8, words: Option<&str>) -> Incoming {
        let reason = Reason {
            code,
            words: words.map(str::to_owned),
            server: None,
        };
        Incoming::Answer { step, id, reason }
    }

    #[test]
    fn each_packet_of_a_broker_is_read() {
        use Version::{V3, V5};
        let connected = ConnAck {
            receive_maximum: Some(20),
            maximum_qos: Some(1),
            retain_available: Some(false),
            maximum_packet_size: Some(1 << 20),
            server_keep_alive: Some(60),
            ..ConnAck::default()
        };
        let refused = |code| {
            Incoming::Connected(ConnAck {
                reason: Reason {
                    code,
                    ..Reason::default()
                },
                ..ConnAck::default()
            })
        };
        let moved = Reason {
            code: 0x9D,
            words: None,
            server: Some("b".to_owned()),
        };
        let with_session = Incoming::Connected(ConnAck {
            has_session: true,
            ..ConnAck::default()
        });
        for (version, bytes, incoming) in [
            (
                V5,
                &b"\x20\x14\0\0\x11\x21\0\x14\x24\x01\x25\0\x27\0\x10\0\0\x13\0\x3C\x2A\x01"[..],
                Incoming::Connected(connected),
            ),
            (V5, b"\x20\x02\0\x01", refused(1)),
            (V5, b"\x20\x03\0\x87\0", refused(0x87)),
            (V3, b"\x20\x02\0\x05", refused(5)),
            (V3, b"\x20\x02\x01\0", with_session),
            (
                V3,
                b"\x40\x02\0\x07",
                answer(Step::Acknowledged, 7, 0, None),
            ),
            (
                V5,
                b"\x40\x02\0\x07",
                answer(Step::Acknowledged, 7, 0, None),
            ),
            (
                V5,
                b"\x50\x03\x01\0\x87",
                answer(Step::Received, 256, 0x87, None),
            ),
            (
                V5,
                b"\x70\x0D\0\x01\x92\x09\x1F\0\x01w\x26\0\0\0\0",
                answer(Step::Completed, 1, 0x92, Some("w")),
            ),
            (V3, b"\xD0\0", Incoming::Pong),
            (V5, b"\xE0\0", Incoming::Disconnect(Reason::default())),
            (
                V5,
                b"\xE0\x06\x9D\x04\x1C\0\x01b",
                Incoming::Disconnect(moved),
            ),
            (V5, b"\xF0\x02\x18\0", Incoming::Auth),
        ] {
            let behind = [bytes, b"\xD0\0"].concat();
            let found = read(&behind, version);
            assert_eq!(found, Ok(Some((incoming, bytes.len()))), "{bytes:?}");
            for end in 0..bytes.len() {
                assert_eq!(read(&bytes[..end], version), Ok(None), "{end} of {bytes:?}");
            }
        }
    }

    #[test]
    fn other_bytes_are_refused() {
        use Version::{V3, V5};
        for (version, bytes) in [
            (V5, &b"HTTP/1.1 400 Bad Request\r\n"[..]),
            (V5, b"220 mail.example ready\r\n"),
            (V5, b"SSH-2.0"),
            (V5, b"\x15\x03\x03"),
            // A message, which nobody asked for.
            (V5, b"\x30\x05\0\x01a\0x"),
            (V3, b"\xE0\0"),
            (V3, b"\x20\x03\0\0\0"),
            (V5, b"\x20\x02\0\0"),
            (V5, b"\x20\x02\x02\x01"),
            (V5, b"\x40\x02\0\0"),
            (V5, b"\x40\x01\0"),
            (V3, b"\x40\x03\0\x01\0"),
            (V5, b"\x40\x05\0\x01\0\x01\x00"),
            (V5, b"\x40\x06\0\x01\0\x02\x1F\0"),
            (V5, b"\xD0\x01\0"),
            (V5, b"\x40\xFF\xFF\xFF\xFF"),
            (V5, b"\x40\xFF\xFF\xFF\x7F"),
        ] {
            assert_eq!(read(bytes, version), Err(Malformed), "{bytes:?}");
        }
    }
}
