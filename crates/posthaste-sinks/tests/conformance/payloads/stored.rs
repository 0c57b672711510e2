//! Payloads in object storage: what happens while that is slow, away, or refuses.

use std::{sync::Arc, time::Duration};

use libtest_mimic::Trial;
use posthaste_engine::{Lane, LaneSpec, Outcome, RejectionKind, Sink};
use posthaste_sinks::{Compression, PayloadSettings, around, open};
use posthaste_testkit::{
    servers::moto::MotoServer,
    sink_suite::{Expected, Fixture, Row, SuiteEvent, lane_spec, poll_once, records},
    tls::TestCa,
    unique_name,
};

use super::{
    providers::{Bucket, Provider},
    unpacked::{Objects, Unpacked},
};
use crate::driving::{accept, accepted, send, settle};

/// Larger payloads are stored in the suite.
const STORED_FROM: usize = 20;

/// The promises of the sink count for its decorator, but for the size of payloads: none is refused.
pub(super) fn named(name: &'static str, expected: Expected) -> Expected {
    Expected {
        rejects: None,
        ..super::named(name, expected)
    }
}

/// The sink of the first of these rows, whose payloads lie there.
pub(super) fn fixture(rows: fn() -> Vec<Row>, objects: Objects) -> Box<dyn Fixture> {
    Box::new(Unpacked {
        inner: (rows()[0].fixture)(),
        settings: PayloadSettings {
            compression: Some(Compression::Zstd),
            claim_check: objects.url(),
            claim_check_bytes: Some(STORED_FROM),
            ..PayloadSettings::default()
        },
        objects,
    })
}

pub(super) fn trials() -> Vec<Trial> {
    vec![
        trial(
            "slow_storage_holds_up_its_events_alone",
            slow_storage_holds_up_its_events_alone,
        ),
        trial(
            "an_event_is_put_off_until_its_payload_is_stored",
            an_event_is_put_off_until_its_payload_is_stored,
        ),
        trial(
            "storage_that_refuses_an_object_refuses_its_event",
            storage_that_refuses_an_object_refuses_its_event,
        ),
        trial(
            "storage_has_to_show_a_certificate_that_is_trusted",
            storage_has_to_show_a_certificate_that_is_trusted,
        ),
        trial(
            "an_aborted_lane_stores_nothing_more",
            an_aborted_lane_stores_nothing_more,
        ),
        trial(
            "a_folder_that_is_away_puts_its_events_off",
            a_folder_that_is_away_puts_its_events_off,
        ),
        trial(
            "a_check_tells_of_the_right_to_write",
            a_check_tells_of_the_right_to_write,
        ),
        trial(
            "a_check_trusts_no_404_without_a_code",
            a_check_trusts_no_404_without_a_code,
        ),
        trial(
            "large_and_small_payloads_do_not_wait_for_each_other",
            large_and_small_payloads_do_not_wait_for_each_other,
        ),
    ]
}

pub(super) fn trial<F: Future<Output = ()> + 'static>(
    name: &str,
    test: impl FnOnce() -> F + Send + 'static,
) -> Trial {
    crate::trial::trial(
        format!("claim-check::{name}"),
        crate::trial::beside_blocking_calls,
        test,
    )
}

/// A sink that keeps nothing, with a bucket for payloads of more than a hundred bytes.
pub(super) struct Place {
    pub(super) bucket: Bucket,
    pub(super) sink: Arc<dyn Sink>,
}

impl Place {
    fn new() -> Self {
        Self::of(Provider::S3)
    }

    pub(super) fn of(provider: Provider) -> Self {
        let bucket = Bucket::new(provider);
        let sink = sink(&bucket.url());
        Self { bucket, sink }
    }

    pub(super) async fn lane(&self) -> Box<dyn Lane> {
        self.lane_of(lane_spec(1).publish_timeout).await
    }

    /// A lane that has to answer within this time.
    async fn lane_of(&self, publish_timeout: Duration) -> Box<dyn Lane> {
        let spec = LaneSpec {
            publish_timeout,
            ..lane_spec(1)
        };
        self.sink.open_lane(spec).await.unwrap()
    }

    fn objects(&self) -> Vec<String> {
        self.bucket.objects()
    }
}

pub(super) fn sink(url: &str) -> Arc<dyn Sink> {
    let settings = PayloadSettings {
        claim_check: Some(url.to_owned()),
        claim_check_bytes: Some(100),
        ..PayloadSettings::default()
    };
    around(open("null:").unwrap(), &settings).unwrap()
}

