//! The declared properties, and one verdict for each record.

use super::super::{SuiteEvent, bench::Bench};

/// Small events over a few keys, some without one.
pub(super) fn plain(count: usize) -> Vec<SuiteEvent> {
    (0..count)
        .map(|n| {
            let key = format!("key-{}", n % 17);
            SuiteEvent::new((n % 5 != 0).then_some(&*key), format!("{{\"n\":{n}}}"))
        })
        .collect()
}

pub(super) async fn declares_what_is_expected(bench: Bench) {
    let (info, expected) = (bench.sink.info(), bench.expected);
    assert_eq!(info.kind, expected.kind);
    assert_eq!(info.key_order, expected.key_order);
    assert_eq!(info.fence, expected.fence);
    assert_eq!(info.single_lane, expected.single_lane);
    assert_eq!(info.requests_max, expected.requests_max);
    assert_eq!(info.event_bytes_max, expected.event_bytes_max);
    assert_eq!(info.deduplication, expected.deduplication);
    assert!(info.batch_events_max >= 1);
    assert!(info.batch_bytes_max >= 1);
    assert!(
        info.in_flight_events_max >= info.batch_events_max,
        "a batch of the limit must fit into the flight: {info:?}"
    );
}

pub(super) async fn check_passes_and_leaves_no_trace(bench: Bench) {
    let untouched = bench.fixture.trace().await;
    bench
        .sink
        .check()
        .await
        .expect("the destination is healthy");
    assert_eq!(bench.fixture.trace().await, untouched);

    let mut flight = bench.lane().await;
    flight.submit(&plain(3)).await;
    flight.settle().await;
    let used = bench.fixture.trace().await;
    assert_ne!(used, untouched, "the fixture's trace shows nothing");
    bench.sink.check().await.expect("a lane is open");
    assert_eq!(bench.fixture.trace().await, used);
}

pub(super) async fn a_batch_of_one(bench: Bench) {
    deliver_in_batches(&bench, &plain(3), 1).await;
}

pub(super) async fn a_batch_of_the_limit(bench: Bench) {
    let limit = bench.sink.info().batch_events_max;
    deliver_in_batches(&bench, &plain(limit), limit).await;
}

pub(super) async fn many_batches_beyond_the_limit(bench: Bench) {
    let limit = bench.sink.info().batch_events_max;
    deliver_in_batches(&bench, &plain(2 * limit + 1), limit).await;
}

async fn deliver_in_batches(bench: &Bench, events: &[SuiteEvent], size: usize) {
    let in_flight_max = bench.sink.info().in_flight_events_max;
    let mut flight = bench.lane().await;
    for batch in events.chunks(size) {
        let waiting = flight.log().sent.len() - flight.log().answered().count();
        if waiting + batch.len() > in_flight_max {
            flight.settle().await;
        }
        flight.submit(batch).await;
    }
    flight.settle().await;
    flight.log().expect_all_accepted();
    let accepted = flight.log().accepted();
    bench.expect_arrivals(events, &accepted).await;
}

pub(super) async fn an_empty_batch_has_no_verdict(bench: Bench) {
    let mut flight = bench.lane().await;
    flight.submit(&[]).await;
    flight.expect_silence().await;
    flight.submit(&plain(1)).await;
    flight.settle().await;
    flight.log().expect_all_accepted();
}

pub(super) async fn outcomes_waits_when_nothing_is_in_flight(bench: Bench) {
    let mut flight = bench.lane().await;
    flight.expect_silence().await;
    for event in plain(3) {
        flight.submit(&[event]).await;
        flight.settle().await;
    }
    flight.log().expect_all_accepted();
}

pub(super) async fn outcomes_is_cancel_safe(bench: Bench) {
    let events = plain(200);
    let mut flight = bench.lane().await;
    for batch in events.chunks(10) {
        flight.submit(batch).await;
        flight.poll().await;
    }
    while !flight.log().is_settled() {
        flight.poll().await;
        tokio::task::yield_now().await;
    }
    flight.expect_silence().await;
    flight.log().expect_all_accepted();
    let accepted = flight.log().accepted();
    bench.expect_arrivals(&events, &accepted).await;
}

/// The engine sends again after a crash; a sink must not mistake that for a fault.
pub(super) async fn a_repeat_is_accepted_again(bench: Bench) {
    let events = plain(5);
    let mut flight = bench.lane().await;
    for _ in 0..2 {
        flight.submit(&events).await;
        flight.settle().await;
    }
    flight.log().expect_all_accepted();
}

/// Of each key a receipt is greater than the one before; a sink that expects none gives none.
pub(super) async fn receipts_are_given_as_expected(bench: Bench) {
    let events: Vec<_> = (0..5)
        .map(|n| SuiteEvent::new(Some("key"), format!("{n}")))
        .collect();
    let mut flight = bench.lane().await;
    for event in &events {
        flight.submit(std::slice::from_ref(event)).await;
        flight.settle().await;
    }
    let given = flight.log().acceptances().map(|given| given.receipt);
    let given: Vec<_> = given.collect();
    assert!(
        given
            .iter()
            .all(|receipt| receipt.is_some() == bench.expected.receipts)
    );
    assert!(
        !bench.expected.receipts || given.is_sorted_by(|one, next| one < next),
        "{given:?}"
    );
}

pub(super) async fn a_repeated_id_is_suppressed(bench: Bench) {
    let events = plain(5);
    let mut flight = bench.lane().await;
    for _ in 0..2 {
        flight.submit(&events).await;
        flight.settle().await;
    }
    let told: Vec<_> = flight.log().acceptances().map(|a| a.is_duplicate).collect();
    assert_eq!(
        told,
        [[false; 5], [bench.expected.tells_repeats; 5]].concat()
    );
    let accepted = flight.log().accepted();
    bench.expect_arrivals(&events, &accepted).await;
}
