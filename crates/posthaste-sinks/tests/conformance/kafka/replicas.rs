//! Topics with replicas, of which some go away.

use std::collections::BTreeSet;

use libtest_mimic::Trial;
use posthaste_engine::{Cause, Outcome};
use posthaste_testkit::{
    servers::kafka::KafkaServer,
    sink_suite::{SuiteEvent, records},
};
use uuid::Uuid;

use super::{
    brokers::{self, consume},
    driving::{cause, drive, event, expect_accepted, lane, sink_at, submit},
    trial,
};

pub(super) fn trials() -> Vec<Trial> {
    macro_rules! trials {
        ($($test:ident),+ $(,)?) => { vec![$(trial(stringify!($test), $test)),+] };
    }
    trials![
        too_few_replicas_are_unavailable_and_delivery_resumes,
        an_unclean_election_loses_what_one_replica_had_and_wedges_nothing,
    ]
}

fn events(topic: &str, part: &str) -> Vec<SuiteEvent> {
    let key = |n: usize| format!("key-{}", n % 5);
    (0..50)
        .map(|n| event(topic, Some(&key(n)), format!("{part}-{n}")))
        .collect()
}

fn ids(events: &[SuiteEvent]) -> BTreeSet<Uuid> {
    events.iter().map(|event| event.id).collect()
}

/// `min.insync.replicas=2`, and one of two brokers gone.
async fn too_few_replicas_are_unavailable_and_delivery_resumes() {
    let server = KafkaServer::start();
    let [_kept, gone] = [2, 3].map(|node| server.add_broker(node));
    let config = [("min.insync.replicas", "2"), ("retention.ms", "-1")];
    server.create_replicated("both", &[2, 3], &config);
    // On the node that stays.
    server.create_replicated("other", &[1], &[("retention.ms", "-1")]);
    let sink = sink_at(&server.bootstrap());
    let sent = events("both", "1");
    assert_eq!(drive(&sink, &sent).await.accepted.len(), sent.len());

    gone.stop();
    server.until_in_sync("both", &[2]);
    let mut open = lane(&sink).await;
    expect_accepted(&mut open, &event("other", Some("k"), "x")).await;
    let waiting = events("both", "2");
    for outcome in submit(&mut open, records(&waiting, 0)).await.values() {
        let is_late = matches!(cause(outcome), Cause::Unknown | Cause::LaneEnded);
        assert!(is_late, "{outcome:?}");
    }
    open.abort().await;
    // Events that were sent in vain stand nowhere.
    assert_eq!(consume(&server, &["both"]).len(), sent.len());

    gone.start_again();
    server.until_in_sync("both", &[2, 3]);
    let driven = drive(&sink, &waiting).await;
    assert_eq!(driven.accepted, ids(&waiting));
    let found = consume(&server, &["both"]);
    let found: BTreeSet<Uuid> = found.iter().map(|m| brokers::read(m).id).collect();
    assert_eq!(found, &ids(&sent) | &ids(&waiting));
}

/// The one replica that had an event is gone, and another is allowed to lead: Kafka loses what it
/// had acknowledged. `min.insync.replicas=2` is what keeps it.
async fn an_unclean_election_loses_what_one_replica_had_and_wedges_nothing() {
    let server = KafkaServer::start();
    let [first, second] = [2, 3].map(|node| server.add_broker(node));
    let config = [
        ("min.insync.replicas", "1"),
        ("unclean.leader.election.enable", "true"),
        ("retention.ms", "-1"),
    ];
    server.create_replicated("t", &[2, 3], &config);
    let sink = sink_at(&server.bootstrap());
    let [both, one, later] = ["both", "one", "later"].map(|part| events("t", part));
    let mut open = lane(&sink).await;
    for outcome in submit(&mut open, records(&both, 0)).await.values() {
        assert!(matches!(outcome, Outcome::Accepted(_)), "{outcome:?}");
    }
    second.kill9();
    server.until_in_sync("t", &[2]);
    for outcome in submit(&mut open, records(&one, 0)).await.values() {
        assert!(matches!(outcome, Outcome::Accepted(_)), "{outcome:?}");
    }
    first.kill9();
    second.start_again();
    server.until_in_sync("t", &[3]);
    // On the lane that had sent what is lost: its sequence does not fit any more.
    submit(&mut open, records(&later, 0)).await;
    open.abort().await;
    assert_eq!(drive(&sink, &later).await.accepted.len(), later.len());
    first.start_again();
    server.until_in_sync("t", &[2, 3]);
    let found: BTreeSet<Uuid> = consume(&server, &["t"])
        .iter()
        .map(|message| brokers::read(message).id)
        .collect();
    assert_eq!(found, &ids(&both) | &ids(&later));
}