/// An event whose payload is stored, and a text that only its object has.
pub(super) fn large(key: &str) -> (SuiteEvent, String) {
    let mark = unique_name("mark");
    (SuiteEvent::new(Some(key), mark.repeat(100)), mark)
}

pub(super) fn put_off(outcome: &Outcome) -> &str {
    match outcome {
        Outcome::Later(why) => &why.reason,
        other => panic!("{other:?}"),
    }
}

async fn slow_storage_holds_up_its_events_alone() {
    let (server, place) = (MotoServer::shared(), Place::new());
    let (slow, mark) = large("a");
    server.fail(&mark, "act=silent");
    let mut lane = place.lane_of(Duration::from_secs(3600)).await;
    let (other, _) = large("b");
    let events = [
        slow,
        SuiteEvent::new(Some("a"), "behind it"),
        other,
        SuiteEvent::new(Some("c"), "small"),
        SuiteEvent::new(None, "small"),
    ];
    lane.submit(records(&events, 0)).await;
    let mut told = Vec::new();
    while told.len() < 3 {
        told.extend(lane.outcomes().await);
    }
    let mut tickets: Vec<_> = told.iter().map(|verdict| verdict.ticket).collect();
    tickets.sort_unstable();
    assert_eq!(tickets, [2, 3, 4]);
    assert!(poll_once(lane.outcomes()).await.is_none());
    // Payloads that are still being stored are given up with the lane.
    for verdict in lane.close(Duration::ZERO).await {
        assert!(matches!(verdict.outcome, Outcome::Unavailable(_)));
        told.push(verdict);
    }
    assert_eq!(told.len(), events.len());
    server.heal(&mark);
}

async fn an_event_is_put_off_until_its_payload_is_stored() {
    let place = Place::new();
    let events: Vec<_> = (0..3).map(|key| large(&key.to_string()).0).collect();
    // Nothing is stored in no time.
    let mut lane = place.lane_of(Duration::ZERO).await;
    for outcome in send(&mut lane, &events).await {
        let words = put_off(&outcome);
        assert!(words.contains("bytes is still being stored"), "{words}");
    }
    while place.objects().len() < events.len() {
        assert!(poll_once(lane.outcomes()).await.is_none());
        tokio::task::yield_now().await;
    }
    loop {
        let outcomes = send(&mut lane, &events).await;
        if outcomes.iter().all(accepted) {
            break;
        }
        assert!(poll_once(lane.outcomes()).await.is_none());
    }
    assert_eq!(place.objects().len(), events.len());
}

async fn storage_that_refuses_an_object_refuses_its_event() {
    let (server, place) = (MotoServer::shared(), Place::new());
    let mut lane = place.lane().await;
    for (fault, kind, said) in [
        (
            "status=403&body=<Error><Code>AccessDenied</Code></Error>",
            RejectionKind::Denied,
            "answered AccessDenied; give the credentials of the relay the right",
        ),
        (
            "status=400&body=<Error><Code>EntityTooLarge</Code></Error>",
            RejectionKind::TooLarge,
            "answered EntityTooLarge",
        ),
        ("status=413", RejectionKind::TooLarge, "with status 413"),
    ] {
        let (event, mark) = large("a");
        server.fail(&mark, fault);
        let good = large("b").0;
        let outcomes = send(&mut lane, &[event, good]).await;
        match &outcomes[0] {
            Outcome::Rejected(why) => {
                assert_eq!(why.kind, kind);
                assert!(why.reason.contains(said), "{}", why.reason);
            }
            other => panic!("{fault}: {other:?}"),
        }
        assert!(accepted(&outcomes[1]));
        server.heal(&mark);
    }
    for (fault, said) in [
        ("status=503", "with status 503; bring it back"),
        (
            "status=403&body=<Error><Code>SignatureDoesNotMatch</Code><Key>SECRET</Key></Error>",
            "answered SignatureDoesNotMatch; correct the credentials",
        ),
        ("act=cut", "the connection broke"),
    ] {
        let (event, mark) = large("a");
        server.fail(&mark, fault);
        let outcomes = send(&mut lane, &[event]).await;
        let words = put_off(&outcomes[0]);
        assert!(words.contains(said), "{words}");
        assert!(!words.contains("SECRET"), "{words}");
        server.heal(&mark);
    }
}

