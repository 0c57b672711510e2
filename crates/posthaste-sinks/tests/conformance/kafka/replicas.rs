//! Topics with replicas, of which some go away.

use std::{collections::BTreeSet, sync::Arc};

use libtest_mimic::Trial;
use posthaste_engine::{Cause, CheckReport, CheckedPart, Outcome, Severity, Sink};
use posthaste_sinks::open;
use posthaste_testkit::{
    servers::kafka::KafkaServer,
    sink_suite::{SuiteEvent, impatient, lane_spec, records},
};
use uuid::Uuid;

use super::{
    brokers::{self, consume},
    driving::{
        cause, drive, event, expect_accepted, lane, lane_with, send, sink_at, submit, transactional,
    },
    trial,
};
use crate::trial::HANG;

pub(super) fn trials() -> Vec<Trial> {
    macro_rules! trials {
        ($($test:ident),+ $(,)?) => { vec![$(trial(stringify!($test), $test)),+] };
    }
    trials![
        a_partition_without_a_leader_is_put_off_and_holds_up_no_other,
        a_partition_without_a_leader_ends_a_transactional_lane_behind_all_others,
        a_topic_with_too_few_replicas_is_put_off_and_holds_up_no_other,
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

/// A check leaves out what the cluster does not tell in time, beside a broker that has just gone.
async fn until_settings_are_told(sink: &Arc<dyn Sink>) -> CheckReport {
    tokio::time::timeout(HANG, async {
        loop {
            let report = sink.check().await.unwrap();
            let mut topics = report.parts().iter().filter(|part| part.kind == "topic");
            let is_told = |part: &CheckedPart| {
                let mut facts = part.facts.iter();
                facts.any(|fact| fact.name == "min.insync.replicas" && fact.value.is_some())
            };
            if topics.all(is_told) {
                return report;
            }
        }
    })
    .await
    .unwrap()
}

/// A check finds that these topics take nothing, for these reasons, and no others.
async fn expect_stopped(sink: &Arc<dyn Sink>, expected: &[(&str, &str)]) {
    let report = until_settings_are_told(sink).await;
    let mut topics = report.parts().iter().filter(|part| part.kind == "topic");
    assert!(topics.any(|topic| topic.name == "here" && topic.facts[0].name == "partitions"));
    let found = report.findings().iter();
    let stopped: Vec<_> = found
        .filter(|found| found.severity == Severity::Stops)
        .collect();
    assert_eq!(stopped.len(), expected.len(), "{report:?}");
    for (finding, (topic, fault)) in stopped.iter().zip(expected) {
        assert_eq!(finding.place, format!("topic `{topic}`"));
        assert!(finding.fault.contains(fault), "{finding:?}");
    }
}

/// The only broker of two topics is gone. An event under way there makes its lane late. Each topic
/// is looked up before the next lane uses it, so that the other one costs no lane.
async fn a_partition_without_a_leader_is_put_off_and_holds_up_no_other() {
    let server = KafkaServer::start();
    let gone = server.add_broker(2);
    for (topic, broker) in [("away", 2), ("away-too", 2), ("here", 1)] {
        server.create_replicated(topic, &[broker], &[("retention.ms", "-1")]);
    }
    server.create_replicated("thin", &[1, 2], &[("min.insync.replicas", "2")]);
    let sink = sink_at(&server.bootstrap());
    expect_stopped(&sink, &[]).await;
    let mut open = lane_with(&sink, impatient(lane_spec(1))).await;
    for topic in ["away", "away-too", "here"] {
        expect_accepted(&mut open, &event(topic, None, "before")).await;
    }
    gone.stop();
    server.until_leaderless("away");
    server.until_leaderless("away-too");
    let stopped = [
        ("away", "no leader"),
        ("away-too", "no leader"),
        ("thin", "min.insync.replicas=2"),
    ];
    expect_stopped(&sink, &stopped).await;
    let late = send(&mut open, &event("away", Some("k"), "late")).await;
    assert!(matches!(late, Outcome::Unavailable(_)), "{late:?}");
    open.abort().await;

    let mut open = lane(&sink).await;
    let sent = [
        event("away", Some("k"), "1"),
        event("here", Some("k"), "behind"),
        event("away-too", Some("other"), "2"),
        event("here", Some("own"), "3"),
        event("here", None, "4"),
    ];
    let outcomes = submit(&mut open, records(&sent, 0)).await;
    for (at, topic) in [(0, "away"), (2, "away-too")] {
        let Outcome::Later(why) = &outcomes[&at] else {
            panic!("{:?}", outcomes[&at]);
        };
        let named = format!("partition 0 of topic `{topic}` has no leader");
        assert!(why.reason.contains(&named), "{}", why.reason);
    }
    assert_eq!(cause(&outcomes[&1]), Cause::BehindFailure);
    for at in [3, 4] {
        let outcome = &outcomes[&at];
        assert!(matches!(outcome, Outcome::Accepted(_)), "{outcome:?}");
    }

    gone.start_again();
    tokio::time::timeout(HANG, async {
        for event in [&sent[0], &sent[2]] {
            while let Outcome::Later(_) = send(&mut open, event).await {}
        }
    })
    .await
    .unwrap();
    // The lane has gone on all the while.
    expect_accepted(&mut open, &sent[1]).await;
    let mut found = consume(&server, &["away", "away-too", "here"]);
    found.retain(|message| message.value.as_deref() != Some(b"before"));
    let found = found.into_iter().map(|message| message.value.unwrap());
    let expected = ["1", "2", "3", "4", "behind"].map(|value| value.as_bytes().to_vec());
    let sorted: BTreeSet<Vec<u8>> = found.collect();
    assert_eq!(sorted, BTreeSet::from(expected));
}

/// A transaction to such a partition could not even be aborted, and the relay begin no other one.
/// *Later* is no answer of its lane, which would forget that it took an event.
async fn a_partition_without_a_leader_ends_a_transactional_lane_behind_all_others() {
    let server = KafkaServer::start();
    let progress = [("cleanup.policy", "compact"), ("segment.bytes", "8388608")];
    server.create_replicated("away-progress", &[1], &progress);
    let gone = server.add_broker(2);
    for (topic, broker) in [("away", 2), ("here", 1)] {
        server.create_replicated(topic, &[broker], &[("retention.ms", "-1")]);
    }
    let options = transactional("away");
    let sink = open(&format!("kafka://{}{options}", server.bootstrap())).unwrap();
    gone.stop();
    server.until_leaderless("away");
    // One relay's, which takes its own fence.
    let spec = lane_spec(1);
    for round in 0..3 {
        let mut lane = lane_with(&sink, spec.clone()).await;
        lane.take_over().await.unwrap();
        let own = format!("key-{round}");
        let sent = [
            event("away", Some("k"), "1"),
            event("here", Some(&own), "2"),
            event("here", None, "3"),
        ];
        let outcomes = submit(&mut lane, records(&sent, 0)).await;
        let Outcome::Unavailable(why) = &outcomes[&0] else {
            panic!("{:?}", outcomes[&0]);
        };
        assert_eq!(why.cause, Cause::Connection);
        let named = "partition 0 of topic `away` has no leader";
        assert!(why.reason.contains(named), "{}", why.reason);
        for at in [1, 2] {
            let outcome = &outcomes[&at];
            assert!(matches!(outcome, Outcome::Accepted(_)), "{outcome:?}");
        }
        lane.abort().await;
    }
    gone.start_again();
    server.until_in_sync("away", &[2]);
    let driven = drive(&sink, &[event("away", Some("k"), "1")]).await;
    assert_eq!(driven.accepted.len(), 1);
}

/// One of two brokers is gone, and a connection to it has ended: the topic's leader answers that
/// too few replicas are in sync, and the client asks again until the lane is late.
async fn a_topic_with_too_few_replicas_is_put_off_and_holds_up_no_other() {
    let server = KafkaServer::start();
    let gone = server.add_broker(2);
    let config = [("min.insync.replicas", "2"), ("retention.ms", "-1")];
    server.create_replicated("thin", &[1, 2], &config);
    for (topic, broker) in [("here", 1), ("away", 2)] {
        server.create_replicated(topic, &[broker], &[("retention.ms", "-1")]);
    }
    let sink = sink_at(&server.bootstrap());
    let mut open = lane_with(&sink, impatient(lane_spec(1))).await;
    expect_accepted(&mut open, &event("away", None, "before")).await;
    gone.stop();
    server.until_in_sync("thin", &[1]);
    let sent = [
        event("thin", Some("k"), "1"),
        event("thin", Some("other"), "2"),
        event("here", Some("own"), "3"),
        event("here", None, "4"),
        event("here", Some("k"), "5"),
    ];
    let outcomes = submit(&mut open, records(&sent, 0)).await;
    for at in [0, 1] {
        let Outcome::Later(why) = &outcomes[&at] else {
            panic!("{:?}", outcomes[&at]);
        };
        assert!(why.reason.contains("of topic `thin`"), "{}", why.reason);
        // The first record opens the partition, and the other was not sent.
        assert_eq!(why.is_silent, at == 0);
    }
    for at in [2, 3] {
        let outcome = &outcomes[&at];
        assert!(matches!(outcome, Outcome::Accepted(_)), "{outcome:?}");
    }
    assert_eq!(cause(&outcomes[&4]), Cause::BehindFailure);

    gone.start_again();
    server.until_in_sync("thin", &[1, 2]);
    // The lane has gone on.
    for event in [&sent[0], &sent[1], &sent[4]] {
        expect_accepted(&mut open, event).await;
    }
    let found = consume(&server, &["thin", "here"]);
    let found: Vec<_> = found.iter().map(|m| brokers::read(m).id).collect();
    assert_eq!(found.len(), sent.len(), "nothing comes twice");
    assert_eq!(BTreeSet::from_iter(found), ids(&sent));
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
    let mut open = lane_with(&sink, impatient(lane_spec(1))).await;
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
