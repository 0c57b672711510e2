//! The packets of a publisher.

use super::{Qos, Version, packet::PACKET_BYTES_MAX};

/// The largest body that the protocol can tell the length of.
pub(super) const BODY_BYTES_MAX: usize = 268_435_455;

/// A string of more bytes than its length can tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::mqtt) struct StringTooLong(pub(in super::super) usize);

/// A login, and the terms of a connection.
pub(super) struct Connect<'a> {
    pub(super) version: Version,
    pub(super) client_id: &'a str,
    /// Seconds.
    pub(super) keep_alive: u16,
    pub(super) user: Option<&'a str>,
    pub(super) password: Option<&'a str>,
}

/// A message.
pub(in crate::mqtt) struct Publish<'a> {
    pub(in crate::mqtt) version: Version,
    pub(in crate::mqtt) id: u16,
    pub(in crate::mqtt) qos: Qos,
    pub(in crate::mqtt) retain: bool,
    pub(in crate::mqtt) topic: &'a str,
    /// As [`property`] writes them; 3.1.1 has none.
    pub(in crate::mqtt) properties: &'a [u8],
    pub(in crate::mqtt) payload: &'a [u8],
}

/// Appends `CONNECT`. It starts clean, and the session ends with the connection: nothing of an
/// older one is sent again, and nothing is left for a later one.
pub(super) fn connect(out: &mut Vec<u8>, connect: &Connect<'_>) -> Result<(), StringTooLong> {
    const CLEAN_START: u8 = 0x02;
    const PASSWORD: u8 = 0x40;
    const USER: u8 = 0x80;
    let mut body = Vec::with_capacity(64);
    text(&mut body, "MQTT")?;
    body.push(match connect.version {
        Version::V3 => 4,
        Version::V5 => 5,
    });
    let user = connect.user.map_or(0, |_| USER);
    let password = connect.password.map_or(0, |_| PASSWORD);
    body.push(CLEAN_START | user | password);
    body.extend_from_slice(&connect.keep_alive.to_be_bytes());
    if connect.version == Version::V5 {
        body.extend_from_slice(&[5, 0x27]);
        body.extend_from_slice(&PACKET_BYTES_MAX.to_be_bytes());
    }
    text(&mut body, connect.client_id)?;
    for field in [connect.user, connect.password].into_iter().flatten() {
        text(&mut body, field)?;
    }
    out.push(0x10);
    variable(out, body.len());
    out.extend_from_slice(&body);
    Ok(())
}

/// Bytes of a message's body: what stands behind its length.
pub(super) fn publish_body_bytes(publish: &Publish<'_>) -> usize {
    let properties = match publish.version {
        Version::V3 => 0,
        Version::V5 => variable_bytes(publish.properties.len()) + publish.properties.len(),
    };
    2 + publish.topic.len() + 2 + properties + publish.payload.len()
}

/// Bytes of a packet with such a body.
pub(super) fn packet_bytes(body: usize) -> usize {
    1 + variable_bytes(body) + body
}

/// Appends `PUBLISH`, whose body is not larger than the protocol allows.
pub(in crate::mqtt) fn publish(
    out: &mut Vec<u8>,
    publish: &Publish<'_>,
) -> Result<(), StringTooLong> {
    let topic = length(publish.topic)?;
    out.push(0x30 | ((publish.qos as u8) << 1) | u8::from(publish.retain));
    variable(out, publish_body_bytes(publish));
    out.extend_from_slice(&topic);
    out.extend_from_slice(publish.topic.as_bytes());
    out.extend_from_slice(&publish.id.to_be_bytes());
    if publish.version == Version::V5 {
        variable(out, publish.properties.len());
        out.extend_from_slice(publish.properties);
    }
    out.extend_from_slice(publish.payload);
    Ok(())
}

/// Appends `PUBREL`: a message of QoS 2 may go on to its subscribers.
pub(super) fn release(out: &mut Vec<u8>, id: u16) {
    out.extend_from_slice(&[0x62, 2]);
    out.extend_from_slice(&id.to_be_bytes());
}

pub(super) const PING: &[u8] = &[0xC0, 0];
pub(super) const DISCONNECT: &[u8] = &[0xE0, 0];

/// Properties of a message.
pub(in crate::mqtt) mod property {
    use super::{StringTooLong, length, text};

    pub(in crate::mqtt) fn content_type(
        out: &mut Vec<u8>,
        value: &str,
    ) -> Result<(), StringTooLong> {
        one(out, 0x03, value)
    }

