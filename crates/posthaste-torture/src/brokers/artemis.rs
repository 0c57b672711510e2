//! ActiveMQ Artemis, one node, by AMQP 1.0.

use std::sync::{Mutex, MutexGuard, PoisonError};

use posthaste_testkit::{
    proxy::Proxy,
    servers::artemis::{ArtemisMessage, ArtemisServer, Property},
    ways::Ways,
};
use uuid::Uuid;

use super::{Broker, PROBE_LIMIT, asks_its_server};
use crate::judge::Delivery;

/// One queue for all, so that the order of each key can be seen.
const QUEUE: &str = "auto.facts";
const PROBES: &str = "auto.probes";

/// A broker with a queue for the torture's events, and one for probes.
pub struct Artemis {
    server: ArtemisServer,
    proxy: Proxy,
    ways: Ways,
    /// Taken from the queue so far: to count what is in one, its messages have to be read.
    taken: Mutex<Vec<Delivery>>,
}

impl Artemis {
    /// For so many relays with ways of their own.
    pub fn for_relays(count: usize) -> Self {
        let server = ArtemisServer::start();
        for queue in [QUEUE, PROBES] {
            server.client().make(queue);
        }
        Self {
            proxy: Proxy::to_local_port(server.port()).unwrap(),
            ways: Ways::to((0..count).map(|_| server.port())),
            server,
            taken: Mutex::default(),
        }
    }

    fn taken(&self) -> MutexGuard<'_, Vec<Delivery>> {
        // A panic while messages are read leaves those that were read before.
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let messages = self.server.client().take_all(QUEUE);
        taken.extend(messages.into_iter().map(delivery));
        taken
    }
}

impl Broker for Artemis {
    fn url(&self) -> String {
        format!("{}/{QUEUE}", self.server.url_through(&self.proxy))
    }

    fn way(&self, relay: usize) -> (String, &Proxy) {
        let server = ArtemisServer::url_at(&self.ways.host());
        (format!("{server}/{QUEUE}"), self.ways.proxy(relay))
    }

    fn proxy(&self) -> &Proxy {
        &self.proxy
    }

    asks_its_server!();

    fn probe(&self) -> bool {
        let client = self.server.client_through(&self.proxy);
        client.is_accepted(PROBES, PROBE_LIMIT)
    }

    fn arrived(&self) -> u64 {
        u64::try_from(self.taken().len()).unwrap()
    }

    fn deliveries(&self) -> Vec<Delivery> {
        self.taken().clone()
    }
}

fn delivery(message: ArtemisMessage) -> Delivery {
    let key = message
        .properties
        .into_iter()
        .find(|(name, _)| name == "key");
    let Some((_, Property::Text(key))) = key else {
        panic!("the property `key` is {key:?}");
    };
    let payload = String::from_utf8(message.body).unwrap();
    Delivery {
        key,
        n: payload.trim_end().parse().unwrap(),
        id: Uuid::parse_str(&message.message_id.unwrap()).unwrap(),
    }
}
