//! Faults at the keys in which the sink keeps its own data: no event and no stream is to blame.

use libtest_mimic::Trial;
use posthaste_engine::{Cause, SinkError};
use posthaste_sinks::open;
use posthaste_testkit::{servers::redis::RedisServer, sink_suite::lane_spec};

use super::{
    outcomes::{RIGHTS, set_user},
    place::{Place, cause, put_off, spec},
    trial,
};
use crate::driving::{accept, lane, plain, refusal, send};

pub(super) fn trials() -> Vec<Trial> {
    vec![
        trial(
            "another_value_at_the_lanes_key_is_no_streams_fault",
            another_value_at_the_lanes_key_is_no_streams_fault,
        ),
        trial(
            "another_value_at_the_ids_key_is_named",
            another_value_at_the_ids_key_is_named,
        ),
        trial(
            "forbidden_own_keys_are_no_events_fault",
            forbidden_own_keys_are_no_events_fault,
        ),
    ]
}

/// The sink's own keys of a place with one stream: the lanes, and the ids.
fn own_keys(place: &Place<'_>) -> (String, String) {
    let keys = place.keys();
    let own: Vec<_> = keys
        .iter()
        .filter(|key| key.starts_with("posthaste:"))
        .collect();
    let [lanes, ids] = &own[..] else {
        panic!("{keys:?}");
    };
    ((*lanes).clone(), (*ids).clone())
}

/// A place whose own keys have its name too, and its address.
fn hashed(server: &RedisServer) -> (Place<'_>, String) {
    let place = Place::new(server);
    let url = format!("{}?stream={}", server.url(), place.name);
    (place, url)
}

/// It was blamed on the stream, whose events were put off.
async fn another_value_at_the_lanes_key_is_no_streams_fault() {
    let server = RedisServer::shared();
    let (place, url) = hashed(server);
    let sink = open(&url).unwrap();
    let scope = lane_spec(0).scope;
    let mut flight = sink.open_lane(spec(&scope, 1, 1)).await.unwrap();
    accept(&mut flight, &plain(3)).await;
    let (lanes, _) = own_keys(&place);
    let mut client = server.client();
    client.ask(&["SET", &lanes, "text"]);
    let named = format!("in the key `{lanes}`: remove");
    for (at, outcome) in send(&mut flight, &plain(3)).await.iter().enumerate() {
        let (why, words) = cause(outcome);
        assert_eq!(why, Cause::Misconfigured, "{at}: {words}");
        assert!(words.contains(&named), "{words}");
    }
    let error = sink.open_lane(spec(&scope, 1, 2)).await.err().unwrap();
    assert!(matches!(error, SinkError::Misconfigured { .. }), "{error}");
    assert!(error.to_string().contains(&named), "{error}");
    client.ask(&["DEL", &lanes]);
    let mut next = sink.open_lane(spec(&scope, 1, 3)).await.unwrap();
    accept(&mut next, &plain(3)).await;
    assert_eq!(place.count(""), 6);
}

async fn another_value_at_the_ids_key_is_named() {
    let server = RedisServer::shared();
    let (place, url) = hashed(server);
    let mut lane = lane(&open(&url).unwrap()).await;
    accept(&mut lane, &plain(3)).await;
    let (_, ids) = own_keys(&place);
    let mut client = server.client();
    client.ask(&["SET", &ids, "text"]);
    let events = plain(3);
    for outcome in send(&mut lane, &events).await {
        let words = put_off(&outcome);
        let named = format!("in the key `{ids}`: remove");
        assert!(words.contains(&named), "{words}");
    }
    client.ask(&["DEL", &ids]);
    accept(&mut lane, &events).await;
    assert_eq!(place.count(""), 6);
}

/// Every event was rejected, and so parked, while the destination took none.
async fn forbidden_own_keys_are_no_events_fault() {
    let server = RedisServer::start();
    let place = Place::new(&server);
    set_user(&server, "relay", &["~*"], &RIGHTS);
    let sink = open(&place.on(&server.url_of("relay:p%3Aw"))).unwrap();
    let mut lane = lane(&sink).await;
    accept(&mut lane, &plain(3)).await;
    let streams = format!("~{}:*", place.name);
    server
        .client()
        .ask(&["ACL", "SETUSER", "relay", "resetkeys", &streams]);
    for outcome in send(&mut lane, &plain(3)).await {
        let (why, words) = cause(&outcome);
        assert_eq!(why, Cause::Denied, "{words}");
        assert!(words.contains("begin with `posthaste:`"), "{words}");
    }
    let error = refusal(&sink).await;
    assert!(matches!(error, SinkError::Denied { .. }), "{error}");
    assert_eq!(place.count("suite"), 3);
}
