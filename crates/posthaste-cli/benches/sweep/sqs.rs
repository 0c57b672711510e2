//! The bare client of SQS: requests of ten messages, as many at once as the sink has for a queue.
//! They are not signed, which the server does not ask for: AWS's own client has more to do.

use anyhow::{Result, ensure};
use posthaste_testkit::servers::sqs::SqsServer;
use reqwest::{Client, Url};
use serde_json::{Value, json};

use crate::{
    brokers::{Broker, payload},
    requests,
};

/// The queues of the two that are compared.
const RELAYED: &str = "relayed";
const BARE: &str = "bare";
/// Messages of a request.
const MESSAGES: u64 = 10;
/// Requests under way at once: a queue that is the only one has no more.
const REQUESTS: usize = 8;

pub(crate) struct Sqs(SqsServer);

impl Sqs {
    pub(crate) fn start() -> Self {
        let server = SqsServer::start();
        for queue in [RELAYED, BARE] {
            drop(server.client().create_queue(queue, &[]));
        }
        Self(server)
    }

    fn url_of(&self, queue: &str) -> String {
        let answer = self
            .0
            .client()
            .ask("GetQueueUrl", &json!({ "QueueName": queue }));
        let url = answer.expect("a queue")["QueueUrl"].take();
        url.as_str().expect("its URL").to_owned()
    }

    fn messages(&self, queue: &str) -> u64 {
        let attributes = self.0.client().attributes(&self.url_of(queue));
        let count = attributes["ApproximateNumberOfMessages"].as_str();
        count.expect("a number").parse().expect("a number")
    }
}

impl Broker for Sqs {
    fn events(&self, planned: u64) -> u64 {
        planned / 10
    }

    /// The server keeps messages in its memory: both queues are emptied.
    fn fresh_place(&self) -> String {
        let client = self.0.client();
        for queue in [RELAYED, BARE] {
            client.delete_queue(&self.url_of(queue));
            drop(client.create_queue(queue, &[]));
        }
        format!("sqs://{RELAYED}?{}", self.0.options())
    }

    fn bare(&self, events: u64) -> Result<()> {
        let server = Url::parse(&format!("http://127.0.0.1:{}/", self.0.port()))?;
        let (queue, payload) = (self.url_of(BARE), payload());
        requests::make(
            events.div_ceil(MESSAGES),
            REQUESTS,
            move |client, number| {
                let first = number * MESSAGES;
                let body = body(&queue, first..events.min(first + MESSAGES), &payload);
                send(client, server.clone(), body)
            },
        )?;
        let arrived = self.messages(BARE);
        ensure!(arrived == events, "{arrived} of {events} have arrived");
        Ok(())
    }

    fn arrived(&self) -> u64 {
        self.messages(RELAYED)
    }

    fn memory_mib_max(&self) -> f64 {
        64.0
    }
}

async fn send(client: Client, server: Url, body: String) -> Result<()> {
    let request = client
        .post(server)
        .header("x-amz-target", "AmazonSQS.SendMessageBatch")
        .header("content-type", "application/x-amz-json-1.0")
        .body(body);
    let answer = request.send().await?.error_for_status()?;
    let answer: Value = serde_json::from_slice(&answer.bytes().await?)?;
    let failed = answer["Failed"]
        .as_array()
        .is_some_and(|failed| !failed.is_empty());
    ensure!(!failed, "{answer}");
    Ok(())
}

/// With the attributes that the relay gives each of these events.
fn body(queue: &str, numbers: std::ops::Range<u64>, payload: &str) -> String {
    let entries = numbers.map(|number| {
        let attribute = |value: &str| json!({ "DataType": "String", "StringValue": value });
        json!({
            "Id": (number % MESSAGES).to_string(),
            "MessageBody": payload,
            "MessageAttributes": {
                "id": attribute(&format!("0199d4f0-0000-7000-8000-{number:012x}")),
                "topic": attribute("orders"),
                "key": attribute(&format!("order-{}", number % 10_000)),
                "occurred-at": attribute("2026-01-01T00:00:00.000000Z"),
                "type": attribute("OrderPlaced"),
                "content-type": attribute("application/json"),
            },
        })
    });
    let entries: Vec<_> = entries.collect();
    json!({ "QueueUrl": queue, "Entries": entries }).to_string()
}
