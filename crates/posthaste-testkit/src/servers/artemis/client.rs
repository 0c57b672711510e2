//! A client of the tests' own, by another library than the sink's.

use std::net::Ipv4Addr;
use std::time::Duration;

use fe2o3_amqp::connection::ConnectionHandle;
use fe2o3_amqp::link::{Receiver, Sender};
use fe2o3_amqp::sasl_profile::SaslProfile;
use fe2o3_amqp::session::SessionHandle;
use fe2o3_amqp::types::messaging::{
    Data, DistributionMode, Message, MessageId, Properties, Source, annotations::OwnedKey,
};
use fe2o3_amqp::types::primitives::{SimpleValue, Value};
use fe2o3_amqp::{Connection, Session};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::ADMIN;
use crate::blocking::wait_for;

/// Bounds a hang, nothing more.
const LIMIT: Duration = Duration::from_secs(60);

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Makes a connection for each call. Calls block.
#[derive(Debug, Clone, Copy)]
pub struct ArtemisClient {
    port: u16,
}

/// A message as a consumer receives it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArtemisMessage {
    /// Whether it is to survive a restart.
    pub is_durable: bool,
    /// Its id.
    pub message_id: Option<String>,
    /// Its subject.
    pub subject: Option<String>,
    /// Its conversation.
    pub correlation_id: Option<String>,
    /// The type of its content.
    pub content_type: Option<String>,
    /// Its time, in milliseconds since 1970-01-01 UTC.
    pub creation_time: Option<i64>,
    /// Its group.
    pub group_id: Option<String>,
    /// The annotation `x-opt-partition-key`.
    pub partition_key: Option<String>,
    /// Its application properties, in their order.
    pub properties: Vec<(String, Property)>,
    /// Its one data section.
    pub body: Vec<u8>,
}

/// The value of an application property.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Property {
    /// None.
    Null,
    /// A string.
    Text(String),
    /// Bytes.
    Bytes(Vec<u8>),
    /// A truth value.
    Bool(bool),
}

struct Connected {
    connection: ConnectionHandle<()>,
    session: SessionHandle<()>,
}

impl ArtemisClient {
    pub(super) fn new(port: u16) -> Self {
        Self { port }
    }

    async fn connect(self) -> Connected {
        self.try_to_connect().await.expect("log in to Artemis")
    }

    async fn try_to_connect(self) -> Result<Connected, Failure> {
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)).await?;
        let (username, password) = ADMIN;
        let (username, password) = (username.to_owned(), password.to_owned());
        let mut connection = Connection::builder()
            .container_id(crate::unique_name("testkit"))
            .hostname("127.0.0.1")
            .scheme("amqp")
            .sasl_profile(SaslProfile::Plain { username, password })
            .open_with_stream(stream)
            .await?;
        Ok(Connected {
            session: Session::begin(&mut connection).await?,
            connection,
        })
    }

    /// Tells whether the broker accepts a message for this address in time.
    #[must_use]
    pub fn is_accepted(self, address: &str, limit: Duration) -> bool {
        let attempt = || async {
            let mut connected = self.try_to_connect().await?;
            send(
                &mut connected.session,
                address,
                &crate::unique_name("probe"),
            )
            .await
        };
        // A broker that is away refuses, cuts or is silent: each is an answer.
        wait_for(|| async { matches!(timeout(limit, attempt()).await, Ok(Ok(()))) })
    }

    /// Makes the address, where its name says that it may be made.
    ///
    /// # Panics
    ///
    /// When the broker refuses, or is gone.
    pub fn make(self, address: &str) {
        let make = || async {
            let mut connected = self.connect().await;
            let sender = Sender::attach(&mut connected.session, "make", address).await;
            sender.expect("attach").close().await.expect("detach");
            connected.leave().await;
        };
        wait_for(|| async { timeout(LIMIT, make()).await.expect("a prompt broker") });
    }

    /// All messages of the queue of an address, which stay there.
    ///
    /// # Panics
    ///
    /// When there is none, the broker is gone, or a message has something that the sink never
    /// sends.
    #[must_use]
    pub fn messages(self, address: &str) -> Vec<ArtemisMessage> {
        self.read(address, &DistributionMode::Copy)
    }

    /// All messages of the queue of an address, which are taken away.
    ///
    /// # Panics
    ///
    /// As [`Self::messages`].
    #[must_use]
    pub fn take_all(self, address: &str) -> Vec<ArtemisMessage> {
        self.read(address, &DistributionMode::Move)
    }

    fn read(self, address: &str, mode: &DistributionMode) -> Vec<ArtemisMessage> {
        let read = || async {
            let mut connected = self.connect().await;
            // The queue is read up to a message of ours: nothing else shows its end.
            let end = crate::unique_name("end");
            let sent = send(&mut connected.session, address, &end).await;
            sent.expect("send");
            let source = Source::builder()
                .address(address)
                .distribution_mode(mode.clone())
                .build();
            let messages = read_to(&mut connected.session, source, &end).await;
            connected.leave().await;
            messages
        };
        wait_for(|| async { timeout(LIMIT, read()).await.expect("a prompt broker") })
    }

    /// Takes so many messages away from the queue of an address.
    ///
    /// # Panics
    ///
    /// When there are fewer, or the broker is gone.
    pub fn take(self, address: &str, count: usize) {
        let take = || async {
            let mut connected = self.connect().await;
            let receiver = Receiver::attach(&mut connected.session, "take", address).await;
            let mut receiver = receiver.expect("attach");
            for _ in 0..count {
                let delivery = receiver.recv::<Data>().await.expect("a message");
                receiver.accept(&delivery).await.expect("settle");
            }
            receiver.close().await.expect("detach");
            connected.leave().await;
        };
        wait_for(|| async { timeout(LIMIT, take()).await.expect("a prompt broker") });
    }
}

