//! RabbitMQ's bare client: publisher confirms in a window as wide as the sink's.

use std::{sync::Arc, time::Duration};

use amqprs::{
    Ack, BasicProperties, Cancel, CloseChannel, FieldTable, Nack, Return,
    callbacks::ChannelCallback,
    channel::{BasicPublishArguments, Channel, ConfirmSelectArguments},
    connection::{Connection, OpenConnectionArguments},
    error::Error,
};
use anyhow::{Result, ensure};
use async_trait::async_trait;
use posthaste_testkit::servers::rabbitmq::RabbitMqServer;
use tokio::sync::watch;

use crate::brokers::{Broker, payload};

const EXCHANGE: &str = "events";
const QUEUE: &str = "events";
/// Messages published and not yet confirmed.
const WINDOW: u64 = 4_096;

pub(crate) struct RabbitMq(RabbitMqServer);

impl RabbitMq {
    pub(crate) fn start() -> Self {
        let server = RabbitMqServer::start();
        let client = server.client("/");
        client.declare_exchange(EXCHANGE, "topic");
        client.declare_queue(QUEUE, &[]);
        client.bind(QUEUE, EXCHANGE, "#");
        Self(server)
    }
}

impl Broker for RabbitMq {
    fn fresh_place(&self) -> String {
        self.0.client("/").purge(QUEUE);
        format!("{}?exchange={EXCHANGE}", self.0.url("/"))
    }

    fn bare(&self, events: u64) -> Result<()> {
        self.0.client("/").purge(QUEUE);
        tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()?
            .block_on(publish(self.0.port(), events))?;
        let arrived = self.arrived();
        ensure!(arrived == events, "{arrived} of {events} have arrived");
        Ok(())
    }

    fn arrived(&self) -> u64 {
        u64::from(self.0.client("/").message_count(QUEUE))
    }

    fn memory_mib_max(&self) -> f64 {
        64.0
    }
}

async fn publish(port: u16, events: u64) -> Result<()> {
    let arguments = OpenConnectionArguments::new("127.0.0.1", port, "guest", "guest");
    let connection = Connection::open(&arguments).await?;
    let channel = connection.open_channel(None).await?;
    let (confirmed, mut seen) = watch::channel(0);
    channel
        .register_callback(Confirms {
            confirmed: Arc::new(confirmed),
        })
        .await?;
    channel
        .confirm_select(ConfirmSelectArguments::default())
        .await?;
    let payload = payload().into_bytes();
    for number in 0..events {
        seen.wait_for(|confirmed| number < confirmed + WINDOW)
            .await?;
        let mut headers = FieldTable::new();
        // The properties that the relay gives each of these events.
        for (name, value) in [
            ("id", "0199d4f0-0000-7000-8000-000000000000".to_owned()),
            ("type", "OrderPlaced".to_owned()),
            ("content-type", "application/json".to_owned()),
            ("occurred-at", "2026-01-01T00:00:00.000000Z".to_owned()),
            ("key", format!("order-{}", number % 10_000)),
        ] {
            let value = amqprs::FieldValue::S(value.try_into()?);
            headers.insert(name.try_into()?, value);
        }
        let properties = BasicProperties::default()
            .with_persistence(true)
            .with_message_id("0199d4f0-0000-7000-8000-000000000000")
            .with_message_type("OrderPlaced")
            .with_content_type("application/json")
            .with_timestamp(1_767_225_600)
            .with_headers(headers)
            .finish();
        let mut arguments = BasicPublishArguments::new(EXCHANGE, "orders");
        arguments.mandatory(true);
        channel
            .basic_publish(properties, payload.clone(), arguments)
            .await?;
    }
    tokio::time::timeout(
        Duration::from_secs(60),
        seen.wait_for(|confirmed| *confirmed == events),
    )
    .await??;
    channel.close().await?;
    connection.close().await?;
    Ok(())
}

/// How many messages the broker has confirmed, the first `n` of the channel.
struct Confirms {
    confirmed: Arc<watch::Sender<u64>>,
}

#[async_trait]
impl ChannelCallback for Confirms {
    async fn close(&mut self, _: &Channel, _: CloseChannel) -> Result<(), Error> {
        Ok(())
    }

    async fn cancel(&mut self, _: &Channel, _: Cancel) -> Result<(), Error> {
        Ok(())
    }

    async fn flow(&mut self, _: &Channel, active: bool) -> Result<bool, Error> {
        Ok(active)
    }

    async fn publish_ack(&mut self, _: &Channel, ack: Ack) {
        // One queue confirms in order, so a tag stands for all before it.
        self.confirmed.send_if_modified(|confirmed| {
            let before = *confirmed;
            *confirmed = before.max(ack.delivery_tag());
            *confirmed != before
        });
    }

    async fn publish_nack(&mut self, _: &Channel, nack: Nack) {
        panic!("the broker refused message {}", nack.delivery_tag());
    }

    async fn publish_return(&mut self, _: &Channel, ret: Return, _: BasicProperties, _: Vec<u8>) {
        panic!("the broker returned a message: {ret}");
    }
}
