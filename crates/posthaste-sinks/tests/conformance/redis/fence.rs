//! A lane adds nothing once a newer one owns a part of what it owned.

use std::sync::Arc;

use libtest_mimic::Trial;
use posthaste_engine::{Cause, Lane, LaneSpec, Partitions, Sink};
use posthaste_testkit::{
    proxy::Proxy,
    servers::redis::RedisServer,
    sink_suite::{lane_spec, records},
};

use super::{
    place::{Place, cause, other_owner, spec},
    trial,
};
use crate::driving::{accept, plain, send};

pub(super) fn trials() -> Vec<Trial> {
    vec![
        trial("an_older_lane_adds_nothing", an_older_lane_adds_nothing),
        trial(
            "late_bytes_of_an_aborted_lane_add_nothing",
            late_bytes_of_an_aborted_lane_add_nothing,
        ),
        trial(
            "lanes_of_other_partitions_go_on",
            lanes_of_other_partitions_go_on,
        ),
        trial(
            "a_recovered_database_needs_no_hand",
            a_recovered_database_needs_no_hand,
        ),
        trial("a_lost_fence_ends_its_lane", a_lost_fence_ends_its_lane),
    ]
}

async fn open(sink: &Arc<dyn Sink>, spec: LaneSpec) -> Box<dyn Lane> {
    sink.open_lane(spec).await.unwrap()
}

async fn expect_fenced(lane: &mut Box<dyn Lane>) {
    for outcome in send(lane, &plain(3)).await {
        let (why, words) = cause(&outcome);
        assert_eq!(why, Cause::LaneEnded, "{words}");
        assert!(words.contains("a newer lane"), "{words}");
    }
}

async fn an_older_lane_adds_nothing() {
    let place = Place::new(RedisServer::shared());
    let sink = place.sink();
    let scope = lane_spec(0).scope;
    let mut old = open(&sink, spec(&scope, 1, 1)).await;
    accept(&mut old, &plain(3)).await;
    let other = other_owner(&scope, scope.partitions.clone());
    let mut new = open(&sink, spec(&other, 2, 1)).await;
    expect_fenced(&mut old).await;
    assert_eq!(place.count("suite"), 3);
    accept(&mut new, &plain(3)).await;
    // Of one relay too.
    let mut newer = open(&sink, spec(&other, 2, 2)).await;
    expect_fenced(&mut new).await;
    accept(&mut newer, &plain(3)).await;
    assert_eq!(place.count("suite"), 9);
}

/// A script that is under way when its lane is aborted runs after the next lane's, or not at all.
async fn late_bytes_of_an_aborted_lane_add_nothing() {
    let server = RedisServer::shared();
    let place = Place::new(server);
    let proxy = Proxy::to_local_port(server.port()).unwrap();
    let slow = posthaste_sinks::open(&place.on(&server.url_through(&proxy))).unwrap();
    let scope = lane_spec(0).scope;
    let mut old = open(&slow, spec(&scope, 1, 1)).await;
    accept(&mut old, &plain(1)).await;
    proxy.stall();
    old.submit(records(&plain(100), 0)).await;
    let waiting = tokio::time::timeout(std::time::Duration::from_millis(200), old.outcomes());
    assert!(waiting.await.is_err());
    old.abort().await;
    let mut new = open(&place.sink(), spec(&scope, 1, 2)).await;
    proxy.resume();
    while proxy.connections() > 0 {
        tokio::task::yield_now().await;
    }
    accept(&mut new, &plain(1)).await;
    assert_eq!(place.count("suite"), 2);
}

async fn lanes_of_other_partitions_go_on() {
    let place = Place::new(RedisServer::shared());
    let sink = place.sink();
    let some = |count, of: &[u16]| {
        let mut some = Partitions::none_of(count).unwrap();
        assert!(of.iter().all(|&partition| some.insert(partition)));
        some
    };
    let whole = lane_spec(0).scope;
    let [first, second] = [some(4, &[0, 1]), some(4, &[2, 3])].map(|of| other_owner(&whole, of));
    let mut one = open(&sink, spec(&first, 5, 1)).await;
    let mut two = open(&sink, spec(&second, 2, 7)).await;
    accept(&mut one, &plain(3)).await;
    accept(&mut two, &plain(3)).await;
    // The destination was cut anew: of 16 partitions the fourth is a part of the first one's.
    let third = other_owner(&whole, some(16, &[3]));
    let mut three = open(&sink, spec(&third, 6, 1)).await;
    expect_fenced(&mut one).await;
    accept(&mut two, &plain(3)).await;
    accept(&mut three, &plain(3)).await;
    assert_eq!(place.count("suite"), 12);
}

/// Epochs begin again where the database was recovered to an earlier point. Its relays go on: what
/// opens a lane confirms its lease in the database before it sends.
async fn a_recovered_database_needs_no_hand() {
    let place = Place::new(RedisServer::shared());
    let sink = place.sink();
    let scope = lane_spec(0).scope;
    let mut before = open(&sink, spec(&scope, 50, 9)).await;
    accept(&mut before, &plain(3)).await;
    let after = other_owner(&scope, scope.partitions.clone());
    let mut after = open(&sink, spec(&after, 3, 1)).await;
    expect_fenced(&mut before).await;
    accept(&mut after, &plain(3)).await;
}

/// It was removed, or a replica that had not got it became the primary.
async fn a_lost_fence_ends_its_lane() {
    let server = RedisServer::shared();
    let place = Place::new(server);
    let sink = posthaste_sinks::open(&format!("{}?stream={}", server.url(), place.name)).unwrap();
    let scope = lane_spec(0).scope;
    let mut lane = open(&sink, spec(&scope, 1, 1)).await;
    accept(&mut lane, &plain(3)).await;
    for key in place.keys() {
        server.client().ask(&["DEL", &key]);
    }
    for outcome in send(&mut lane, &plain(3)).await {
        let (why, words) = cause(&outcome);
        assert_eq!(why, Cause::LaneEnded, "{words}");
        assert!(words.contains("has lost the key `posthaste:"), "{words}");
    }
    let mut next = open(&sink, spec(&scope, 1, 2)).await;
    accept(&mut next, &plain(3)).await;
    assert_eq!(place.count(""), 3);
}
