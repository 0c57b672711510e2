//! mosquitto, with a subscriber that stays connected.

use posthaste_testkit::{
    proxy::Proxy,
    servers::mqtt::{MqttClient, MqttMessage, MqttServer},
    ways::Ways,
};
use uuid::Uuid;

use super::{Broker, Consumed, asks_its_server, is_answered};
use crate::{database::FACTS, judge::Delivery};

/// A broker with a subscriber to the torture's events.
pub struct Mqtt {
    server: MqttServer,
    proxy: Proxy,
    ways: Ways,
    subscriber: Consumed<MqttClient>,
}

impl Mqtt {
    /// For so many relays with ways of their own.
    pub fn for_relays(count: usize) -> Self {
        let server = MqttServer::start();
        let mut client = server.client("torture");
        client.subscribe(FACTS, 1);
        Self {
            proxy: Proxy::to_local_port(server.port()).unwrap(),
            ways: Ways::to((0..count).map(|_| server.port())),
            server,
            subscriber: Consumed::by(client),
        }
    }

    fn read<T>(&self, look: impl FnOnce(&[Delivery]) -> T) -> T {
        let next = |client: &mut MqttClient| client.messages(FACTS).iter().map(delivery).collect();
        self.subscriber.read(next, look)
    }
}

impl Broker for Mqtt {
    fn url(&self) -> String {
        self.server.url_through(&self.proxy)
    }

    fn way(&self, relay: usize) -> (String, &Proxy) {
        let url = format!("mqtt://{}", self.ways.host());
        (url, self.ways.proxy(relay))
    }

    fn proxy(&self) -> &Proxy {
        &self.proxy
    }

    asks_its_server!();

    /// A message that nobody has subscribed to: mosquitto has no other words for one that somebody
    /// has.
    fn probe(&self) -> bool {
        // CONNECT of MQTT 5 with a clean start, and PUBLISH with QoS 1 to `probes` behind it.
        let says = "\x10\x12\0\x04MQTT\x05\x02\0\0\0\0\x05probe\x32\x0b\0\x06probes\0\x01\0";
        is_answered(&self.proxy, says, "\x40\x03\0\x01\x10")
    }

    fn is_forgetful(&self) -> bool {
        true
    }

    fn arrived(&self) -> u64 {
        self.read(|deliveries| u64::try_from(deliveries.len()).unwrap())
    }

    fn deliveries(&self) -> Vec<Delivery> {
        self.read(<[Delivery]>::to_vec)
    }
}

fn delivery(message: &MqttMessage) -> Delivery {
    let property = |name: &str| {
        let mut properties = message.user_properties.iter();
        let found = properties.find(|(of, _)| of == name);
        &*found.unwrap().1
    };
    let payload = String::from_utf8(message.payload.clone()).unwrap();
    Delivery {
        key: property("key").to_owned(),
        n: payload.trim_end().parse().unwrap(),
        id: Uuid::parse_str(property("id")).unwrap(),
    }
}
