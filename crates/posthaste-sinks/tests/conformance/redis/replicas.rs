//! A primary with a replica: what both have, and what happens when they change places.

use libtest_mimic::Trial;
use posthaste_engine::Cause;
use posthaste_sinks::open;
use posthaste_testkit::{
    servers::redis::RedisServer,
    sink_suite::{impatient, lane_spec},
};

use super::{
    place::{Place, cause, spec},
    trial,
};
use crate::driving::{accept, lane, plain, refusal, send};

pub(super) fn trials() -> Vec<Trial> {
    vec![
        trial("replicas_are_waited_for", replicas_are_waited_for),
        trial(
            "a_primary_that_becomes_a_replica_is_left",
            a_primary_that_becomes_a_replica_is_left,
        ),
    ]
}

fn follow(replica: &RedisServer, primary: &RedisServer) {
    let port = primary.port().to_string();
    replica.client().ask(&["REPLICAOF", "127.0.0.1", &port]);
    let is_up = |info: &str| info.contains("master_link_status:up");
    replica.client().wait_until(&["INFO", "replication"], is_up);
}

async fn replicas_are_waited_for() {
    let (primary, replica) = (RedisServer::start(), RedisServer::start());
    follow(&replica, &primary);
    let place = Place::new(&primary);
    let sink = open(&format!("{}&wait=1", place.on(&primary.url()))).unwrap();
    assert_eq!(sink.check().await.unwrap().findings(), []);
    let scope = lane_spec(0).scope;
    let mut first = sink.open_lane(impatient(spec(&scope, 1, 1))).await.unwrap();
    let events = plain(20);
    accept(&mut first, &events[..10]).await;
    let on_replica = |topic| replica.client().entries(&place.stream(topic)).len();
    assert_eq!(on_replica("suite"), 10);
    replica.pause();
    for outcome in send(&mut first, &events[10..]).await {
        let (why, words) = cause(&outcome);
        assert_eq!(why, Cause::Unknown);
        assert!(words.contains("0 of the 1 replicas"), "{words}");
    }
    // The primary has them, and knows them again.
    assert_eq!(place.count("suite"), 20);
    let refused = sink.open_lane(impatient(spec(&scope, 1, 2))).await;
    assert!(refused.is_err_and(|error| error.is_retryable()));
    replica.resume();
    let mut next = sink.open_lane(spec(&scope, 1, 3)).await.unwrap();
    accept(&mut next, &events[10..]).await;
    assert_eq!((place.count("suite"), on_replica("suite")), (20, 20));
}

async fn a_primary_that_becomes_a_replica_is_left() {
    let (first, second) = (RedisServer::start(), RedisServer::start());
    follow(&second, &first);
    let place = Place::new(&first);
    let both = format!("{},127.0.0.1:{}", first.url(), second.port());
    let sink = open(&format!("{}&wait=1", place.on(&both))).unwrap();
    let scope = lane_spec(0).scope;
    let mut before = sink.open_lane(spec(&scope, 1, 1)).await.unwrap();
    let events = plain(20);
    accept(&mut before, &events[..10]).await;
    second.client().ask(&["REPLICAOF", "NO", "ONE"]);
    follow(&first, &second);
    for outcome in send(&mut before, &events[10..]).await {
        assert_eq!(cause(&outcome).0, Cause::Connection, "{outcome:?}");
    }
    let alone = open(&place.on(&first.url())).unwrap();
    for error in [alone.check().await.unwrap_err(), refusal(&alone).await] {
        let said = error.to_string();
        assert!(
            error.is_retryable() && said.contains("is a replica"),
            "{said}"
        );
    }
    sink.check().await.unwrap();
    let mut after = sink.open_lane(spec(&scope, 1, 2)).await.unwrap();
    accept(&mut after, &events).await;
    // The new primary knew the first ten.
    let there = second.client().entries(&place.stream("suite"));
    assert_eq!(there.len(), 20);
    drop(lane(&sink).await);
}
