//! A server that is away, silent, or none: no event is at fault, and none is lost.

use libtest_mimic::Trial;
use posthaste_engine::Cause;
use posthaste_sinks::open;
use posthaste_testkit::{
    ports::Port,
    servers::{http::WebhookServer, moto::MotoServer},
};

use super::{place::Place, trial};
use crate::{
    driving::{accept, lane, plain, send},
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
            "what_answers_there_may_be_something_else",
            what_answers_there_may_be_something_else,
        ),
    ]
}

/// This server's streams are in memory: AWS's are not.
async fn a_server_that_dies_is_away_and_comes_back() {
    let server = MotoServer::start();
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
    server.start_again();
    place.make();
    accept(&mut lane(&sink).await, &plain(30)).await;
}

/// Nothing comes back, not even a reset.
async fn a_silent_server_is_noticed() {
    let server = MotoServer::start();
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

async fn what_answers_there_may_be_something_else() {
    let nobody = Port::reserve();
    let http = WebhookServer::shared();
    for (port, expected) in [
        (nobody.number(), Cause::Connection),
        (http.port(), Cause::Misconfigured),
    ] {
        let options = "region=eu-central-1&access_key_id=a&secret_access_key=s3cret";
        let url = format!("kinesis://orders?{options}&endpoint=http://127.0.0.1:{port}");
        let sink = open(&url).unwrap();
        let error = sink.check().await.unwrap_err();
        assert_eq!(error.cause(), expected, "{error}");
        assert!(!error.to_string().contains("s3cret"), "{error}");
        let outcomes = send(&mut lane(&sink).await, &plain(1)).await;
        let (why, words) = cause(&outcomes[0]);
        assert_eq!(why, expected, "{words}");
        assert!(!words.contains("s3cret"), "{words}");
    }
}