async fn storage_has_to_show_a_certificate_that_is_trusted() {
    let authority = TestCa::new();
    let server = MotoServer::start_tls(&authority.server_certificate(&["localhost"]));
    let bucket = unique_name("bucket");
    server.create_bucket(&bucket);
    let url = format!("s3://{bucket}?{}", server.options());
    let trusting = sink(&format!(
        "{url}&ca_file={}",
        authority.certificate_file().display()
    ));
    assert!(trusting.check().await.unwrap().findings().is_empty());
    let mut lane = trusting.open_lane(lane_spec(1)).await.unwrap();
    accept(&mut lane, &[large("a").0]).await;
    assert_eq!(server.objects(&bucket).len(), 1);

    let doubtful = sink(&url);
    let report = doubtful.check().await.unwrap();
    let fault = &report.findings()[0].fault;
    assert!(fault.contains("certificate"), "{fault}");
    let mut lane = doubtful.open_lane(lane_spec(1)).await.unwrap();
    let outcomes = send(&mut lane, &[large("b").0]).await;
    assert!(put_off(&outcomes[0]).contains("`ca_file`"));
}

async fn an_aborted_lane_stores_nothing_more() {
    let (server, place) = (MotoServer::shared(), Place::new());
    let (slow, mark) = large("a");
    server.fail(&mark, "act=silent");
    let mut lane = place.lane().await;
    lane.submit(records(std::slice::from_ref(&slow), 0)).await;
    assert!(poll_once(lane.outcomes()).await.is_none());
    // A request that the server has not read yet would be done after all.
    server.until_held(&mark, 1);
    lane.abort().await;
    let mut lane = place.lane().await;
    lane.submit(records(&[slow], 0)).await;
    assert!(poll_once(lane.outcomes()).await.is_none());
    server.until_held(&mark, 2);
    let verdicts = lane.close(Duration::from_millis(10)).await;
    assert!(matches!(verdicts[0].outcome, Outcome::Unavailable(_)));
    server.heal(&mark);
    let mut lane = place.lane().await;
    accept(&mut lane, &[large("b").0]).await;
    assert_eq!(place.objects().len(), 1);
}

async fn a_folder_that_is_away_puts_its_events_off() {
    let objects = Objects::folder();
    let sink = sink(&objects.url().unwrap());
    drop(objects);
    let mut lane = sink.open_lane(lane_spec(1)).await.unwrap();
    let events = [large("a").0, SuiteEvent::new(Some("b"), "small")];
    let outcomes = send(&mut lane, &events).await;
    let words = put_off(&outcomes[0]);
    assert!(words.contains("No such file"), "{words}");
    assert!(accepted(&outcomes[1]));
}

async fn a_check_tells_of_the_right_to_write() {
    let server = MotoServer::start();
    server.create_bucket("denied");
    let denied = sink(&format!("s3://denied?{}", server.options()));
    // In every body.
    server.fail(
        "",
        "status=403&body=<Error><Code>AccessDenied</Code></Error>",
    );
    let report = denied.check().await.unwrap();
    let found = &report.findings()[0];
    assert!(found.fault.contains("AccessDenied"), "{found:?}");
    assert!(found.mend.contains("the right to write"), "{found:?}");
}

/// A proxy, or another service, answers so to everything.
async fn a_check_trusts_no_404_without_a_code() {
    let server = MotoServer::start();
    server.create_bucket("bucket");
    server.fail("", "status=404");
    let elsewhere = sink(&format!("s3://bucket?{}", server.options()));
    let report = elsewhere.check().await.unwrap();
    let fault = &report.findings()[0].fault;
    assert!(fault.contains("no object storage answers there"), "{fault}");
}

/// Seventeen megabytes, and ten thousand events beside them.
async fn large_and_small_payloads_do_not_wait_for_each_other() {
    let place = Place::new();
    let mut events: Vec<_> = (0..10_000)
        .map(|n| SuiteEvent::new(Some(&format!("key-{}", n % 100)), format!("{n}")))
        .collect();
    events.insert(0, SuiteEvent::new(Some("large"), vec![b'x'; 17_000_000]));
    events.push(SuiteEvent::new(Some("large"), "behind it"));
    let mut lane = place.lane_of(Duration::from_secs(3600)).await;
    for (turn, batch) in events.chunks(1_000).enumerate() {
        lane.submit(records(batch, turn as u64 * 1_000)).await;
    }
    for outcome in settle(&mut lane, events.len()).await {
        assert!(accepted(&outcome), "{outcome:?}");
    }
    let names = place.objects();
    assert_eq!(names.len(), 1);
    let object = place.bucket.object(&names[0]);
    assert_eq!(object.unwrap().len(), 17_000_000);
}
