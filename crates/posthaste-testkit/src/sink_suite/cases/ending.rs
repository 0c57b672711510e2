//! How a lane ends: closed with an answer for each record, or aborted without one.

use std::{collections::BTreeSet, time::Duration};

use posthaste_engine::Outcome;

use super::super::{SuiteEvent, bench::Bench};
use super::verdicts::plain;

const AMPLE: Duration = Duration::from_secs(60);

pub(super) async fn close_answers_all_in_flight(bench: Bench) {
    let events = plain(2_000);
    let mut flight = bench.lane().await;
    for (turn, batch) in events.chunks(100).enumerate() {
        flight.submit(batch).await;
        if turn == 3 {
            flight.next().await;
        }
    }
    let log = flight.close(AMPLE).await;
    log.expect_all_accepted();
    bench.expect_arrivals(&events, &log.accepted()).await;
}

pub(super) async fn close_of_an_idle_lane_answers_nothing(bench: Bench) {
    let flight = bench.lane().await;
    assert!(flight.close(AMPLE).await.sent.is_empty());
    let mut flight = bench.lane().await;
    flight.submit(&plain(5)).await;
    flight.settle().await;
    flight.close(AMPLE).await.expect_all_accepted();
}

pub(super) async fn close_without_time_answers_all(bench: Bench) {
    let events = plain(2_000);
    let mut flight = bench.lane().await;
    for batch in events.chunks(100) {
        flight.submit(batch).await;
    }
    let log = flight.close(Duration::ZERO).await;
    for (event, outcome) in log.answered() {
        assert!(
            !matches!(outcome, Outcome::Rejected(_)),
            "{event:?}: {outcome:?}"
        );
    }
    log.expect_no_gap_in_a_key();
    // Bytes on their way when the time was up may still arrive; a lane waits for the end of it.
    bench.impatient_lane().await;
    bench.expect_arrivals(&events, &log.accepted()).await;
}

/// All that arrives of the aborted lane has arrived when `abort` returns, or at the latest when the
/// next lane has taken over: the records of that lane stand behind all of it.
pub(super) async fn nothing_arrives_after_abort(bench: Bench) {
    let events = plain(20_000);
    let mut flight = bench.lane().await;
    for batch in events.chunks(1_000) {
        flight.submit(batch).await;
    }
    flight.next().await;
    let log = flight.abort().await;
    let (after_abort, mut next) = if bench.expected.fenced_by_successor {
        let next = bench.lane().await;
        (bench.fixture.arrived().await, next)
    } else {
        (bench.fixture.arrived().await, bench.lane().await)
    };
    let marker = SuiteEvent::new(Some("marker"), "marker");
    next.submit(std::slice::from_ref(&marker)).await;
    next.settle().await;
    next.log().expect_all_accepted();
    let mut at_last = bench.fixture.arrived().await;
    let place = at_last.iter().position(|event| *event == marker);
    at_last.remove(place.expect("the marker was accepted"));
    assert!(at_last == after_abort, "something arrived after abort");
    bench
        .expect_arrivals(&[events, vec![marker]].concat(), &log.accepted())
        .await;
}

pub(super) async fn lanes_follow_aborted_lanes(bench: Bench) {
    let events = plain(500);
    let mut sent = Vec::new();
    let mut accepted = BTreeSet::new();
    for batch in events.chunks(25) {
        // Aborted with everything, or nearly everything, in flight, and sent again.
        let mut flight = bench.lane().await;
        flight.submit(batch).await;
        flight.poll().await;
        accepted.extend(flight.abort().await.accepted());
        sent.extend_from_slice(batch);
        let mut again = bench.lane().await;
        again.submit(batch).await;
        again.settle().await;
        again.log().expect_all_accepted();
        accepted.extend(again.close(AMPLE).await.accepted());
        sent.extend_from_slice(batch);
    }
    assert_eq!(accepted.len(), events.len());
    bench.expect_arrivals(&sent, &accepted).await;
}

/// A task that panics drops its lane; the next one must still get its turn.
pub(super) async fn a_dropped_lane_makes_room(bench: Bench) {
    let mut flight = bench.lane().await;
    flight.submit(&plain(100)).await;
    drop(flight);
    let mut next = bench.impatient_lane().await;
    next.submit(&plain(10)).await;
    next.settle().await;
    next.log().expect_all_accepted();
}
