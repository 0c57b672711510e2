//! The bare client of MQTT 5: messages of QoS 1, as many under way as the relay may have.

use std::{
    io::{BufReader, Read},
    net::TcpStream,
    sync::atomic::{AtomicU64, Ordering},
};

use anyhow::{Result, ensure};
use posthaste_testkit::servers::mqtt::MqttServer;

use crate::{
    brokers::{Broker, payload},
    pipelined,
};

/// The topic of the outbox.
const TOPIC: &str = "orders";
/// The most that the sink has under way. mosquitto allows 20 unless it is told otherwise.
const WINDOW: u64 = 512;
/// The broker counts what it has received, and says so each second.
const RECEIVED: &str = "$SYS/broker/publish/messages/received";
/// Said before the counts of the same second.
const UPTIME: &str = "$SYS/broker/uptime";

/// Nobody has subscribed, so the broker has no more to do than to answer.
pub(crate) struct Mqtt {
    server: MqttServer,
    /// Messages that the broker had received when the place was last empty.
    before: AtomicU64,
}

impl Mqtt {
    pub(crate) fn start() -> Self {
        let window = format!("max_inflight_messages {WINDOW}");
        Self {
            server: MqttServer::start_with(&[&window, "sys_interval 1"]),
            before: AtomicU64::default(),
        }
    }

    fn received(&self) -> u64 {
        let mut client = self.server.client("counts");
        for topic in [RECEIVED, UPTIME] {
            client.subscribe(topic, 0);
        }
        let (mut received, mut seconds) = (0, 0);
        while seconds < 2 {
            let message = client.next_message();
            match &*message.topic {
                UPTIME => seconds += u8::from(!message.is_retained),
                _ => received = String::from_utf8_lossy(&message.payload).parse().unwrap(),
            }
        }
        received
    }
}

impl Broker for Mqtt {
    fn fresh_place(&self) -> String {
        self.before.store(self.received(), Ordering::Relaxed);
        self.server.url()
    }

    /// Each message has its answer. The broker's count would come seconds later.
    fn bare(&self, events: u64) -> Result<()> {
        let payload = payload();
        let mut greeting = Vec::new();
        put_text(&mut greeting, "MQTT");
        // A clean start; no keep-alive; no properties.
        greeting.extend_from_slice(&[5, 2, 0, 0, 0]);
        put_text(&mut greeting, "bare");
        let greeting = packet(0x10, &greeting);
        let messages = (0..events).map(|number| message(number, &payload));
        pipelined::publish(self.server.port(), &greeting, WINDOW, answers(), messages)
    }

    fn arrived(&self) -> u64 {
        self.received() - self.before.load(Ordering::Relaxed)
    }

    fn memory_mib_max(&self) -> f64 {
        64.0
    }
}

/// With the properties that the relay gives each of these events.
fn message(number: u64, payload: &str) -> Vec<u8> {
    let (id, key) = (pipelined::id(number), format!("order-{}", number % 10_000));
    let mut properties = vec![0x03];
    put_text(&mut properties, "application/json");
    for (name, value) in [
        ("id", &*id),
        ("occurred-at", "2026-01-01T00:00:00.000000Z"),
        ("type", "OrderPlaced"),
        ("content-type", "application/json"),
        ("key", &key),
    ] {
        properties.push(0x26);
        put_text(&mut properties, name);
        put_text(&mut properties, value);
    }
    let mut body = Vec::with_capacity(512);
    put_text(&mut body, TOPIC);
    // Never 0, and of no other message under way.
    let packet_id = u16::try_from(number % 0xFFFF + 1).expect("16 bits");
    body.extend_from_slice(&packet_id.to_be_bytes());
    put_length(&mut body, properties.len());
    body.extend_from_slice(&properties);
    body.extend_from_slice(payload.as_bytes());
    packet(0x32, &body)
}

fn packet(kind: u8, body: &[u8]) -> Vec<u8> {
    let mut packet = Vec::with_capacity(body.len() + 5);
    packet.push(kind);
    put_length(&mut packet, body.len());
    packet.extend_from_slice(body);
    packet
}

fn put_length(out: &mut Vec<u8>, mut length: usize) {
    while length >= 0x80 {
        out.push(u8::try_from(length % 0x80).expect("seven bits") | 0x80);
        length /= 0x80;
    }
    out.push(u8::try_from(length).expect("seven bits"));
}

fn put_text(out: &mut Vec<u8>, text: &str) {
    let length = u16::try_from(text.len()).expect("a short text");
    out.extend_from_slice(&length.to_be_bytes());
    out.extend_from_slice(text.as_bytes());
}

/// Packets of the broker, all of them short.
fn answers() -> pipelined::Next {
    Box::new(|reader: &mut BufReader<TcpStream>| {
        let mut head = [0; 2];
        reader.read_exact(&mut head)?;
        let [kind, length] = head;
        ensure!(length < 0x80, "a long packet of the broker");
        let mut body = [0; 0x7F];
        let body = &mut body[..length.into()];
        reader.read_exact(body)?;
        let refusal = match kind {
            0x20 => body.get(1),
            0x40 => body.get(2),
            _ => Some(&kind),
        };
        ensure!(
            refusal.is_none_or(|&code| code < 0x80),
            "{kind:02X} {body:?}"
        );
        Ok(Some(kind == 0x40))
    })
}
