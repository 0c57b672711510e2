//! A stream of Kinesis, on moto, which keeps it in memory.

use posthaste_testkit::{
    lines::Line,
    proxy::Proxy,
    servers::{
        moto::{MotoServer, StreamReader, StreamRecord},
        sqs::options,
    },
    ways::Ways,
};

use super::{Broker, Consumed, asks_its_server, is_answered};
use crate::judge::Delivery;

const STREAM: &str = "facts";
const PROBES: &str = "probes";
/// The server reads from it which region is meant.
const SCOPE: &str = "test/20260101/eu-central-1/kinesis/aws4_request";
/// Events of a key are in one of them, in order.
const SHARDS: usize = 4;

/// A server with a stream for the torture's events, and one for probes.
pub struct Kinesis {
    server: MotoServer,
    proxy: Proxy,
    ways: Ways,
    consumer: Consumed<StreamReader>,
}

impl Kinesis {
    /// For so many relays with ways of their own.
    pub fn for_relays(count: usize) -> Self {
        let server = MotoServer::start();
        server.create_stream(STREAM, SHARDS);
        server.create_stream(PROBES, 1);
        Self {
            proxy: Proxy::to_local_port(server.port()).unwrap(),
            ways: Ways::to((0..count).map(|_| server.port())),
            consumer: Consumed::by(server.stream_reader(STREAM)),
            server,
        }
    }

    fn read<T>(&self, look: impl FnOnce(&[Delivery]) -> T) -> T {
        let next = |reader: &mut StreamReader| {
            let records = reader.records(&self.server);
            records.iter().map(delivery).collect()
        };
        self.consumer.read(next, look)
    }
}

impl Broker for Kinesis {
    fn url(&self) -> String {
        let options = self.server.options_through(&self.proxy);
        format!("kinesis://{STREAM}?{options}")
    }

    fn way(&self, relay: usize) -> (String, &Proxy) {
        let endpoint = format!("http://{}", self.ways.host());
        let url = format!("kinesis://{STREAM}?{}", options(&endpoint));
        (url, self.ways.proxy(relay))
    }

    fn proxy(&self) -> &Proxy {
        &self.proxy
    }

    asks_its_server!();

    fn probe(&self) -> bool {
        let body = format!(r#"{{"StreamName":"{PROBES}","PartitionKey":"k","Data":"cHJvYmU="}}"#);
        let says = format!(
            "POST / HTTP/1.1\r\nHost: probe\r\nContent-Length: {}\r\n\
             Content-Type: application/x-amz-json-1.1\r\n\
             X-Amz-Target: Kinesis_20131202.PutRecord\r\n\
             Authorization: AWS4-HMAC-SHA256 Credential={SCOPE}, SignedHeaders=host, Signature=0\
             \r\n\r\n{body}",
            body.len()
        );
        is_answered(&self.proxy, &says, "SequenceNumber")
    }

    fn slowness(&self) -> u32 {
        10
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

fn delivery(record: &StreamRecord) -> Delivery {
    let line = String::from_utf8(record.data.clone()).unwrap();
    Delivery::of_line(&Line::parse(&line).unwrap())
}
