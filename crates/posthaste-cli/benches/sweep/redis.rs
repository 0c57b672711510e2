//! The bare client of Redis: pipelined `XADD`, to a server that syncs its log before it answers.

use anyhow::{Result, ensure};
use posthaste_testkit::servers::redis::RedisServer;

use crate::{
    brokers::{Broker, payload},
    lines, pipelined,
};

/// The topic of the outbox, and the stream's key.
const STREAM: &str = "orders";

pub(crate) struct Redis(RedisServer);

impl Redis {
    pub(crate) fn start() -> Self {
        Self(RedisServer::start())
    }
}

impl Broker for Redis {
    fn fresh_place(&self) -> String {
        self.0.client().ask(&["FLUSHALL"]);
        self.0.url()
    }

    fn bare(&self, events: u64) -> Result<()> {
        self.0.client().ask(&["FLUSHALL"]);
        let payload = payload();
        let messages = (0..events).map(|number| message(number, &payload));
        // The id of an entry is its answer.
        lines::publish(self.0.port(), "", "$", messages)?;
        let arrived = self.arrived();
        ensure!(arrived == events, "{arrived} of {events} have arrived");
        Ok(())
    }

    fn arrived(&self) -> u64 {
        let count = self.0.client().number(&["XLEN", STREAM]);
        count.unsigned_abs()
    }

    fn memory_mib_max(&self) -> f64 {
        96.0
    }
}

/// With the fields that the relay gives each of these events.
fn message(number: u64, payload: &str) -> String {
    let (id, key) = (pipelined::id(number), format!("order-{}", number % 10_000));
    let words = [
        ["XADD", STREAM],
        ["*", "id"],
        [&id, "topic"],
        [STREAM, "key"],
        [&key, "occurred_at"],
        ["2026-01-01T00:00:00.000000Z", "type"],
        ["OrderPlaced", "content_type"],
        ["application/json", "payload"],
    ];
    let words: Vec<&str> = words.into_iter().flatten().chain([payload]).collect();
    let mut said = format!("*{}\r\n", words.len());
    for word in words {
        said += &format!("${}\r\n{word}\r\n", word.len());
    }
    said
}
