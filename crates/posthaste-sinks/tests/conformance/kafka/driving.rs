//! The engine's part with a lane, as far as these tests need it.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use posthaste_engine::{Cause, Lane, LaneSpec, Outcome, Record, Rejection, Sink};
use posthaste_sinks::open;
use posthaste_testkit::{
    servers::kafka::KafkaServer,
    sink_suite::{SuiteEvent, check_arrivals, lane_spec, records},
};
use uuid::Uuid;

use super::brokers::{self, consume};

/// How one submission ended, by its place in it.
pub(super) type Outcomes = BTreeMap<usize, Outcome>;

pub(super) fn sink_at(bootstrap: &str) -> Arc<dyn Sink> {
    open(&format!("kafka://{bootstrap}")).unwrap()
}

pub(super) async fn lane(sink: &Arc<dyn Sink>) -> Box<dyn Lane> {
    lane_with(sink, lane_spec(1)).await
}

pub(super) async fn lane_with(sink: &Arc<dyn Sink>, spec: LaneSpec) -> Box<dyn Lane> {
    match sink.open_lane(spec).await {
        Ok(lane) => lane,
        Err(error) => panic!("no lane: {error}"),
    }
}

/// An event of a topic.
pub(super) fn event(topic: &str, key: Option<&str>, payload: impl Into<Vec<u8>>) -> SuiteEvent {
    let mut event = SuiteEvent::new(key, payload);
    topic.clone_into(&mut event.topic);
    event
}

/// The options of an address whose progress topic is this topic's own.
pub(super) fn transactional(topic: &str) -> String {
    format!("?delivery=transactional&progress_topic={topic}-progress")
}

pub(super) async fn submit(lane: &mut Box<dyn Lane>, batch: Vec<Record>) -> Outcomes {
    let count = batch.len();
    lane.submit(batch).await;
    answers(lane, count).await
}

/// Waits until so many records are answered; tickets count from 0.
pub(super) async fn answers(lane: &mut Box<dyn Lane>, count: usize) -> Outcomes {
    let mut outcomes = Outcomes::new();
    while outcomes.len() < count {
        for verdict in lane.outcomes().await {
            let at = usize::try_from(verdict.ticket).unwrap();
            assert!(outcomes.insert(at, verdict.outcome).is_none());
        }
    }
    outcomes
}

pub(super) async fn send(lane: &mut Box<dyn Lane>, event: &SuiteEvent) -> Outcome {
    let mut outcomes = submit(lane, records(std::slice::from_ref(event), 0)).await;
    outcomes.remove(&0).unwrap()
}

pub(super) async fn expect_accepted(lane: &mut Box<dyn Lane>, event: &SuiteEvent) {
    let outcome = send(lane, event).await;
    assert!(matches!(outcome, Outcome::Accepted(_)), "{outcome:?}");
}

pub(super) fn rejection(outcome: &Outcome) -> &Rejection {
    match outcome {
        Outcome::Rejected(why) => why,
        other => panic!("not rejected: {other:?}"),
    }
}

pub(super) fn cause(outcome: &Outcome) -> Cause {
    match outcome {
        Outcome::Unavailable(why) => {
            assert!(!why.reason.is_empty());
            why.cause
        }
        other => panic!("not unavailable: {other:?}"),
    }
}

/// No key has an accepted record behind one that was not.
pub(super) fn expect_no_gap(events: &[SuiteEvent], outcomes: &Outcomes) {
    let mut failed: BTreeMap<&str, usize> = BTreeMap::new();
    for (at, event) in events.iter().enumerate() {
        let Some(key) = event.key.as_deref() else {
            continue;
        };
        match (&outcomes[&at], failed.get(key)) {
            (Outcome::Accepted(_), Some(first)) => {
                let why = &outcomes[first];
                panic!("{at} was accepted behind {first} of its key: {why:?}");
            }
            (Outcome::Accepted(_), None) => {}
            (_, _) => {
                failed.entry(key).or_insert(at);
            }
        }
    }
}

/// All that was sent until everything was accepted or rejected, lane after lane.
#[derive(Default)]
pub(super) struct Driven {
    pub(super) sent: Vec<SuiteEvent>,
    pub(super) accepted: BTreeSet<Uuid>,
    pub(super) rejected: BTreeMap<Uuid, Rejection>,
    pub(super) lanes: usize,
}

/// Sends events until each is accepted or rejected; those that were unavailable go again, in order.
pub(super) async fn drive(sink: &Arc<dyn Sink>, events: &[SuiteEvent]) -> Driven {
    drive_by(sink, events, lane_spec(1)).await
}

/// The same by lanes of this purpose: those of one relay, which takes its own fence.
pub(super) async fn drive_by(
    sink: &Arc<dyn Sink>,
    events: &[SuiteEvent],
    spec: LaneSpec,
) -> Driven {
    let mut driven = Driven::default();
    let mut pending = events.to_vec();
    while !pending.is_empty() {
        driven.lanes += 1;
        let mut lane = lane_with(sink, spec.clone()).await;
        lane.take_over().await.unwrap();
        loop {
            driven.sent.extend_from_slice(&pending);
            let outcomes = submit(&mut lane, records(&pending, 0)).await;
            expect_no_gap(&pending, &outcomes);
            let mut ended = false;
            for (at, outcome) in &outcomes {
                let id = pending[*at].id;
                match outcome {
                    Outcome::Accepted(_) => drop(driven.accepted.insert(id)),
                    Outcome::Rejected(why) => {
                        driven.rejected.insert(id, (**why).clone());
                    }
                    Outcome::Unavailable(why) => ended |= why.cause != Cause::BehindFailure,
                    Outcome::Later(why) => panic!("{why:?}"),
                }
            }
            pending.retain(|event| {
                !driven.accepted.contains(&event.id) && !driven.rejected.contains_key(&event.id)
            });
            if ended || pending.is_empty() {
                break;
            }
        }
        lane.abort().await;
    }
    driven
}

impl Driven {
    /// The accepted events arrived, in order.
    pub(super) fn expect_arrivals(&self, server: &KafkaServer, topics: &[&str]) {
        let messages = consume(server, topics);
        let arrived: Vec<SuiteEvent> = messages.iter().map(brokers::read).collect();
        check_arrivals(&self.sent, &self.accepted, &arrived).unwrap();
        let found: BTreeSet<Uuid> = arrived.iter().map(|event| event.id).collect();
        for id in self.rejected.keys() {
            assert!(!found.contains(id), "rejected, but it arrived: {id}");
        }
    }
}
