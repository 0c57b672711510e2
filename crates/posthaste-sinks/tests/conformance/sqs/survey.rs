//! What a check sees and finds.

use libtest_mimic::Trial;
use posthaste_engine::{CheckReport, Severity};
use posthaste_testkit::servers::sqs::SqsServer;

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
    facts.find(|fact| fact.name == name).unwrap().value.as_deref()
}

async fn a_check_shows_the_queue() {
    let place = Place::with(
        SqsServer::shared(),
        ".fifo",
        &[("MessageRetentionPeriod", "1209600")],
    );
    let report = place.sink().check().await.unwrap();
    assert_eq!(fact(&report, "service", "region"), Some("eu-central-1"));
    assert_eq!(fact(&report, "service", "fifo"), Some("true"));
    assert_eq!(fact(&report, "queue", "retention_seconds"), Some("1209600"));
    let severities: Vec<_> = report.findings().iter().map(|f| f.severity).collect();
    assert!(!severities.contains(&Severity::Risk), "{severities:?}");
}

async fn a_check_finds_what_loses_events() {
    let place = Place::with(
        SqsServer::shared(),
        "",
        &[("MessageRetentionPeriod", "3600")],
    );
    let report = place.sink().check().await.unwrap();
    let findings = report.findings().iter();
    let findings: Vec<_> = findings.map(|f| (f.severity, &*f.fault)).collect();
    let expected = "it deletes messages after 3600 seconds, read or not";
    assert!(findings.contains(&(Severity::Risk, expected)), "{findings:?}");
}
