//! A cluster of two: streams of one slot are found wherever they are, and others are refused.

use libtest_mimic::Trial;
use posthaste_engine::{Cause, SinkError};
use posthaste_sinks::open;
use posthaste_testkit::{ports::Port, servers::redis::RedisServer, unique_name};

use super::{place::cause, trial};
use crate::driving::{accept, lane, plain, send};

pub(super) fn trials() -> Vec<Trial> {
    vec![trial(
        "a_cluster_has_streams_of_one_slot",
        a_cluster_has_streams_of_one_slot,
    )]
}

fn cluster(buses: &[Port; 2]) -> [RedisServer; 2] {
    let servers = buses.each_ref().map(|bus| {
        let bus = format!("cluster-port {}", bus.number());
        RedisServer::start_with(&["cluster-enabled yes", &bus])
    });
    for (server, slots) in servers.iter().zip([("0", "8191"), ("8192", "16383")]) {
        server
            .client()
            .ask(&["CLUSTER", "ADDSLOTSRANGE", slots.0, slots.1]);
    }
    let (port, bus) = (servers[1].port().to_string(), buses[1].number().to_string());
    servers[0]
        .client()
        .ask(&["CLUSTER", "MEET", "127.0.0.1", &port, &bus]);
    for server in &servers {
        server.client().wait_until(&["CLUSTER", "INFO"], |info| {
            info.contains("cluster_state:ok") && info.contains("cluster_size:2")
        });
    }
    servers
}

async fn a_cluster_has_streams_of_one_slot() {
    let buses = [Port::reserve(), Port::reserve()];
    let servers = cluster(&buses);
    let slot = |tag: &str| servers[0].client().number(&["CLUSTER", "KEYSLOT", tag]);
    // One tag for each server.
    let mut tags = [const { None }; 2];
    while tags.contains(&None) {
        let tag = unique_name("tag");
        let owner = usize::from(slot(&tag) > 8_191);
        tags[owner] = Some(tag);
    }
    for (tag, owner) in tags.into_iter().flatten().zip(&servers) {
        for server in &servers {
            let url = format!("{}?stream={{{{{tag}}}}}:{{topic}}", server.url());
            let sink = open(&url).unwrap();
            assert_eq!(sink.check().await.unwrap().findings(), []);
            let mut events = plain(20);
            for (at, event) in events.iter_mut().enumerate() {
                event.topic = format!("t{}", at % 4);
            }
            accept(&mut lane(&sink).await, &events).await;
            let entries = owner.client().entries(&format!("{{{tag}}}:t3"));
            assert_eq!(entries.len() % 5, 0);
            assert!(!entries.is_empty());
        }
    }
    let sink = open(&servers[0].url()).unwrap();
    let error = sink.check().await.unwrap_err();
    assert!(matches!(error, SinkError::Misconfigured { .. }), "{error}");
    assert!(error.to_string().contains("a hash tag"), "{error}");
    for outcome in send(&mut lane(&sink).await, &plain(1)).await {
        let (why, words) = cause(&outcome);
        assert_eq!(why, Cause::Misconfigured, "{words}");
        assert!(words.contains("a hash tag"), "{words}");
    }
}
