//! The bare client of NATS JetStream: messages that ask for a `PubAck`, as the sink's do.

use anyhow::{Result, ensure};
use posthaste_testkit::servers::nats::NatsServer;
use serde_json::json;

use crate::{
    brokers::{Broker, payload},
    lines, pipelined,
};

/// The topic of the backlog.
const SUBJECT: &str = "orders";
const STREAM: &str = "events";
/// And the one of the writers that latency is measured with.
const SUBJECTS: [&str; 2] = [SUBJECT, "accounts"];

pub(crate) struct Nats(NatsServer);

impl Nats {
    pub(crate) fn start() -> Self {
        let server = NatsServer::start();
        server.client().create_stream(STREAM, &SUBJECTS, &json!({}));
        Self(server)
    }

    fn empty(&self) {
        let mut client = self.0.client();
        client.delete_stream(STREAM);
        client.create_stream(STREAM, &SUBJECTS, &json!({}));
    }
}

impl Broker for Nats {
    fn fresh_place(&self) -> String {
        self.empty();
        self.0.url()
    }

    fn bare(&self, events: u64) -> Result<()> {
        self.empty();
        let payload = payload();
        let greeting = "CONNECT {\"verbose\":false,\"headers\":true}\r\nSUB answer 1\r\n";
        let messages = (0..events).map(|number| message(number, &payload));
        lines::publish(self.0.port(), greeting, "MSG ", messages)?;
        let arrived = self.arrived();
        ensure!(arrived == events, "{arrived} of {events} have arrived");
        Ok(())
    }

    fn arrived(&self) -> u64 {
        self.0.client().stream_state(STREAM).0
    }

    fn memory_mib_max(&self) -> f64 {
        96.0
    }
}

/// With the headers that the relay gives each of these events.
fn message(number: u64, payload: &str) -> String {
    let id = pipelined::id(number);
    let headers = format!(
        "NATS/1.0\r\nNats-Msg-Id: {id}\r\nid: {id}\r\ntype: OrderPlaced\r\n\
         content-type: application/json\r\noccurred-at: 2026-01-01T00:00:00.000000Z\r\n\
         key: order-{}\r\n\r\n",
        number % 10_000
    );
    let (of_headers, all) = (headers.len(), headers.len() + payload.len());
    format!("HPUB {SUBJECT} answer {of_headers} {all}\r\n{headers}{payload}\r\n")
}