impl Connected {
    async fn leave(mut self) {
        self.session.end().await.expect("end a session");
        self.connection.close().await.expect("close a connection");
    }
}

/// Sends a message that is gone once the broker restarts.
async fn send(session: &mut SessionHandle<()>, address: &str, id: &str) -> Result<(), Failure> {
    let mut sender = Sender::attach(session, id, address).await?;
    let message = Message::builder()
        .properties(Properties::builder().message_id(id.to_owned()).build())
        .data(Vec::new())
        .build();
    sender.send(message).await?.accepted_or("not accepted")?;
    sender.close().await?;
    Ok(())
}

async fn read_to(
    session: &mut SessionHandle<()>,
    source: Source,
    end: &str,
) -> Vec<ArtemisMessage> {
    let receiver = Receiver::builder()
        .name(end)
        .source(source)
        .attach(session)
        .await;
    let mut receiver = receiver.expect("attach");
    let mut all = Vec::new();
    loop {
        let delivery = receiver.recv::<Data>().await.expect("a message");
        receiver.accept(&delivery).await.expect("settle");
        let message = ArtemisMessage::of(delivery.into_message());
        match &message.message_id {
            Some(id) if id == end => break,
            // The end of an earlier call.
            Some(id) if id.starts_with("end") => {}
            _ => all.push(message),
        }
    }
    receiver.close().await.expect("detach");
    all
}

impl ArtemisMessage {
    fn of(message: Message<Data>) -> Self {
        let properties = message.properties.unwrap_or_default();
        let id = |id: MessageId| match id {
            MessageId::String(text) => text,
            other => panic!("an id that is no text: {other:?}"),
        };
        let annotations = message.message_annotations.into_iter();
        let partition_key = annotations
            .flat_map(|all| all.0)
            .find(|(name, _)| *name == OwnedKey::from("x-opt-partition-key"))
            .map(|(_, value)| match value {
                Value::String(text) => text,
                other => panic!("a partition key that is no text: {other:?}"),
            });
        let application = message.application_properties.into_iter();
        let application = application.flat_map(|all| all.0);
        Self {
            is_durable: message.header.is_some_and(|header| header.durable),
            message_id: properties.message_id.map(id),
            subject: properties.subject,
            correlation_id: properties.correlation_id.map(id),
            content_type: properties.content_type.map(|symbol| symbol.0),
            creation_time: properties.creation_time.map(|time| time.milliseconds()),
            group_id: properties.group_id,
            partition_key,
            properties: application
                .map(|(name, value)| (name, value.into()))
                .collect(),
            body: message.body.0.into_vec(),
        }
    }
}

impl From<SimpleValue> for Property {
    fn from(value: SimpleValue) -> Self {
        match value {
            SimpleValue::Null => Self::Null,
            SimpleValue::String(text) => Self::Text(text),
            SimpleValue::Binary(bytes) => Self::Bytes(bytes.into_vec()),
            SimpleValue::Bool(value) => Self::Bool(value),
            other => panic!("a property that the sink never sends: {other:?}"),
        }
    }
}
