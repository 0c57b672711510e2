//! Each part that a record has instead of its event's own arrives, and the event's own does not.

use bytes::Bytes;
use posthaste_engine::{DedupWindow, Deduplication, Record};

use super::super::{SuiteEvent, WireRecord, bench::Bench, event::foreign_record};

const BYTES: &[u8] = &[0xff, 0, b'k'];

fn event() -> SuiteEvent {
    SuiteEvent::new(Some("key"), "value")
}

/// Sends an event once for each of these changes, and answers what arrived.
async fn arrived(bench: &Bench, event: &SuiteEvent, changes: &[Change]) -> Vec<WireRecord> {
    let mut flight = bench.impatient_lane().await;
    for change in changes {
        flight.submit_changed(event, change).await;
        // One key, and so the order of arrival is that of sending.
        flight.settle().await;
    }
    flight.log().expect_all_accepted();
    bench.fixture.arrived_records().await
}

type Change = fn(Record) -> Record;

pub(super) async fn a_key_of_bytes_arrives(bench: Bench) {
    let bytes: Change = |record| record.with_key(Some(BYTES.to_vec()));
    let found = arrived(&bench, &event(), &[bytes]).await;
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].key.as_deref(), Some(BYTES));
    assert_eq!(found[0].value.as_deref(), Some(&b"value"[..]));
}

pub(super) async fn another_value_arrives(bench: Bench) {
    let changes: [Change; 2] = [
        |record| record.with_value(Some(Bytes::from_static(BYTES))),
        |record| record.with_value(None),
    ];
    // Of two ids, or a stream would suppress the second.
    let mut values = Vec::new();
    for change in changes {
        let found = arrived(&bench, &event(), &[change]).await;
        values.extend(found.last().map(|record| record.value.clone()));
    }
    assert_eq!(values, [Some(BYTES.to_vec()), None]);
}

/// None of the event's own, and no attribute: they may be for the company alone.
pub(super) async fn given_headers_arrive_alone(bench: Bench) {
    let mut event = event();
    for attribute in [
        &mut event.kind,
        &mut event.content_type,
        &mut event.correlation_id,
        &mut event.causation_id,
        &mut event.tenant_id,
        &mut event.traceparent,
        &mut event.tracestate,
    ] {
        *attribute = Some("private".to_owned());
    }
    event.headers = vec![("own".to_owned(), Some("private".to_owned()))];
    let given: Change = |record| {
        record.with_headers(vec![
            ("b".into(), Some("1".into())),
            ("type".into(), Some("public".into())),
            ("b".into(), None),
            ("empty".into(), Some("".into())),
        ])
    };
    let mut found = arrived(&bench, &event, &[given]).await.remove(0).headers;
    let mut expected = [
        ("b", Some("1")),
        ("type", Some("public")),
        ("b", None),
        ("empty", Some("")),
    ]
    .map(|(name, value)| (name.to_owned(), value.map(str::to_owned)));
    if !bench.expected.headers_in_order {
        found.sort_by(|(one, _), (other, _)| one.cmp(other));
        expected.sort_by(|(one, _), (other, _)| one.cmp(other));
    }
    assert_eq!(found, expected);
}

pub(super) async fn another_timestamp_arrives(bench: Bench) {
    const OTHER: i64 = 1_600_000_000_000_000;
    let other: Change = |record| record.with_timestamp(OTHER);
    let found = arrived(&bench, &event(), &[other]).await;
    assert_eq!(found[0].timestamp, Some(OTHER));
}

/// Where topics have partitions; elsewhere it is ignored.
pub(super) async fn another_partition_is_taken(bench: Bench) {
    let changes: [Change; 3] = [
        |record| record.with_partition(0).with_value(Some("0".into())),
        |record| record.with_partition(1).with_value(Some("1".into())),
        |record| record.with_partition(2).with_value(Some("2".into())),
    ];
    let mut flight = bench.lane().await;
    for change in changes {
        flight.submit_changed(&event(), &change).await;
    }
    flight.settle().await;
    flight.log().expect_all_accepted();
    let found = bench.fixture.arrived_records().await;
    assert_eq!(found.len(), changes.len());
    for record in found {
        let value = record.value.expect("it has one");
        let wanted = u32::from(value[0] - b'0');
        let expected = bench.expected.partitions.then_some(wanted);
        assert_eq!(record.partition, expected, "of value {wanted}");
    }
}

/// That of a record, and that of an event whose id is no UUID.
pub(super) async fn another_wire_id_arrives(bench: Bench) {
    let other: Change = |record| record.with_wire_id("orders-41".to_owned());
    let found = arrived(&bench, &event(), &[other]).await;
    assert_eq!(found[0].wire_id.as_deref(), Some("orders-41"));

    let longest = "x".repeat(255);
    let mut flight = bench.impatient_lane().await;
    let record = |ticket| foreign_record(&longest, &event(), ticket);
    flight.submit_record(&event(), record).await;
    flight.settle().await;
    flight.log().expect_all_accepted();
    let found = bench.fixture.arrived_records().await;
    let last = found.last().expect("it arrived");
    assert_eq!(last.wire_id.as_ref(), Some(&longest));
}

/// A receiver that knows dedup ids takes an event again under another one, and takes no other event
/// under a known one. One that keeps the store's references knows the event.
pub(super) async fn repeats_are_told_by_their_dedup_id(bench: Bench) {
    let changes: [Change; 3] = [
        |record| record,
        |record| record.with_dedup_id("again".to_owned()),
        |record| record.with_dedup_id("again".to_owned()),
    ];
    let event = event();
    let mut flight = bench.lane().await;
    for change in changes {
        flight.submit_changed(&event, &change).await;
        flight.settle().await;
    }
    let told: Vec<_> = flight.log().acceptances().map(|a| a.is_duplicate).collect();
    let known = match bench.expected.deduplication {
        Some(Deduplication {
            window: DedupWindow::AtTheReceiver,
            ..
        }) => [false, false, true],
        Some(_) => [false, true, true],
        None => [false; 3],
    };
    let tells = bench.expected.tells_repeats;
    assert_eq!(told, known.map(|known| known && tells));
    let found = bench.fixture.arrived_records().await;
    assert_eq!(found.len(), known.iter().filter(|known| !**known).count());
    let id = event.id.to_string();
    assert!(
        found
            .iter()
            .all(|record| record.wire_id.as_ref() == Some(&id))
    );
}
