//! The report and the findings of a check.

use libtest_mimic::Trial;
use posthaste_engine::{CheckReport, Severity};
use posthaste_sinks::open;
use posthaste_testkit::{
    servers::{moto::MotoServer, sqs::SqsServer},
    unique_name,
};

use super::{place::Place, trial};

pub(super) fn trials() -> Vec<Trial> {
    vec![
        trial("a_check_shows_the_queue", a_check_shows_the_queue),
        trial(
            "a_check_finds_what_loses_events",
            a_check_finds_what_loses_events,
        ),
    ]
}

fn fact<'r>(report: &'r CheckReport, part: &str, name: &str) -> Option<&'r str> {
    let mut parts = report.parts().iter();
    let part = parts.find(|found| found.kind == part).unwrap();
    let mut facts = part.facts.iter();
    facts
        .find(|fact| fact.name == name)
        .unwrap()
        .value
        .as_deref()
}

/// ElasticMQ tells less of a queue than moto.
async fn a_check_shows_the_queue() {
    let report = Place::new(SqsServer::shared(), ".fifo")
        .sink()
        .check()
        .await
        .unwrap();
    assert_eq!(fact(&report, "service", "region"), Some("eu-central-1"));
    assert_eq!(fact(&report, "service", "order"), Some("of each key"));
    assert_eq!(fact(&report, "queue", "messages"), Some("0"));
    assert_eq!(fact(&report, "queue", "retention_seconds"), None);
    assert!(report.findings().is_empty(), "{:?}", report.findings());
}

async fn a_check_finds_what_loses_events() {
    let server = MotoServer::shared();
    for (seconds, is_short) in [("1209600", false), ("3600", true)] {
        let name = unique_name("sink");
        let attributes = [("MessageRetentionPeriod", seconds)];
        let _ = server.client().create_queue(&name, &attributes);
        let sink = open(&format!("sqs://{name}?{}", server.options())).unwrap();
        let report = sink.check().await.unwrap();
        assert_eq!(fact(&report, "queue", "retention_seconds"), Some(seconds));
        assert_eq!(fact(&report, "queue", "encryption"), Some("sqs"));
        let findings: Vec<_> = report.findings().iter().map(|f| f.severity).collect();
        let expected: &[Severity] = if is_short { &[Severity::Risk] } else { &[] };
        assert_eq!(findings, expected);
    }
}
