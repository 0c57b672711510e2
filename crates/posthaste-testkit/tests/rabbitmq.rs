//! The RabbitMQ nodes of the kit.

#![cfg(feature = "rabbitmq")]
#![allow(clippy::unwrap_used, clippy::expect_used)] // Clippy's own exception ends at helpers.

use amqprs::channel::{BasicPublishArguments, Channel};
use amqprs::connection::{Connection, OpenConnectionArguments};
use amqprs::{BasicProperties, FieldTable, FieldValue};
use posthaste_testkit::servers::rabbitmq::{HeaderValue, RabbitMqMessage, RabbitMqServer};
use posthaste_testkit::unique_name;

async fn connect(port: u16) -> (Connection, Channel) {
    let args = OpenConnectionArguments::new("127.0.0.1", port, "guest", "guest");
    let connection = Connection::open(&args).await.unwrap();
    let channel = connection.open_channel(None).await.unwrap();
    (connection, channel)
}

/// Publishes in a transaction: when it returns, the messages are in their queues.
async fn publish(port: u16, exchange: &str, key: &str, messages: Vec<(BasicProperties, Vec<u8>)>) {
    let (connection, channel) = connect(port).await;
    channel.tx_select().await.unwrap();
    for (properties, body) in messages {
        let args = BasicPublishArguments::new(exchange, key);
        channel.basic_publish(properties, body, args).await.unwrap();
    }
    channel.tx_commit().await.unwrap();
    channel.close().await.unwrap();
    connection.close().await.unwrap();
}

fn persistent() -> BasicProperties {
    BasicProperties::default().with_persistence(true).finish()
}

fn bodies(messages: &[RabbitMqMessage]) -> Vec<&str> {
    messages.iter().map(body).collect()
}

fn body(message: &RabbitMqMessage) -> &str {
    std::str::from_utf8(&message.body).unwrap()
}

#[tokio::test]
async fn a_message_comes_back_as_it_was_published() {
    let server = RabbitMqServer::shared();
    let client = server.client("/");
    let (exchange, queue) = (unique_name("whole"), unique_name("whole"));
    client.declare_exchange(&exchange, "topic");
    client.declare_queue(&queue, &[]);
    client.bind(&queue, &exchange, "orders.*");
    let mut headers = FieldTable::new();
    let mut header = |name: &str, value| headers.insert(name.try_into().unwrap(), value);
    header("text", FieldValue::S("1".try_into().unwrap()));
    header("void", FieldValue::V);
    header("bytes", FieldValue::x(vec![255, 0].try_into().unwrap()));
    let twice = vec![FieldValue::V, FieldValue::S("2".try_into().unwrap())];
    header("twice", FieldValue::A(twice.try_into().unwrap()));
    let properties = BasicProperties::default()
        .with_persistence(true)
        .with_message_id("m-1")
        .with_message_type("order.paid")
        .with_correlation_id("c-1")
        .with_content_type("application/json")
        .with_app_id("shop")
        .with_timestamp(1_700_000_000)
        .with_headers(headers)
        .finish();
    publish(
        server.port(),
        &exchange,
        "orders.7",
        vec![(properties, b"\xff".to_vec())],
    )
    .await;
    publish(
        server.port(),
        &exchange,
        "orders.8",
        vec![(BasicProperties::default(), Vec::new())],
    )
    .await;

    assert_eq!(client.message_count(&queue), 2);
    let messages = client.consume(&queue);
    let text = |text: &str| Some(text.to_owned());
    let whole = RabbitMqMessage {
        exchange: exchange.clone(),
        routing_key: "orders.7".to_owned(),
        message_id: text("m-1"),
        kind: text("order.paid"),
        correlation_id: text("c-1"),
        content_type: text("application/json"),
        app_id: text("shop"),
        timestamp: Some(1_700_000_000),
        delivery_mode: Some(2),
        headers: [
            ("text", HeaderValue::Text("1".to_owned())),
            ("void", HeaderValue::Void),
            ("bytes", HeaderValue::Bytes(vec![255, 0])),
            (
                "twice",
                HeaderValue::List(vec![HeaderValue::Void, HeaderValue::Text("2".to_owned())]),
            ),
        ]
        .map(|(name, value)| (name.to_owned(), value))
        .into(),
        body: vec![255],
    };
    assert_eq!(messages[0], whole);
    assert_eq!(
        (messages[1].routing_key.as_str(), messages[1].body.len()),
        ("orders.8", 0)
    );
    assert_eq!(messages[1].message_id, None);
    assert_eq!(messages.len(), 2);
    assert_eq!(client.message_count(&queue), 0);
}

#[test]
fn a_killed_node_comes_back_with_its_messages() {
    let server = RabbitMqServer::start();
    let client = server.client("/");
    client.declare_queue("kept", &[]);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let send = |body: &str| {
        let message = vec![(persistent(), body.as_bytes().to_vec())];
        runtime.block_on(publish(server.port(), "", "kept", message));
    };
    send("1");
    server.kill9();
    server.start_again();
    send("2");
    server.stop();
    server.start_again();
    assert_eq!(bodies(&client.consume("kept")), ["1", "2"]);
}
