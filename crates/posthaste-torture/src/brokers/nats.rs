//! NATS JetStream, one node.

use posthaste_testkit::{
    proxy::Proxy,
    servers::nats::{NatsMessage, NatsServer},
    ways::Ways,
};
use serde_json::json;
use uuid::Uuid;

use super::{Broker, asks_its_server, is_answered};
use crate::{database::FACTS, judge::Delivery};

const PROBES: &str = "probes";

/// A broker with a stream for the torture's events, and one for probes.
pub struct Nats {
    server: NatsServer,
    proxy: Proxy,
    ways: Ways,
}

impl Nats {
    /// For so many relays with ways of their own.
    pub fn for_relays(count: usize) -> Self {
        let server = NatsServer::start();
        let mut client = server.client();
        for stream in [FACTS, PROBES] {
            client.create_stream(stream, &[stream], &json!({}));
        }
        Self {
            proxy: Proxy::to_local_port(server.port()).unwrap(),
            ways: Ways::to((0..count).map(|_| server.port())),
            server,
        }
    }
}

impl Broker for Nats {
    fn url(&self) -> String {
        self.server.url_through(&self.proxy)
    }

    fn way(&self, relay: usize) -> (String, &Proxy) {
        let url = format!("nats://{}", self.ways.host());
        (url, self.ways.proxy(relay))
    }

    fn proxy(&self) -> &Proxy {
        &self.proxy
    }

    asks_its_server!();

    fn probe(&self) -> bool {
        let says = format!("CONNECT {{}}\r\nSUB answer 1\r\nPUB {PROBES} answer 0\r\n\r\n");
        is_answered(&self.proxy, &says, "\"seq\":")
    }

    fn arrived(&self) -> u64 {
        self.server.client().stream_state(FACTS).0
    }

    fn deliveries(&self) -> Vec<Delivery> {
        let messages = self.server.client().messages(FACTS);
        messages.iter().map(delivery).collect()
    }
}

fn delivery(message: &NatsMessage) -> Delivery {
    let header = |name: &str| {
        let found = message.headers.iter().find(|(of, _)| of == name);
        found.map(|(_, value)| value.clone()).unwrap()
    };
    let payload = String::from_utf8(message.payload.clone()).unwrap();
    Delivery {
        key: header("key"),
        n: payload.trim_end().parse().unwrap(),
        id: Uuid::parse_str(&header("id")).unwrap(),
    }
}
