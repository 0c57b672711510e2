//! The engine's part with a lane, as far as the tests of our own clients need it.

use std::sync::Arc;

use posthaste_engine::{Lane, Outcome, Sink, SinkError};
use posthaste_testkit::sink_suite::{SuiteEvent, impatient, lane_spec, opened, records};

/// A lane that answers may reach late, as soon as one is given.
pub(crate) async fn lane(sink: &Arc<dyn Sink>) -> Box<dyn Lane> {
    opened(|| sink.open_lane(lane_spec(1))).await
}

/// A lane that soon gives up what is silent.
pub(crate) async fn impatient_lane(sink: &Arc<dyn Sink>) -> Box<dyn Lane> {
    sink.open_lane(impatient(lane_spec(1))).await.unwrap()
}

/// Why no lane is given.
pub(crate) async fn refusal(sink: &Arc<dyn Sink>) -> SinkError {
    match sink.open_lane(impatient(lane_spec(1))).await {
        Ok(_) => panic!("a lane was given"),
        Err(error) => error,
    }
}

/// Submits all and waits for all verdicts, in the order of the events.
pub(crate) async fn send(lane: &mut Box<dyn Lane>, events: &[SuiteEvent]) -> Vec<Outcome> {
    lane.submit(records(events, 0)).await;
    settle(lane, events.len()).await
}

/// Waits for the verdicts of tickets 0 to `count`, and answers them in this order.
pub(crate) async fn settle(lane: &mut Box<dyn Lane>, count: usize) -> Vec<Outcome> {
    let mut verdicts = Vec::new();
    while verdicts.len() < count {
        verdicts.extend(lane.outcomes().await);
    }
    verdicts.sort_by_key(|verdict| verdict.ticket);
    let tickets: Vec<u64> = verdicts.iter().map(|verdict| verdict.ticket).collect();
    assert_eq!(tickets, (0..count as u64).collect::<Vec<_>>());
    verdicts
        .into_iter()
        .map(|verdict| verdict.outcome)
        .collect()
}

pub(crate) fn accepted(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Accepted(_))
}

/// Sends these and expects each to be accepted.
pub(crate) async fn accept(lane: &mut Box<dyn Lane>, events: &[SuiteEvent]) {
    for outcome in send(lane, events).await {
        assert!(accepted(&outcome), "{outcome:?}");
    }
}

pub(crate) fn plain(count: usize) -> Vec<SuiteEvent> {
    (0..count)
        .map(|n| SuiteEvent::new(Some(&format!("key-{n}")), format!("{n}")))
        .collect()
}
