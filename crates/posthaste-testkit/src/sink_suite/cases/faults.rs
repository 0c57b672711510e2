//! A destination at fault costs no event: unavailable, never rejected, and never accepted in
//! between.

use std::{collections::BTreeSet, time::Duration};

use posthaste_engine::{Outcome, SinkError};

use super::super::{SuiteEvent, bench::Bench, flight::Log};
use super::verdicts::plain;

/// Generous: it bounds a hang, nothing more.
const AMPLE: Duration = Duration::from_secs(60);

fn expect_cause(bench: &Bench, log: &Log) {
    let expected = bench
        .expected
        .breaks_with
        .expect("the case needs it")
        .as_str();
    let causes = log.causes();
    assert!(
        causes.contains(expected),
        "{expected} is not among {causes:?}"
    );
}

pub(super) async fn an_absent_destination_is_unavailable(bench: Bench) {
    bench.fixture.take_away().await;
    // A sink may find out when it opens the lane, or when it sends.
    match bench.try_lane().await {
        Err(error @ SinkError::Bug { .. }) => panic!("{error}"),
        Err(error) => assert_eq!(Some(error.cause()), bench.expected.breaks_with, "{error}"),
        Ok(mut flight) => {
            flight.submit(&plain(10)).await;
            flight.settle().await;
            flight.log().expect_unavailable(0);
            expect_cause(&bench, flight.log());
        }
    }
    bench.fixture.bring_back().await;
    bench.expect_arrivals(&[], &BTreeSet::new()).await;
}

pub(super) async fn check_finds_an_absent_destination(bench: Bench) {
    bench.fixture.take_away().await;
    let before = bench.fixture.trace().await;
    match bench.sink.check().await {
        Ok(_) => panic!("check passed on a destination that is away"),
        Err(error @ SinkError::Bug { .. }) => panic!("{error}"),
        Err(error) => assert_eq!(Some(error.cause()), bench.expected.breaks_with, "{error}"),
    }
    assert_eq!(bench.fixture.trace().await, before);
}

pub(super) async fn a_failure_stops_the_lane(bench: Bench) {
    let events = plain(30);
    let mut flight = bench.impatient_lane().await;
    flight.submit(&events[..10]).await;
    flight.settle().await;
    flight.log().expect_all_accepted();
    bench.fixture.take_away().await;
    flight.submit(&events[10..20]).await;
    flight.settle().await;
    flight.log().expect_unavailable(10);
    expect_cause(&bench, flight.log());
    bench.fixture.bring_back().await;
    flight.submit(&events[20..]).await;
    flight.settle().await;
    flight.log().expect_unavailable(10);
    let accepted = flight.log().accepted();
    // Records after the failure were not even tried.
    bench.expect_arrivals(&events[..20], &accepted).await;
}

pub(super) async fn a_loss_in_mid_flight_keeps_what_was_accepted(bench: Bench) {
    let events = plain(3_000);
    let mut flight = bench.impatient_lane().await;
    for (turn, batch) in events.chunks(100).enumerate() {
        if turn == 15 {
            flight.next().await;
            bench.fixture.take_away().await;
        }
        flight.submit(batch).await;
    }
    flight.settle().await;
    let log = flight.abort().await;
    log.expect_no_gap_in_a_key();
    log.expect_unavailable(1_500);
    for (event, outcome) in log.answered() {
        assert!(
            !matches!(outcome, Outcome::Rejected(_)),
            "{event:?}: {outcome:?}"
        );
    }
    bench.fixture.bring_back().await;
    bench.expect_arrivals(&events, &log.accepted()).await;
}

pub(super) async fn a_new_lane_goes_on_after_the_fault(bench: Bench) {
    let events = plain(60);
    let mut sent: Vec<SuiteEvent> = Vec::new();
    let mut accepted = BTreeSet::new();
    for round in events.chunks(20) {
        let mut flight = bench.impatient_lane().await;
        flight.submit(&round[..10]).await;
        flight.settle().await;
        flight.log().expect_all_accepted();
        bench.fixture.take_away().await;
        flight.submit(&round[10..]).await;
        flight.settle().await;
        flight.log().expect_unavailable(10);
        accepted.extend(flight.abort().await.accepted());
        bench.fixture.bring_back().await;
        bench.sink.check().await.expect("the destination is back");
        sent.extend_from_slice(round);

        let mut again = bench.lane().await;
        again.submit(&round[10..]).await;
        again.settle().await;
        again.log().expect_all_accepted();
        accepted.extend(again.abort().await.accepted());
        sent.extend_from_slice(&round[10..]);
    }
    assert_eq!(accepted.len(), events.len());
    bench.expect_arrivals(&sent, &accepted).await;
}

pub(super) async fn closing_on_an_absent_destination_answers_all(bench: Bench) {
    let mut flight = bench.impatient_lane().await;
    bench.fixture.take_away().await;
    for batch in plain(500).chunks(50) {
        flight.submit(batch).await;
    }
    flight.close(AMPLE).await.expect_unavailable(0);
}

/// More than a stalled destination can swallow.
fn flood() -> Vec<SuiteEvent> {
    (0..1_000)
        .map(|n| SuiteEvent::new(Some(&format!("key-{}", n % 10)), vec![b'x'; 4_000]))
        .collect()
}

pub(super) async fn a_stall_is_bounded_by_the_limit_of_close(bench: Bench) {
    let events = flood();
    let mut flight = bench.impatient_lane().await;
    bench.fixture.stall().await;
    for batch in events.chunks(100) {
        flight.submit(batch).await;
    }
    let log = flight.close(Duration::from_millis(50)).await;
    log.expect_no_gap_in_a_key();
    assert!(matches!(
        log.outcome(events.len() - 1),
        Outcome::Unavailable(_)
    ));
    bench.fixture.resume().await;
    bench.impatient_lane().await;
    bench.expect_arrivals(&events, &log.accepted()).await;
}

pub(super) async fn a_stall_does_not_hold_abort(bench: Bench) {
    let events = flood();
    let mut flight = bench.impatient_lane().await;
    bench.fixture.stall().await;
    for batch in events.chunks(100) {
        flight.submit(batch).await;
    }
    let log = flight.abort().await;
    bench.fixture.resume().await;
    let mut next = bench.lane().await;
    let later = plain(10);
    next.submit(&later).await;
    next.settle().await;
    next.log().expect_all_accepted();
    let mut accepted = log.accepted();
    accepted.extend(next.log().accepted());
    let sent: Vec<SuiteEvent> = events.into_iter().chain(later).collect();
    bench.expect_arrivals(&sent, &accepted).await;
}
