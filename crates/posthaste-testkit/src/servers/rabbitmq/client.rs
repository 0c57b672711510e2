//! Exchanges and queues made, removed and read by AMQP, which takes milliseconds where
//! `rabbitmqctl` takes a second.

use super::{RabbitMqMessage, RabbitMqServer};
use crate::blocking::wait_for;
use amqprs::callbacks::{ChannelCallback, ConnectionCallback};
use amqprs::channel::{
    BasicAckArguments, BasicCancelArguments, BasicConsumeArguments, BasicQosArguments, Channel,
    ExchangeDeclareArguments, ExchangeDeleteArguments, QueueBindArguments, QueueDeclareArguments,
    QueueDeleteArguments, QueuePurgeArguments, QueueUnbindArguments,
};
use amqprs::connection::{Connection, OpenConnectionArguments};
use amqprs::error::Error;
use amqprs::{
    Ack, BasicProperties, Cancel, Close, CloseChannel, FieldTable, FieldValue, Nack, Return,
};
use async_trait::async_trait;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(60);
/// How many messages are acknowledged at once, and twice as many are on their way.
const ACKNOWLEDGED_AT_ONCE: u16 = 1_000;

/// An administrator's view of one virtual host. Every call has a connection of its own, which the
/// broker's restarts cannot break.
#[derive(Clone)]
pub struct RabbitMqClient {
    connection: OpenConnectionArguments,
}

impl std::fmt::Debug for RabbitMqClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RabbitMqClient").finish_non_exhaustive()
    }
}

/// The value of a queue's argument.
#[derive(Debug, Clone, Copy)]
pub enum Argument<'a> {
    /// As for `x-max-length`.
    Number(i64),
    /// As for `x-overflow`.
    Text(&'a str),
}

impl From<i64> for Argument<'_> {
    fn from(number: i64) -> Self {
        Self::Number(number)
    }
}

impl<'a> From<&'a str> for Argument<'a> {
    fn from(text: &'a str) -> Self {
        Self::Text(text)
    }
}

impl RabbitMqServer {
    /// A client for a virtual host, `/` or one that [`Self::ctl`] made with rights for the login.
    #[must_use]
    pub fn client(&self, vhost: &str) -> RabbitMqClient {
        let (user, password) = self.login.split_once(':').expect("user:password");
        let mut connection = OpenConnectionArguments::new(&self.host, self.port, user, password);
        RabbitMqClient {
            connection: connection.virtual_host(vhost).finish(),
        }
    }
}

/// Every method panics when the broker refuses or does not answer within a minute.
impl RabbitMqClient {
    /// Makes a durable exchange: `direct`, `topic`, `fanout` or `headers`.
    pub fn declare_exchange(&self, name: &str, kind: &str) {
        let args = ExchangeDeclareArguments::new(name, kind)
            .durable(true)
            .finish();
        self.with(async |channel| channel.exchange_declare(args).await);
    }

    /// Makes a durable topic exchange that only other exchanges may give messages to.
    pub fn declare_internal_exchange(&self, name: &str) {
        let args = ExchangeDeclareArguments::new(name, "topic")
            .durable(true)
            .internal(true)
            .finish();
        self.with(async |channel| channel.exchange_declare(args).await);
    }

    /// Removes an exchange.
    pub fn delete_exchange(&self, name: &str) {
        let args = ExchangeDeleteArguments::new(name).finish();
        self.with(async |channel| channel.exchange_delete(args).await);
    }

