//! A subscriber of the tests' own, over MQTT 5. It shares nothing with the sink.

use std::collections::VecDeque;
use std::io::{BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::time::Duration;

/// Bounds a hang, nothing more.
const LIMIT: Duration = Duration::from_secs(60);
/// The payload of the message behind which all earlier ones have arrived.
const MARKER: &[u8] = b"posthaste-testkit-marker";

/// A connection. Calls block.
#[derive(Debug)]
pub struct MqttClient {
    stream: BufReader<TcpStream>,
    last_id: u16,
    arrived: VecDeque<MqttMessage>,
}

/// A message as a subscriber reads it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MqttMessage {
    /// Its topic.
    pub topic: String,
    /// Whether the broker had kept it for new subscribers.
    pub is_retained: bool,
    /// The property of this name.
    pub content_type: Option<String>,
    /// The property of this name.
    pub correlation_data: Option<Vec<u8>>,
    /// User properties, in their order.
    pub user_properties: Vec<(String, String)>,
    /// Its payload.
    pub payload: Vec<u8>,
}

/// A packet: its first byte, and what stands behind its length.
type Packet = (u8, Vec<u8>);

impl MqttClient {
    /// Connects to a port of 127.0.0.1. The login counts where the server asks for one.
    pub(super) fn connect(port: u16, client_id: &str, login: (&str, &str)) -> Self {
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).expect("connect to MQTT");
        stream.set_read_timeout(Some(LIMIT)).expect("a time limit");
        stream.set_nodelay(true).expect("no delay");
        let mut client = Self {
            stream: BufReader::new(stream),
            last_id: 0,
            arrived: VecDeque::new(),
        };
        let mut body = Vec::new();
        put_text(&mut body, "MQTT");
        // User, password, no clean start; no keep-alive; the session never expires.
        body.extend_from_slice(&[5, 0xC0, 0, 0, 5, 0x11, 0xFF, 0xFF, 0xFF, 0xFF]);
        for text in [client_id, login.0, login.1] {
            put_text(&mut body, text);
        }
        client.send(0x10, &body);
        let (kind, body) = client.packet();
        assert_eq!((kind, body.get(1)), (0x20, Some(&0)), "{body:?}");
        client
    }

    /// Subscribes with QoS 1, or 0. With 1, messages are kept while the client is away.
    ///
    /// # Panics
    ///
    /// When the server refuses.
    pub fn subscribe(&mut self, filter: &str, qos: u8) {
        let mut body = self.next_id().to_vec();
        body.push(0);
        put_text(&mut body, filter);
        body.push(qos);
        self.send(0x82, &body);
        let answer = self.wait_for(0x90);
        assert_eq!(answer.last(), Some(&qos), "{answer:?}");
    }

    /// Publishes a message without properties, with QoS 1.
    ///
    /// # Panics
    ///
    /// When the server refuses.
    pub fn publish(&mut self, topic: &str, payload: &[u8], retain: bool) {
        let mut body = Vec::new();
        put_text(&mut body, topic);
        body.extend_from_slice(&self.next_id());
        body.push(0);
        body.extend_from_slice(payload);
        self.send(0x32 | u8::from(retain), &body);
        let answer = self.wait_for(0x40);
        assert!(
            answer.get(2).is_none_or(|&reason| reason < 0x80),
            "{answer:?}"
        );
    }

    /// The messages that have arrived since the last call, and all that were published before it.
    /// `topic` is one that the client has subscribed to, for a message behind them.
    ///
    /// # Panics
    ///
    /// When the server is gone.
    pub fn messages(&mut self, topic: &str) -> Vec<MqttMessage> {
        self.publish(topic, MARKER, false);
        let mut all = Vec::new();
        loop {
            let message = self.next_message();
            if message.payload == MARKER {
                return all;
            }
            all.push(message);
        }
    }

    /// The next message.
    ///
    /// # Panics
    ///
    /// When none comes.
    pub fn next_message(&mut self) -> MqttMessage {
        loop {
            if let Some(message) = self.arrived.pop_front() {
                return message;
            }
            let packet = self.packet();
            self.take_in(packet);
        }
    }

    /// Reads until the connection ends, and answers what had come.
    pub fn messages_until_the_end(mut self) -> Vec<MqttMessage> {
        while let Some(packet) = self.try_packet() {
            if packet.0 & 0xF0 == 0xE0 {
                break;
            }
            self.take_in(packet);
        }
        self.arrived.into()
    }

    fn wait_for(&mut self, kind: u8) -> Vec<u8> {
        loop {
            let packet = self.packet();
            if packet.0 == kind {
                return packet.1;
            }
            self.take_in(packet);
        }
    }

    fn take_in(&mut self, (kind, body): Packet) {
        assert_eq!(kind & 0xF0, 0x30, "MQTT sent {kind:02X} {body:?}");
        let mut rest = Rest(&body);
        let mut message = MqttMessage {
            topic: rest.text(),
            is_retained: kind & 1 != 0,
            ..MqttMessage::default()
        };
        let qos = kind >> 1 & 3;
        let id = (qos > 0).then(|| rest.take(2).to_vec());
        let length = rest.variable();
        let mut properties = Rest(rest.take(length));
        while let Some((&id, behind)) = properties.0.split_first() {
            properties.0 = behind;
            match id {
                0x03 => message.content_type = Some(properties.text()),
                0x09 => message.correlation_data = Some(properties.bytes().to_vec()),
                0x26 => {
                    let name = properties.text();
                    message.user_properties.push((name, properties.text()));
                }
                // The broker's words about itself expire.
                0x02 if message.topic.starts_with("$SYS/") => drop(properties.take(4)),
                other => panic!("a message has the property {other:02X}"),
            }
        }
        message.payload = rest.0.to_vec();
        self.arrived.push_back(message);
        if let Some(id) = id {
            self.send(0x40, &id);
        }
    }

    fn next_id(&mut self) -> [u8; 2] {
        self.last_id = self.last_id % u16::MAX + 1;
        self.last_id.to_be_bytes()
    }

    fn send(&mut self, kind: u8, body: &[u8]) {
        let mut packet = vec![kind];
        let mut length = body.len();
        loop {
            let low = u8::try_from(length % 0x80).expect("seven bits");
            length /= 0x80;
            packet.push(low | if length > 0 { 0x80 } else { 0 });
            if length == 0 {
                break;
            }
        }
        packet.extend_from_slice(body);
        // A server that was killed reads nothing any more; what it had sent is still read.
        let _ = self.stream.get_mut().write_all(&packet);
    }

    fn packet(&mut self) -> Packet {
        self.try_packet().expect("MQTT closed the connection")
    }

    fn try_packet(&mut self) -> Option<Packet> {
        let mut byte = [0];
        let mut next = || {
            self.stream.read_exact(&mut byte).ok()?;
            Some(byte[0])
        };
        let kind = next()?;
        let mut length = 0;
        for shift in [0, 7, 14, 21] {
            let byte = next()?;
            length |= usize::from(byte & 0x7F) << shift;
            if byte & 0x80 == 0 {
                break;
            }
        }
        let mut body = vec![0; length];
        self.stream.read_exact(&mut body).ok()?;
        Some((kind, body))
    }
}

fn put_text(out: &mut Vec<u8>, text: &str) {
    let length = u16::try_from(text.len()).expect("a short text");
    out.extend_from_slice(&length.to_be_bytes());
    out.extend_from_slice(text.as_bytes());
}

/// The bytes of a packet that are not read yet.
struct Rest<'a>(&'a [u8]);

impl<'a> Rest<'a> {
    fn take(&mut self, count: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(count);
        self.0 = rest;
        taken
    }

    fn variable(&mut self) -> usize {
        let mut number = 0;
        for shift in [0, 7, 14, 21] {
            let byte = self.take(1)[0];
            number |= usize::from(byte & 0x7F) << shift;
            if byte & 0x80 == 0 {
                break;
            }
        }
        number
    }

    fn bytes(&mut self) -> &'a [u8] {
        let length = self.take(2);
        let length = u16::from_be_bytes([length[0], length[1]]);
        self.take(length.into())
    }

    fn text(&mut self) -> String {
        String::from_utf8(self.bytes().to_vec()).expect("MQTT's texts are UTF-8")
    }
}
