//! The bare client of HTTP: reqwest, with as many requests under way as the relay.

use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Result, ensure};
use bytes::Bytes;
use reqwest::{Client, Url};

use crate::{
    brokers::{Broker, payload},
    receiver::Receiver,
    requests,
};

/// Requests under way at once.
const REQUESTS: usize = 64;

pub(crate) struct Http {
    receiver: Receiver,
    /// Events that had arrived when the place was last empty.
    before: AtomicU64,
}

impl Http {
    pub(crate) fn start() -> Result<Self> {
        Ok(Self {
            receiver: Receiver::start()?,
            before: AtomicU64::default(),
        })
    }

    fn empty(&self) {
        let accepted = self.receiver.accepted().unwrap();
        self.before.store(accepted, Ordering::Relaxed);
    }

    fn url(&self) -> String {
        format!("http://127.0.0.1:{}/orders", self.receiver.port())
    }
}

impl Broker for Http {
    fn fresh_place(&self) -> String {
        self.empty();
        format!("{}?allow_private=true&requests={REQUESTS}", self.url())
    }

    fn bare(&self, events: u64) -> Result<()> {
        self.empty();
        let (url, payload) = (Url::parse(&self.url())?, Bytes::from(payload()));
        requests::make(events, REQUESTS, move |client, number| {
            post(client, url.clone(), number, payload.clone())
        })?;
        let arrived = self.arrived();
        ensure!(arrived == events, "{arrived} of {events} have arrived");
        Ok(())
    }

    fn arrived(&self) -> u64 {
        self.receiver.accepted().unwrap() - self.before.load(Ordering::Relaxed)
    }

    fn memory_mib_max(&self) -> f64 {
        64.0
    }

    fn ratio_min(&self) -> f64 {
        0.7
    }
}

/// With the headers that the relay gives each of these events.
async fn post(client: Client, url: Url, number: u64, payload: Bytes) -> Result<()> {
    let id = format!("0199d4f0-0000-7000-8000-{number:012x}");
    let request = client
        .post(url)
        .header("user-agent", "posthaste/0.1.0")
        .header("webhook-timestamp", 1_767_225_600)
        .header("ce-specversion", "1.0")
        .header("ce-source", "posthaste")
        .header("ce-id", &id)
        .header("ce-type", "OrderPlaced")
        .header("ce-time", "2026-01-01T00:00:00.000000Z")
        .header("ce-topic", "orders")
        .header("ce-partitionkey", format!("order-{}", number % 10_000))
        .header("content-type", "application/json")
        .header("webhook-id", &id)
        .body(payload);
    let answer = request.send().await?.error_for_status()?;
    answer.bytes().await?;
    Ok(())
}