    /// Makes a durable queue with arguments such as `("x-max-length", 10.into())` or
    /// `("x-queue-type", "quorum".into())`.
    pub fn declare_queue(&self, name: &str, arguments: &[(&str, Argument<'_>)]) {
        let mut table = FieldTable::new();
        for (name, value) in arguments {
            let value = match *value {
                Argument::Number(number) => FieldValue::l(number),
                Argument::Text(text) => FieldValue::S(text.try_into().expect("a short text")),
            };
            table.insert((*name).try_into().expect("a short name"), value);
        }
        let args = QueueDeclareArguments::durable_client_named(name)
            .arguments(table)
            .finish();
        self.with(async |channel| channel.queue_declare(args).await);
    }

    /// Removes a queue with all that is in it.
    pub fn delete_queue(&self, name: &str) {
        let args = QueueDeleteArguments::new(name).finish();
        self.with(async |channel| channel.queue_delete(args).await);
    }

    /// Binds a queue to an exchange.
    pub fn bind(&self, queue: &str, exchange: &str, routing_key: &str) {
        let args = QueueBindArguments::new(queue, exchange, routing_key);
        self.with(async |channel| channel.queue_bind(args).await);
    }

    /// Takes a binding away.
    pub fn unbind(&self, queue: &str, exchange: &str, routing_key: &str) {
        let args = QueueUnbindArguments::new(queue, exchange, routing_key);
        self.with(async |channel| channel.queue_unbind(args).await);
    }

    /// Throws away what a queue holds.
    pub fn purge(&self, queue: &str) {
        let args = QueuePurgeArguments::new(queue);
        self.with(async |channel| channel.queue_purge(args).await);
    }

    /// How many messages a queue holds that no consumer has.
    #[must_use]
    pub fn message_count(&self, queue: &str) -> u32 {
        self.with(async |channel| message_count(channel, queue).await)
    }

    /// Takes what a queue holds at the call, in the queue's order.
    #[must_use]
    pub fn consume(&self, queue: &str) -> Vec<RabbitMqMessage> {
        self.with(async |channel| take_all(channel, queue).await)
    }

    /// Runs work on a channel of a connection of its own.
    fn with<T: Send>(&self, work: impl AsyncFnOnce(&Channel) -> Result<T, Error> + Send) -> T {
        let reason = Reason::default();
        let run = async || {
            let connection = Connection::open(&self.connection).await?;
            connection.register_callback(reason.clone()).await?;
            let channel = connection.open_channel(None).await?;
            channel.register_callback(reason.clone()).await?;
            let result = work(&channel).await?;
            channel.close().await?;
            connection.close().await?;
            Ok::<_, Error>(result)
        };
        let result = wait_for(|| tokio::time::timeout(LIMIT, run()));
        result
            .unwrap_or_else(|_| panic!("RabbitMQ did not answer within {LIMIT:?}"))
            .unwrap_or_else(|e| panic!("RabbitMQ refused: {e} {}", reason.text()))
    }
}

/// Why the broker closed a connection or a channel. The client's own errors only say that it did.
#[derive(Clone, Default)]
struct Reason(Arc<Mutex<String>>);

impl Reason {
    fn set(&self, text: String) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = text;
    }

    fn text(&self) -> String {
        let text = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        text.clone()
    }
}

#[async_trait]
impl ConnectionCallback for Reason {
    async fn close(&mut self, _: &Connection, close: Close) -> Result<(), Error> {
        self.set(close.to_string());
        Ok(())
    }

    async fn blocked(&mut self, _: &Connection, _: String) {}

    async fn unblocked(&mut self, _: &Connection) {}

    async fn secret_updated(&mut self, _: &Connection) {}
}

#[async_trait]
impl ChannelCallback for Reason {
    async fn close(&mut self, _: &Channel, close: CloseChannel) -> Result<(), Error> {
        self.set(close.to_string());
        Ok(())
    }

    async fn cancel(&mut self, _: &Channel, _: Cancel) -> Result<(), Error> {
        Ok(())
    }

    async fn flow(&mut self, _: &Channel, active: bool) -> Result<bool, Error> {
        Ok(active)
    }

    async fn publish_ack(&mut self, _: &Channel, _: Ack) {}

    async fn publish_nack(&mut self, _: &Channel, _: Nack) {}

    async fn publish_return(&mut self, _: &Channel, _: Return, _: BasicProperties, _: Vec<u8>) {}
}

async fn message_count(channel: &Channel, queue: &str) -> Result<u32, Error> {
    let args = QueueDeclareArguments::new(queue).passive(true).finish();
    let answer = channel.queue_declare(args).await?;
    let (_, messages, _) = answer.expect("an answer that was asked for");
    Ok(messages)
}

async fn take_all(channel: &Channel, queue: &str) -> Result<Vec<RabbitMqMessage>, Error> {
    let count = usize::try_from(message_count(channel, queue).await?).expect("64 bits");
    let mut messages = Vec::with_capacity(count);
    if count == 0 {
        return Ok(messages);
    }
    // Bounded, since what is delivered beyond the count goes back into the queue afterwards.
    let window = BasicQosArguments::new(0, 2 * ACKNOWLEDGED_AT_ONCE, false);
    channel.basic_qos(window).await?;
    let args = BasicConsumeArguments::new(queue, "");
    let (tag, mut deliveries) = channel.basic_consume_rx(args).await?;
    while messages.len() < count {
        let delivery = tokio::time::timeout(LIMIT, deliveries.recv()).await;
        let Ok(Some(delivery)) = delivery else {
            panic!(
                "{queue} held {count} messages, and gave {} only",
                messages.len()
            );
        };
        let parts = (
            delivery.deliver,
            delivery.basic_properties,
            delivery.content,
        );
        let (Some(deliver), Some(properties), Some(body)) = parts else {
            panic!("a delivery from {queue} is not whole");
        };
        messages.push(RabbitMqMessage::new(&deliver, &properties, body));
        if messages.len() == count || messages.len() % usize::from(ACKNOWLEDGED_AT_ONCE) == 0 {
            let all_up_to = BasicAckArguments::new(deliver.delivery_tag(), true);
            channel.basic_ack(all_up_to).await?;
        }
    }
    channel
        .basic_cancel(BasicCancelArguments::new(&tag))
        .await?;
    Ok(messages)
}
