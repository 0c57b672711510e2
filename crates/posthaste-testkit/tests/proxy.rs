//! The proxy, between a real client and a real server: PostgreSQL and `tokio-postgres`.

#![allow(clippy::unwrap_used, clippy::expect_used)] // Clippy's own exception ends at helpers.

use posthaste_testkit::proxy::Proxy;
use posthaste_testkit::servers::postgres::PostgresServer;
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};
use tokio_postgres::{Client, NoTls};

/// Long enough for any answer that is on its way.
const LIMIT: Duration = Duration::from_secs(30);
/// How long an answer that must not come is waited for; too short could only hide a fault.
const NOTHING: Duration = Duration::from_millis(100);

async fn connect(proxy: &Proxy) -> Result<Client, tokio_postgres::Error> {
    let url = format!("postgres://postgres@127.0.0.1:{}/postgres", proxy.port());
    let (client, connection) = tokio_postgres::connect(&url, NoTls).await?;
    tokio::spawn(connection);
    Ok(client)
}

async fn one(client: &Client) -> Result<i32, tokio_postgres::Error> {
    client
        .query_one("SELECT 1", &[])
        .await
        .map(|row| row.get(0))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_connection_is_cut_and_refused_until_resumed() {
    let proxy = Proxy::to_local_port(PostgresServer::shared(15).port()).unwrap();
    let client = connect(&proxy).await.unwrap();
    assert_eq!(one(&client).await.unwrap(), 1);
    assert_eq!(proxy.connections(), 1);

    proxy.cut();
    assert!(one(&client).await.is_err());
    let client = connect(&proxy).await.unwrap();
    assert_eq!(one(&client).await.unwrap(), 1);

    proxy.refuse();
    assert!(one(&client).await.is_err());
    assert!(connect(&proxy).await.is_err());
    proxy.resume();
    assert_eq!(one(&connect(&proxy).await.unwrap()).await.unwrap(), 1);
}

#[test]
fn a_connection_that_comes_as_a_refusal_begins_is_broken() {
    let server = echo_server();
    for _ in 0..300 {
        let proxy = Proxy::start(server).unwrap();
        let _client = client(&proxy);
        proxy.refuse();
        let refused = Instant::now();
        while proxy.connections() > 0 {
            assert!(refused.elapsed() < LIMIT, "a connection outlived it");
            thread::yield_now();
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn held_answers_hide_work_that_was_done() {
    let server = PostgresServer::shared(15);
    let database = server.create_database();
    let proxy = Proxy::to_local_port(server.port()).unwrap();
    let url = format!(
        "postgres://postgres@127.0.0.1:{}/{}",
        proxy.port(),
        database.name()
    );
    let (client, connection) = tokio_postgres::connect(&url, NoTls).await.unwrap();
    tokio::spawn(connection);
    proxy.hold_answers();
    let mut work = Box::pin(client.batch_execute("CREATE TABLE done (x int)"));
    assert!(tokio::time::timeout(NOTHING, &mut work).await.is_err());
    let asked = Instant::now();
    while database.psql("SELECT to_regclass('done') IS NOT NULL") != "t" {
        assert!(
            asked.elapsed() < LIMIT,
            "the request never reached the server"
        );
    }
    proxy.resume();
    tokio::time::timeout(LIMIT, work).await.unwrap().unwrap();
}

#[test]
fn a_stall_moves_nothing_and_loses_nothing() {
    let proxy = Proxy::start(echo_server()).unwrap();
    let mut stream = client(&proxy);
    echo(&mut stream, b"before");
    proxy.stall();
    stream.write_all(b"during").unwrap();
    stream.set_read_timeout(Some(NOTHING)).unwrap();
    let error = stream.read(&mut [0]).unwrap_err();
    assert!(
        matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut),
        "{error}"
    );
    proxy.resume();
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    let mut answer = [0; 6];
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"during");
}

#[test]
fn a_freeze_holds_old_connections_for_ever_and_passes_new_ones() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let proxy = Proxy::start(listener.local_addr().unwrap()).unwrap();
    let mut old = client(&proxy);
    let (mut old_served, _) = listener.accept().unwrap();
    proxy.freeze();
    proxy.resume();
    old.write_all(b"lost").unwrap();
    old_served.set_read_timeout(Some(NOTHING)).unwrap();
    let error = old_served.read(&mut [0]).unwrap_err();
    assert!(
        matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut),
        "{error}"
    );

    let mut new = client(&proxy);
    let (mut new_served, _) = listener.accept().unwrap();
    new.write_all(b"new").unwrap();
    new_served.read_exact(&mut [0; 3]).unwrap();

    proxy.cut();
    old.set_read_timeout(Some(LIMIT)).unwrap();
    let error = old.read(&mut [0]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
}

#[test]
fn connections_are_cut_at_bytes_before_these_arrive() {
    let proxy = Proxy::start(echo_server()).unwrap();
    let mut stream = client(&proxy);
    proxy.cut_at(b"poison");
    echo(&mut stream, b"a poi");
    echo(&mut stream, b"nt, poi");
    // Their beginning arrived already.
    stream.write_all(b"son").unwrap();
    let error = stream.read(&mut [0]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);

    echo(&mut client(&proxy), b"a point");
    proxy.resume();
    echo(&mut client(&proxy), b"poison");
}

#[test]
fn a_half_close_ends_answers_but_not_requests() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let proxy = Proxy::start(listener.local_addr().unwrap()).unwrap();
    let mut stream = client(&proxy);
    let (mut served, _) = listener.accept().unwrap();
    proxy.half_close();
    assert_eq!(stream.read(&mut [0]).unwrap(), 0, "the client sees the end");
    stream.write_all(b"still").unwrap();
    let mut request = [0; 5];
    served.read_exact(&mut request).unwrap();
    assert_eq!(&request, b"still");
}

#[test]
fn slow_doses_the_bytes() {
    let proxy = Proxy::start(echo_server()).unwrap();
    let mut stream = client(&proxy);
    proxy.slow(20_000);
    let started = Instant::now();
    // The second half waits for the first one's share of time, on each way.
    echo(&mut stream, &[7; 4_000]);
    assert!(
        started.elapsed() >= Duration::from_millis(50),
        "{:?}",
        started.elapsed()
    );
}

#[test]
fn a_dropped_proxy_closes_its_connections() {
    let proxy = Proxy::start(echo_server()).unwrap();
    let mut stream = client(&proxy);
    echo(&mut stream, b"x");
    drop(proxy);
    assert!(matches!(stream.read(&mut [0]), Ok(0) | Err(_)));
}

fn client(proxy: &Proxy) -> TcpStream {
    let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, proxy.port())).unwrap();
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    stream
}

fn echo(stream: &mut TcpStream, bytes: &[u8]) {
    stream.write_all(bytes).unwrap();
    let mut answer = vec![0; bytes.len()];
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(answer, bytes);
}

/// A server that sends back what it gets, on connections one after the other.
fn echo_server() -> SocketAddr {
    let (send, receive) = mpsc::channel();
    thread::spawn(move || {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        send.send(listener.local_addr().unwrap()).unwrap();
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut answers = stream.try_clone().unwrap();
            // A cut connection ends the copy with an error, and the next one is served.
            let _ = std::io::copy(&mut stream, &mut answers);
            let _ = stream.shutdown(Shutdown::Both);
        }
    });
    receive.recv().unwrap()
}
