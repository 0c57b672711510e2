//! The bare client of AMQP 1.0: fe2o3-amqp, with outcomes in a window.

use std::{collections::VecDeque, net::Ipv4Addr};

use anyhow::{Context, Result, ensure};
use fe2o3_amqp::{
    Connection, Sender, Session,
    link::{SendError, delivery::DeliveryFut},
    sasl_profile::SaslProfile,
    types::{
        messaging::{ApplicationProperties, Data, Header, Message, Outcome, Properties},
        primitives::Timestamp,
    },
};
use posthaste_testkit::servers::artemis::{ADMIN, ArtemisServer};
use tokio::net::TcpStream;

use crate::brokers::{Broker, payload};

/// The addresses of the two that are compared; their names make them queues.
const RELAYED: &str = "auto.relayed";
const BARE: &str = "auto.bare";
/// Messages sent that have no outcome yet.
const WINDOW: usize = 4_096;

pub(crate) struct Amqp10(ArtemisServer);

impl Amqp10 {
    pub(crate) fn start() -> Self {
        let server = ArtemisServer::start();
        for address in [RELAYED, BARE] {
            server.client().make(address);
        }
        Self(server)
    }
}

impl Broker for Amqp10 {
    fn events(&self, planned: u64) -> u64 {
        planned / 10
    }

    /// The broker's heap is small: both queues are emptied.
    fn fresh_place(&self) -> String {
        for address in [RELAYED, BARE] {
            drop(self.0.client().take_all(address));
        }
        format!("{}/{RELAYED}", self.0.url())
    }

    /// Each message has its outcome. To count them takes as long as to send them.
    fn bare(&self, events: u64) -> Result<()> {
        tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()?
            .block_on(publish(self.0.port(), events))
    }

    fn arrived(&self) -> u64 {
        self.0.client().take_all(RELAYED).len() as u64
    }

    fn memory_mib_max(&self) -> f64 {
        64.0
    }
}

async fn publish(port: u16, events: u64) -> Result<()> {
    let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await?;
    let (username, password) = (ADMIN.0.to_owned(), ADMIN.1.to_owned());
    let mut connection = Connection::builder()
        .container_id("bare")
        .hostname("127.0.0.1")
        .scheme("amqp")
        .sasl_profile(SaslProfile::Plain { username, password })
        .open_with_stream(stream)
        .await?;
    let mut session = Session::begin(&mut connection).await?;
    let mut sender = Sender::attach(&mut session, "bare", BARE).await?;
    let payload = payload().into_bytes();
    let mut under_way = VecDeque::with_capacity(WINDOW);
    for number in 0..events {
        if under_way.len() == WINDOW {
            settled(&mut under_way).await?;
        }
        under_way.push_back(sender.send_batchable(message(number, &payload)).await?);
    }
    while !under_way.is_empty() {
        settled(&mut under_way).await?;
    }
    sender.close().await?;
    session.end().await?;
    connection.close().await?;
    Ok(())
}

type UnderWay = VecDeque<DeliveryFut<Result<Outcome, SendError>>>;

/// Waits for the outcome of the first one.
async fn settled(under_way: &mut UnderWay) -> Result<()> {
    let first = under_way.pop_front().context("none is under way")?;
    let outcome = first.await?;
    ensure!(matches!(outcome, Outcome::Accepted(_)), "{outcome:?}");
    Ok(())
}

/// With the properties that the relay gives each of these events.
fn message(number: u64, payload: &[u8]) -> Message<Data> {
    let id = format!("0199d4f0-0000-7000-8000-{number:012x}");
    let key = format!("order-{}", number % 10_000);
    let properties = Properties::builder()
        .message_id(id.clone())
        .subject("OrderPlaced")
        .content_type("application/json")
        .creation_time(Timestamp::from_milliseconds(1_767_225_600_000))
        .group_id(key.clone())
        .build();
    let more = ApplicationProperties::builder()
        .insert("id", id)
        .insert("occurred-at", "2026-01-01T00:00:00.000000Z")
        .insert("topic", "orders")
        .insert("key", key)
        .build();
    Message::builder()
        .header(Header::builder().durable(true).build())
        .properties(properties)
        .application_properties(more)
        .data(payload)
        .build()
}
