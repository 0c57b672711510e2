//! The RabbitMQ nodes of the kit.

#![cfg(feature = "rabbitmq")]
#![allow(clippy::unwrap_used, clippy::expect_used)] // Clippy's own exception ends at helpers.

use crate::victim;
use amqprs::channel::{BasicPublishArguments, Channel};
use amqprs::connection::{Connection, OpenConnectionArguments};
use amqprs::error::Error;
use amqprs::{BasicProperties, FieldTable, FieldValue};
use posthaste_testkit::servers::rabbitmq::{HeaderValue, RabbitMqMessage, RabbitMqServer};
use posthaste_testkit::tls::TestCa;
use posthaste_testkit::{long_form, unique_name};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long an answer that must not come is waited for; too short could only hide a fault.
const NOTHING: Duration = Duration::from_millis(200);
const LIMIT: Duration = Duration::from_secs(60);

fn login(port: u16, user: &str, password: &str) -> OpenConnectionArguments {
    OpenConnectionArguments::new("127.0.0.1", port, user, password)
}

async fn connect(port: u16) -> (Connection, Channel) {
    let args = login(port, "guest", "guest");
    let connection = Connection::open(&args).await.unwrap();
    let channel = connection.open_channel(None).await.unwrap();
    (connection, channel)
}

/// Publishes in a transaction: when it succeeds, the messages are in their queues.
async fn try_publish(
    port: u16,
    exchange: &str,
    key: &str,
    messages: Vec<(BasicProperties, Vec<u8>)>,
) -> Result<(), Error> {
    let (connection, channel) = connect(port).await;
    channel.tx_select().await.unwrap();
    for (properties, body) in messages {
        let args = BasicPublishArguments::new(exchange, key);
        channel.basic_publish(properties, body, args).await.unwrap();
    }
    let committed = channel.tx_commit().await;
    // A refused commit has closed the channel.
    let _ = channel.close().await;
    connection.close().await.unwrap();
    committed
}

