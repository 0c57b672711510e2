//! The report and the findings of a check.

use libtest_mimic::Trial;
use posthaste_engine::{CheckReport, Severity};
use posthaste_sinks::open;
use posthaste_testkit::{servers::moto::MotoServer, unique_name};
use serde_json::json;

use super::{place::Place, trial};

pub(super) fn trials() -> Vec<Trial> {
    vec![
        trial("a_check_shows_the_stream", a_check_shows_the_stream),
        trial(
            "a_check_finds_what_loses_events",
            a_check_finds_what_loses_events,
        ),
    ]
}

fn facts(report: &CheckReport, part: &str) -> Vec<(&'static str, Option<String>)> {
    let mut parts = report.parts().iter();
    let part = parts.find(|found| found.kind == part).unwrap();
    let facts = part.facts.iter();
    facts.map(|fact| (fact.name, fact.value.clone())).collect()
}

/// moto does not tell how large a record may be.
async fn a_check_shows_the_stream() {
    let place = Place::new(MotoServer::shared());
    let question = json!({ "StreamName": place.name, "RetentionPeriodHours": 168 });
    let raise = "IncreaseStreamRetentionPeriod";
    let _ = place.server.expect_kinesis(raise, &question);
    let report = place.sink().check().await.unwrap();
    let some = |text: &str| Some(text.to_owned());
    assert_eq!(
        facts(&report, "stream"),
        [
            ("status", some("ACTIVE")),
            ("mode", some("PROVISIONED")),
            ("shards", some("2")),
            ("retention_hours", some("168")),
            ("maximum_record_bytes", None),
            ("encryption", some("NONE")),
        ]
    );
    assert!(report.findings().is_empty(), "{:?}", report.findings());
    let service = facts(&report, "service");
    assert_eq!(service[0], ("region", some("eu-central-1")));
    assert!(place.records().is_empty());
}

async fn a_check_finds_what_loses_events() {
    let server = MotoServer::shared();
    let report = Place::new(server).sink().check().await.unwrap();
    let findings: Vec<_> = report.findings().iter().map(|f| f.severity).collect();
    assert_eq!(findings, [Severity::Risk]);
    // Each topic has a stream.
    let name = unique_name("sink");
    let sink = open(&format!("kinesis://{name}.{{topic}}?{}", server.options()));
    let report = sink.unwrap().check().await.unwrap();
    assert!(report.findings().is_empty());
    assert!(report.parts().iter().all(|part| part.kind == "service"));
}
