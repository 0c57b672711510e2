//! RabbitMQ, one node.

use std::time::Duration;

use amqprs::{
    BasicProperties,
    channel::{BasicPublishArguments, QueueDeclareArguments},
    connection::{Connection, OpenConnectionArguments},
    error::Error,
};
use posthaste_testkit::{
    proxy::Proxy,
    servers::rabbitmq::{HeaderValue, RabbitMqServer},
    ways::Ways,
};
use uuid::Uuid;

use super::{Broker, asks_its_server};
use crate::judge::Delivery;

const EXCHANGE: &str = "events";
/// One queue for all, so that the order of each key can be seen.
const QUEUE: &str = "facts";
const PROBES: &str = "probes";

/// A broker with an exchange, a queue for the torture's events, and one for probes.
pub struct RabbitMq {
    server: RabbitMqServer,
    proxy: Proxy,
    ways: Ways,
}

impl RabbitMq {
    /// For so many relays with ways of their own.
    pub fn for_relays(count: usize) -> Self {
        let server = RabbitMqServer::start();
        let client = server.client("/");
        client.declare_exchange(EXCHANGE, "topic");
        for queue in [QUEUE, PROBES] {
            client.declare_queue(queue, &[]);
        }
        client.bind(QUEUE, EXCHANGE, "#");
        server.sync_declarations();
        Self {
            proxy: Proxy::to_local_port(server.port()).unwrap(),
            ways: Ways::to((0..count).map(|_| server.port())),
            server,
        }
    }

    fn url_through(&self, proxy: &Proxy) -> String {
        let url = self.server.url_through(proxy, "/");
        format!("{url}?exchange={EXCHANGE}")
    }
}

impl Broker for RabbitMq {
    fn url(&self) -> String {
        self.url_through(&self.proxy)
    }

    fn way(&self, relay: usize) -> (String, &Proxy) {
        let host = self.ways.host();
        let url = format!("amqp://guest:guest@{host}/%2F?exchange={EXCHANGE}");
        (url, self.ways.proxy(relay))
    }

    fn proxy(&self) -> &Proxy {
        &self.proxy
    }

    asks_its_server!();

    fn probe(&self) -> bool {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let publish = async {
            tokio::time::timeout(Duration::from_millis(500), publish(self.proxy.port())).await
        };
        matches!(runtime.block_on(publish), Ok(Ok(())))
    }

    fn arrived(&self) -> u64 {
        u64::from(self.server.client("/").message_count(QUEUE))
    }

    fn deliveries(&self) -> Vec<Delivery> {
        let messages = self.server.client("/").consume(QUEUE);
        let delivery = |message: posthaste_testkit::servers::rabbitmq::RabbitMqMessage| Delivery {
            key: match &message.headers["key"] {
                HeaderValue::Text(key) => key.clone(),
                other => panic!("the header `key` is {other:?}"),
            },
            n: String::from_utf8(message.body)
                .unwrap()
                .trim_end()
                .parse()
                .unwrap(),
            id: Uuid::parse_str(&message.message_id.unwrap()).unwrap(),
        };
        messages.into_iter().map(delivery).collect()
    }
}

/// The end of a transaction of the channel is the broker's answer.
async fn publish(port: u16) -> Result<(), Error> {
    let arguments = OpenConnectionArguments::new("127.0.0.1", port, "guest", "guest");
    let connection = Connection::open(&arguments).await?;
    let channel = connection.open_channel(None).await?;
    let passive = QueueDeclareArguments::new(PROBES).passive(true).finish();
    channel.queue_declare(passive).await?;
    channel.tx_select().await?;
    let arguments = BasicPublishArguments::new("", PROBES);
    let properties = BasicProperties::default().with_persistence(true).finish();
    channel
        .basic_publish(properties, b"probe".to_vec(), arguments)
        .await?;
    channel.tx_commit().await
}