async fn publish(port: u16, exchange: &str, key: &str, messages: Vec<(BasicProperties, Vec<u8>)>) {
    try_publish(port, exchange, key, messages).await.unwrap();
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
    server.sync_declarations();
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

/// The process that logs commits stands still for longer than the declaration takes to be
/// confirmed.
#[test]
fn a_queue_that_was_confirmed_too_early_survives_a_kill_after_a_sync() {
    let server = RabbitMqServer::start();
    server.ctl(&[
        "eval",
        "spawn(fun() -> erlang:suspend_process(whereis(mnesia_recover)), timer:sleep(3000) end).",
    ]);
    let client = server.client("/");
    client.declare_queue("kept", &[]);
    server.sync_declarations();
    server.kill9();
    server.start_again();
    assert_eq!(client.message_count("kept"), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_paused_node_answers_when_it_goes_on() {
    let server = RabbitMqServer::start();
    let client = server.client("/");
    client.declare_queue("held", &[]);
    server.pause();
    let message = vec![(persistent(), b"1".to_vec())];
    let mut sending = Box::pin(publish(server.port(), "", "held", message));
    let early = tokio::time::timeout(NOTHING, &mut sending).await;
    assert!(early.is_err(), "it answered");
    server.resume();
    tokio::time::timeout(LIMIT, sending).await.unwrap();
    assert_eq!(bodies(&client.consume("held")), ["1"]);
    server.pause();
    server.kill9();
}

#[tokio::test]
async fn queues_have_limits_and_kinds_and_are_emptied_and_removed() {
    let server = RabbitMqServer::shared();
    let client = server.client("/");
    let (limited, quorum) = (unique_name("limited"), unique_name("quorum"));
    let exchange = unique_name("limits");
    client.declare_exchange(&exchange, "fanout");
    let limit = [
        ("x-max-length", 2.into()),
        ("x-overflow", "reject-publish".into()),
    ];
    client.declare_queue(&limited, &limit);
    client.declare_queue(&quorum, &[("x-queue-type", "quorum".into())]);
    client.bind(&limited, &exchange, "");
    client.bind(&quorum, &exchange, "");
    let send = async |body: &str| {
        let message = vec![(persistent(), body.as_bytes().to_vec())];
        try_publish(server.port(), &exchange, "", message).await
    };
    send("1").await.unwrap();
    send("2").await.unwrap();
    client.unbind(&quorum, &exchange, "");
    assert!(send("3").await.is_err(), "the queue is full");
    assert_eq!(bodies(&client.consume(&limited)), ["1", "2"]);
    assert_eq!(bodies(&client.consume(&quorum)), ["1", "2"]);

    send("4").await.unwrap();
    assert_eq!(client.message_count(&limited), 1);
    client.purge(&limited);
    assert_eq!(client.message_count(&limited), 0);
    client.delete_queue(&limited);
    client.delete_exchange(&exchange);
    let gone = std::panic::catch_unwind(|| client.message_count(&limited));
    assert!(gone.is_err(), "the queue is still there");
}

#[tokio::test]
async fn many_messages_are_taken_in_order() {
    let server = RabbitMqServer::shared();
    let client = server.client("/");
    let queue = unique_name("many");
    client.declare_queue(&queue, &[]);
    let count = if long_form() { 300_000 } else { 20_000 };
    let message = |i: u32| (BasicProperties::default(), i.to_string().into_bytes());
    publish(server.port(), "", &queue, (0..count).map(message).collect()).await;
    let taken = client.consume(&queue);
    let expected = (0..count).map(|i| i.to_string());
    let whole = taken.iter().map(|message| body(message).to_owned());
    assert!(
        whole.eq(expected),
        "{} of {count}, or out of order",
        taken.len()
    );
}

#[tokio::test]
async fn users_and_virtual_hosts_are_made_by_the_command_line() {
    let server = RabbitMqServer::start_with(&["channel_max = 7"]);
    server.ctl(&["add_vhost", "a/b"]);
    server.ctl(&["set_permissions", "-p", "a/b", "guest", ".*", ".*", ".*"]);
    server.client("a/b").declare_queue("q", &[]);
    assert!(server.url("a/b").ends_with("/a%2Fb"));
    assert!(
        server
            .ctl(&["list_queues", "-p", "a/b", "name"])
            .contains('q')
    );

    server.ctl(&["add_user", "careful", "secret"]);
    server.ctl(&["set_permissions", "careful", "", "", ""]);
    let right = Connection::open(&login(server.port(), "careful", "secret")).await;
    assert_eq!(right.unwrap().channel_max(), 7);
    let wrong = Connection::open(&login(server.port(), "careful", "wrong")).await;
    assert!(wrong.is_err(), "a wrong password");
}

#[test]
fn tls_is_verified_against_the_test_authority() {
    let (ca, stranger) = (TestCa::new(), TestCa::new());
    let server = RabbitMqServer::start_tls(&ca);
    assert_eq!(
        server.tls_url("/"),
        format!("amqps://guest:guest@127.0.0.1:{}/%2F", server.tls_port())
    );
    for name in ["localhost", "127.0.0.1"] {
        assert_eq!(greet(server.tls_port(), &ca, name).unwrap(), 1);
    }
    let error = greet(server.tls_port(), &stranger, "localhost").unwrap_err();
    assert!(error.to_string().contains("UnknownIssuer"), "{error}");
    let error = greet(server.tls_port(), &ca, "rabbit.example").unwrap_err();
    assert!(error.to_string().contains("not valid for name"), "{error}");
}

/// The first byte of the node's answer to a client that speaks TLS.
fn greet(port: u16, ca: &TestCa, name: &'static str) -> std::io::Result<u8> {
    let mut roots = rustls::RootCertStore::empty();
    let authority = CertificateDer::from_pem_file(ca.certificate_file()).unwrap();
    roots.add(authority).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let name = ServerName::try_from(name).unwrap();
    let session = rustls::ClientConnection::new(Arc::new(config), name).unwrap();
    let mut stream = rustls::StreamOwned::new(session, TcpStream::connect(("127.0.0.1", port))?);
    stream.write_all(b"AMQP\x00\x00\x09\x01")?;
    let mut kind = [0];
    stream.read_exact(&mut kind)?;
    Ok(kind[0])
}

#[test]
fn a_killed_test_process_leaves_no_node_and_no_epmd() {
    let name = "rabbitmq::a_killed_test_process_leaves_no_node_and_no_epmd";
    victim::be_one(|| {
        let server = RabbitMqServer::start();
        server.pause();
        (std::process::id().to_string(), Box::new(server))
    });
    let (mut victim, id) = victim::start(name);
    let servers = children(&id, &["beam.smp", "epmd"]);
    assert_eq!(servers.len(), 2, "{servers:?}");

    victim.kill().unwrap();
    victim.wait().unwrap();
    let killed = Instant::now();
    while servers.iter().any(|id| runs(id)) {
        assert!(killed.elapsed() < LIMIT, "{servers:?} still run");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// The process ids of a process's children with one of these names.
fn children(parent: &str, names: &[&str]) -> Vec<String> {
    let processes = std::fs::read_dir("/proc").unwrap();
    let ids = processes.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    ids.filter(|id| {
        // Processes come and go while they are listed.
        let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
        let Some((name, rest)) = stat
            .split_once('(')
            .and_then(|(_, rest)| rest.split_once(") "))
        else {
            return false;
        };
        rest.split(' ').nth(1) == Some(parent) && names.contains(&name)
    })
    .collect()
}

/// Whether a process exists that is more than an entry nobody has reaped.
fn runs(id: &str) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
    stat.rsplit_once(") ")
        .is_some_and(|(_, rest)| !rest.starts_with('Z'))
}
