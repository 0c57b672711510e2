//! A queue FIFO of SQS, on one node that keeps it in a file.

use posthaste_testkit::{
    proxy::Proxy,
    servers::sqs::{Message, SqsServer, options},
    ways::Ways,
};
use uuid::Uuid;

use super::{Broker, asks_its_server, is_answered};
use crate::judge::Delivery;

const QUEUE: &str = "facts.fifo";
const PROBES: &str = "probes";

/// A server with a queue for the torture's events, and one for probes.
pub struct Sqs {
    server: SqsServer,
    proxy: Proxy,
    ways: Ways,
    queue: String,
}

impl Sqs {
    /// For so many relays with ways of their own.
    pub fn for_relays(count: usize) -> Self {
        let server = SqsServer::start_durable();
        let client = server.client();
        let _ = client.create_queue(PROBES, &[]);
        Self {
            proxy: Proxy::to_local_port(server.port()).unwrap(),
            ways: Ways::to((0..count).map(|_| server.port())),
            queue: client.create_queue(QUEUE, &[("FifoQueue", "true")]),
            server,
        }
    }
}

impl Broker for Sqs {
    fn url(&self) -> String {
        format!("sqs://{QUEUE}?{}", self.server.options_through(&self.proxy))
    }

    fn way(&self, relay: usize) -> (String, &Proxy) {
        let endpoint = format!("http://{}", self.ways.host());
        let url = format!("sqs://{QUEUE}?{}", options(&endpoint));
        (url, self.ways.proxy(relay))
    }

    fn proxy(&self) -> &Proxy {
        &self.proxy
    }

    asks_its_server!();

    fn probe(&self) -> bool {
        let body = format!(
            "Action=SendMessage&MessageBody=probe&QueueUrl=http://127.0.0.1/000000000000/{PROBES}"
        );
        let says = format!(
            "POST / HTTP/1.1\r\nHost: probe\r\nContent-Length: {}\r\n\
             Content-Type: application/x-www-form-urlencoded\r\n\r\n{body}",
            body.len()
        );
        is_answered(&self.proxy, &says, "<MessageId>")
    }

    fn slowness(&self) -> u32 {
        10
    }

    fn arrived(&self) -> u64 {
        // Exact on this server.
        let attributes = self.server.client().attributes(&self.queue);
        let count = attributes["ApproximateNumberOfMessages"].as_str();
        count.unwrap().parse().unwrap()
    }

    fn deliveries(&self) -> Vec<Delivery> {
        let messages = self.server.client().drain_as_sent(&self.queue);
        messages.iter().map(delivery).collect()
    }
}

fn delivery(message: &Message) -> Delivery {
    let text = |name: &str| {
        let found = message.attributes.iter().find(|(of, _)| of == name);
        &*found.unwrap().1
    };
    Delivery {
        key: text("key").to_owned(),
        n: message.body.trim_end().parse().unwrap(),
        id: Uuid::parse_str(text("id")).unwrap(),
    }
}
