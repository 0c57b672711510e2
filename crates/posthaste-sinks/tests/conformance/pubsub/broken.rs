//! A server that is away, silent, or none: no event is at fault, and none is lost.

use libtest_mimic::Trial;
use posthaste_engine::Cause;
use posthaste_sinks::open;
use posthaste_testkit::{
    ports::Port,
    proxy::Proxy,
    servers::pubsub::{PROJECT, PubSubServer},
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpListener,
};

use super::{place::Place, trial};
use crate::{
    driving::{accept, lane, plain, refusal, send},
    outcome::{cause, short},
};

pub(super) fn trials() -> Vec<Trial> {
    vec![
        trial(
            "a_server_that_dies_is_away_and_comes_back",
            a_server_that_dies_is_away_and_comes_back,
        ),
        trial("a_silent_server_is_noticed", a_silent_server_is_noticed),
        trial(
            "a_connection_that_was_closed_meanwhile_is_made_again",
            a_connection_that_was_closed_meanwhile_is_made_again,
        ),
        trial(
            "what_answers_there_may_be_something_else",
            what_answers_there_may_be_something_else,
        ),
    ]
}

/// This server's topics are in memory: Google's are not.
async fn a_server_that_dies_is_away_and_comes_back() {
    let server = PubSubServer::start();
    let place = Place::new(&server);
    let sink = place.sink();
    let mut flight = lane(&sink).await;
    accept(&mut flight, &plain(30)).await;
    server.kill9();
    for outcome in send(&mut flight, &plain(30)).await {
        let (why, words) = cause(&outcome);
        assert!(
            [Cause::Connection, Cause::LaneEnded].contains(&why),
            "{words}"
        );
    }
    assert_eq!(sink.check().await.unwrap_err().cause(), Cause::Connection);
    assert_eq!(refusal(&sink).await.cause(), Cause::Connection);
    server.start_again();
    place.make();
    accept(&mut lane(&sink).await, &plain(30)).await;
}

/// Nothing comes back, not even a reset.
async fn a_silent_server_is_noticed() {
    let server = PubSubServer::start();
    let place = Place::new(&server);
    let sink = place.sink();
    let mut flight = sink.open_lane(short(1)).await.unwrap();
    accept(&mut flight, &plain(3)).await;
    server.pause();
    for outcome in send(&mut flight, &plain(3)).await {
        let (why, words) = cause(&outcome);
        assert_eq!(why, Cause::Unknown, "{words}");
        assert!(words.contains("within 900ms"), "{words}");
    }
    server.resume();
    let mut next = lane(&sink).await;
    accept(&mut next, &plain(3)).await;
}

/// Servers close idle connections, and some break them.
async fn a_connection_that_was_closed_meanwhile_is_made_again() {
    let server = PubSubServer::shared();
    let place = Place::new(server);
    let proxy = Proxy::to_local_port(server.port()).unwrap();
    let sink = place.sink_at(&server.options_through(&proxy));
    let mut flight = lane(&sink).await;
    for _ in 0..3 {
        accept(&mut flight, &plain(3)).await;
        proxy.cut();
    }
    assert_eq!(place.events().len(), 9);
}

/// Answers whatever comes as a server of HTTP/1.1 does, and reads to the end.
async fn serve_http(listener: TcpListener) {
    while let Ok((mut stream, _)) = listener.accept().await {
        let answer = b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n";
        let mut rest = Vec::new();
        let _ = stream.write_all(answer).await;
        let _ = stream.read_to_end(&mut rest).await;
    }
}

async fn what_answers_there_may_be_something_else() {
    let nobody = Port::reserve();
    let http = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = http.local_addr().unwrap().port();
    let http = tokio::spawn(serve_http(http));
    for (port, expected) in [
        (nobody.number(), Cause::Connection),
        (port, Cause::Misconfigured),
    ] {
        let url = format!("pubsub://{PROJECT}/orders?endpoint=http://127.0.0.1:{port}");
        let sink = open(&url).unwrap();
        let error = sink.check().await.unwrap_err();
        assert_eq!(error.cause(), expected, "{error}");
        let told = match sink.open_lane(short(1)).await {
            Err(error) => error.cause(),
            Ok(mut flight) => {
                let outcomes = send(&mut flight, &plain(1)).await;
                let (why, words) = cause(&outcomes[0]);
                assert!(words.contains("correct `endpoint`"), "{words}");
                why
            }
        };
        assert_eq!(told, expected);
    }
    http.abort();
}
