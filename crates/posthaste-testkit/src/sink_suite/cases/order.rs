//! Each key arrives in the order of submission (I3).

use super::super::bench::Bench;
use super::verdicts::plain;

pub(super) async fn order_is_kept_across_batches(bench: Bench) {
    let events = plain(2_000);
    let mut flight = bench.lane().await;
    // Uneven batches, and an answer fetched now and then, as a busy engine does.
    for (turn, batch) in events.chunks(37).enumerate() {
        flight.submit(batch).await;
        if turn % 3 == 0 {
            flight.next().await;
        }
    }
    flight.settle().await;
    flight.log().expect_all_accepted();
    let accepted = flight.log().accepted();
    bench.expect_arrivals(&events, &accepted).await;
}

pub(super) async fn order_is_kept_with_the_most_in_flight(bench: Bench) {
    let info = bench.sink.info();
    let events = plain(info.in_flight_events_max);
    let mut flight = bench.lane().await;
    for batch in events.chunks(info.batch_events_max) {
        flight.submit(batch).await;
    }
    flight.settle().await;
    flight.log().expect_all_accepted();
    let accepted = flight.log().accepted();
    bench.expect_arrivals(&events, &accepted).await;
}

pub(super) async fn order_is_kept_across_lanes(bench: Bench) {
    let events = plain(300);
    let mut accepted = std::collections::BTreeSet::new();
    for batch in events.chunks(100) {
        let mut flight = bench.lane().await;
        flight.submit(batch).await;
        flight.settle().await;
        flight.log().expect_all_accepted();
        accepted.extend(flight.abort().await.accepted());
    }
    bench.expect_arrivals(&events, &accepted).await;
}
