//! Redis, one node that syncs its log before it answers.

use posthaste_testkit::{
    proxy::Proxy,
    servers::redis::{RedisServer, StreamEntry},
    ways::Ways,
};
use uuid::Uuid;

use super::{Broker, asks_its_server, is_answered};
use crate::{database::FACTS, judge::Delivery};

/// A server with a stream for the torture's events, and one for probes.
pub struct Redis {
    server: RedisServer,
    proxy: Proxy,
    ways: Ways,
}

impl Redis {
    /// For so many relays with ways of their own.
    pub fn for_relays(count: usize) -> Self {
        let server = RedisServer::start();
        Self {
            proxy: Proxy::to_local_port(server.port()).unwrap(),
            ways: Ways::to((0..count).map(|_| server.port())),
            server,
        }
    }
}

impl Broker for Redis {
    fn url(&self) -> String {
        self.server.url_through(&self.proxy)
    }

    fn way(&self, relay: usize) -> (String, &Proxy) {
        let url = format!("redis://{}", self.ways.host());
        (url, self.ways.proxy(relay))
    }

    fn proxy(&self) -> &Proxy {
        &self.proxy
    }

    asks_its_server!();

    fn probe(&self) -> bool {
        // Its answer is the entry's id, which has a `-`.
        is_answered(&self.proxy, "XADD probes * probe 1\r\n", "-")
    }

    fn arrived(&self) -> u64 {
        let count = self.server.client().number(&["XLEN", FACTS]);
        u64::try_from(count).unwrap()
    }

    fn deliveries(&self) -> Vec<Delivery> {
        let entries = self.server.client().entries(FACTS);
        entries.iter().map(delivery).collect()
    }
}

fn delivery(entry: &StreamEntry) -> Delivery {
    let text = |name: &str| {
        let found = entry.fields.iter().find(|(of, _)| of == name);
        String::from_utf8(found.unwrap().1.clone()).unwrap()
    };
    Delivery {
        key: text("key"),
        n: text("payload").trim_end().parse().unwrap(),
        id: Uuid::parse_str(&text("id")).unwrap(),
    }
}