    pub(in crate::mqtt) fn correlation_data(
        out: &mut Vec<u8>,
        value: &str,
    ) -> Result<(), StringTooLong> {
        one(out, 0x09, value)
    }

    pub(in crate::mqtt) fn user(
        out: &mut Vec<u8>,
        name: &str,
        value: &str,
    ) -> Result<(), StringTooLong> {
        length(value)?;
        one(out, 0x26, name)?;
        text(out, value)
    }

    /// On failure nothing was appended.
    fn one(out: &mut Vec<u8>, id: u8, value: &str) -> Result<(), StringTooLong> {
        length(value)?;
        out.push(id);
        text(out, value)
    }
}

fn length(text: &str) -> Result<[u8; 2], StringTooLong> {
    let length = u16::try_from(text.len()).map_err(|_| StringTooLong(text.len()))?;
    Ok(length.to_be_bytes())
}

fn text(out: &mut Vec<u8>, text: &str) -> Result<(), StringTooLong> {
    out.extend_from_slice(&length(text)?);
    out.extend_from_slice(text.as_bytes());
    Ok(())
}

/// Seven bits a byte, the lowest first. Lengths of more than four bytes have no place in a packet.
fn variable(out: &mut Vec<u8>, mut number: usize) {
    loop {
        let low = u8::try_from(number & 0x7F).unwrap_or_default();
        number >>= 7;
        if number == 0 {
            return out.push(low);
        }
        out.push(low | 0x80);
    }
}

fn variable_bytes(number: usize) -> usize {
    match number {
        0..0x80 => 1,
        0x80..0x4000 => 2,
        0x4000..0x20_0000 => 3,
        _ => 4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_login_starts_clean() {
        let mut out = Vec::new();
        let mut login = Connect {
            version: Version::V5,
            client_id: "me",
            keep_alive: 3,
            user: Some("u"),
            password: Some("pw"),
        };
        connect(&mut out, &login).unwrap();
        let expected = b"\x10\x1B\0\x04MQTT\x05\xC2\0\x03\x05\x27\0\x01\0\0\0\x02me\0\x01u\0\x02pw";
        assert_eq!(out, expected);
        out.clear();
        (login.version, login.password) = (Version::V3, None);
        connect(&mut out, &login).unwrap();
        assert_eq!(out, b"\x10\x11\0\x04MQTT\x04\x82\0\x03\0\x02me\0\x01u");
        let long = "x".repeat(65_536);
        login.user = Some(&long);
        assert_eq!(connect(&mut out, &login), Err(StringTooLong(65_536)));
    }

    #[test]
    fn a_message_has_its_id_and_its_properties() {
        let mut properties = Vec::new();
        property::content_type(&mut properties, "t").unwrap();
        property::correlation_data(&mut properties, "").unwrap();
        property::user(&mut properties, "n", "v").unwrap();
        assert_eq!(properties, b"\x03\0\x01t\x09\0\0\x26\0\x01n\0\x01v");
        let long = "x".repeat(65_536);
        assert!(property::user(&mut properties, "n", &long).is_err());
        assert_eq!(properties.len(), 14);
        let mut message = Publish {
            version: Version::V5,
            id: 258,
            qos: Qos::AtLeastOnce,
            retain: false,
            topic: "a/b",
            properties: &properties,
            payload: b"p",
        };
        let mut out = Vec::new();
        publish(&mut out, &message).unwrap();
        let expected = [b"\x32\x17\0\x03a/b\x01\x02\x0E", &properties[..], b"p"].concat();
        assert_eq!(out, expected);
        assert_eq!(out.len(), packet_bytes(publish_body_bytes(&message)));
        out.clear();
        message.version = Version::V3;
        (message.qos, message.retain) = (Qos::ExactlyOnce, true);
        publish(&mut out, &message).unwrap();
        assert_eq!(out, b"\x35\x08\0\x03a/b\x01\x02p");
    }

    #[test]
    fn lengths_have_up_to_four_bytes() {
        for (number, bytes) in [
            (0, &b"\0"[..]),
            (127, b"\x7F"),
            (128, b"\x80\x01"),
            (16_383, b"\xFF\x7F"),
            (16_384, b"\x80\x80\x01"),
            (2_097_151, b"\xFF\xFF\x7F"),
            (2_097_152, b"\x80\x80\x80\x01"),
            (BODY_BYTES_MAX, b"\xFF\xFF\xFF\x7F"),
        ] {
            let mut out = Vec::new();
            variable(&mut out, number);
            assert_eq!((&out[..], variable_bytes(number)), (bytes, bytes.len()));
        }
    }
}
