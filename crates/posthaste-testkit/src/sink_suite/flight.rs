//! A lane under test, and the one rule that holds in every case: one verdict for each record.

use std::{
    collections::{BTreeMap, BTreeSet},
    future::{Future, poll_fn},
    pin::pin,
    task::Poll,
    time::Duration,
};

use posthaste_engine::{Acceptance, Cause, Lane, Outcome, Record, Verdict};
use uuid::Uuid;

use super::{SuiteEvent, event::records};

pub(super) struct Flight {
    lane: Box<dyn Lane>,
    log: Log,
}

/// The records sent on a lane, and their answers. Tickets count from 0.
#[derive(Default)]
pub(super) struct Log {
    pub(super) sent: Vec<SuiteEvent>,
    outcomes: BTreeMap<u64, Outcome>,
}

impl Flight {
    pub(super) fn new(lane: Box<dyn Lane>) -> Self {
        Self {
            lane,
            log: Log::default(),
        }
    }

    pub(super) fn log(&self) -> &Log {
        &self.log
    }

    pub(super) async fn submit(&mut self, batch: &[SuiteEvent]) {
        let first_ticket = self.log.sent.len() as u64;
        self.log.sent.extend_from_slice(batch);
        self.lane.submit(records(batch, first_ticket)).await;
    }

    /// Submits one record that routing gave another topic and key; it must arrive under these.
    pub(super) async fn submit_routed(
        &mut self,
        event: &SuiteEvent,
        topic: &str,
        key: Option<&str>,
    ) -> SuiteEvent {
        let mut routed = event.clone();
        routed.topic = topic.to_owned();
        routed.key = key.map(str::to_owned);
        let record = |ticket| {
            records(std::slice::from_ref(event), ticket)
                .remove(0)
                .with_topic(topic.to_owned())
                .with_key(key.map(|key| key.as_bytes().to_vec()))
        };
        self.submit_record(&routed, record).await;
        routed
    }

    /// Submits one record that was changed so.
    pub(super) async fn submit_changed(
        &mut self,
        event: &SuiteEvent,
        change: &impl Fn(Record) -> Record,
    ) {
        let record = |ticket| change(records(std::slice::from_ref(event), ticket).remove(0));
        self.submit_record(event, record).await;
    }

    /// Submits a record of this event, made with its ticket.
    pub(super) async fn submit_record(
        &mut self,
        event: &SuiteEvent,
        record: impl FnOnce(u64) -> Record,
    ) {
        let ticket = self.log.sent.len() as u64;
        self.log.sent.push(event.clone());
        self.lane.submit(vec![record(ticket)]).await;
    }

    /// Asks for outcomes once, without waiting.
    pub(super) async fn poll(&mut self) {
        if let Some(verdicts) = poll_once(self.lane.outcomes()).await {
            assert!(!verdicts.is_empty(), "outcomes answered without a verdict");
            self.log.note(verdicts);
        }
    }

    /// Waits for one answer of the lane.
    pub(super) async fn next(&mut self) {
        let verdicts = self.lane.outcomes().await;
        assert!(!verdicts.is_empty(), "outcomes answered without a verdict");
        self.log.note(verdicts);
    }

    /// Waits until everything is answered; the lane must then have nothing more to say.
    pub(super) async fn settle(&mut self) {
        while !self.log.is_settled() {
            self.next().await;
        }
        self.expect_silence().await;
    }

    /// Nothing is in flight, so `outcomes` waits.
    pub(super) async fn expect_silence(&mut self) {
        assert!(self.log.is_settled());
        if let Some(verdicts) = poll_once(self.lane.outcomes()).await {
            panic!("outcomes answered with nothing in flight: {verdicts:?}");
        }
    }

    pub(super) async fn abort(self) -> Log {
        self.lane.abort().await;
        self.log
    }

    /// Closes; everything must be answered then.
    pub(super) async fn close(mut self, limit: Duration) -> Log {
        let verdicts = self.lane.close(limit).await;
        self.log.note(verdicts);
        assert!(
            self.log.is_settled(),
            "close left {} of {} records without a verdict",
            self.log.sent.len() - self.log.outcomes.len(),
            self.log.sent.len()
        );
        self.log
    }
}

impl Log {
    fn note(&mut self, verdicts: Vec<Verdict>) {
        for verdict in verdicts {
            let ticket = verdict.ticket;
            assert!(
                usize::try_from(ticket).is_ok_and(|at| at < self.sent.len()),
                "verdict for ticket {ticket}, which was never submitted"
            );
            if let Some(first) = self.outcomes.insert(ticket, verdict.outcome.clone()) {
                panic!(
                    "two verdicts for ticket {ticket}: {first:?}, {:?}",
                    verdict.outcome
                );
            }
        }
    }

    pub(super) fn is_settled(&self) -> bool {
        self.outcomes.len() == self.sent.len()
    }

    /// Each record that was answered, in the order of submission.
    pub(super) fn answered(&self) -> impl Iterator<Item = (&SuiteEvent, &Outcome)> {
        self.outcomes.iter().map(|(&ticket, outcome)| {
            let at = usize::try_from(ticket).expect("checked when it was noted");
            (&self.sent[at], outcome)
        })
    }

    pub(super) fn accepted(&self) -> BTreeSet<Uuid> {
        self.answered()
            .filter(|(_, outcome)| matches!(outcome, Outcome::Accepted(_)))
            .map(|(event, _)| event.id)
            .collect()
    }

    /// The broker's words on each record, in the order of submission. All must be accepted.
    pub(super) fn acceptances(&self) -> impl Iterator<Item = Acceptance> {
        self.expect_all_accepted();
        self.answered().filter_map(|(_, outcome)| match outcome {
            Outcome::Accepted(acceptance) => Some(*acceptance),
            _ => None,
        })
    }

    /// How the record at this place of the submissions ended.
    pub(super) fn outcome(&self, at: usize) -> &Outcome {
        match self.outcomes.get(&(at as u64)) {
            Some(outcome) => outcome,
            None => panic!("record {at} has no verdict"),
        }
    }

    pub(super) fn expect_all_accepted(&self) {
        assert!(self.is_settled());
        for (event, outcome) in self.answered() {
            assert!(
                matches!(outcome, Outcome::Accepted(_)),
                "not accepted: {event:?}: {outcome:?}"
            );
        }
    }

    /// The records from this place on are unavailable, with a reason.
    pub(super) fn expect_unavailable(&self, from: usize) {
        for at in from..self.sent.len() {
            match self.outcome(at) {
                Outcome::Unavailable(why) => {
                    assert!(!why.reason.is_empty(), "no reason given: {why:?}");
                }
                other => panic!("record {at} should be unavailable: {other:?}"),
            }
        }
    }

    /// Behind a key's first record that was not accepted, none of the key is.
    pub(super) fn expect_no_gap_in_a_key(&self) {
        let mut failed: BTreeMap<&str, &SuiteEvent> = BTreeMap::new();
        for (event, outcome) in self.answered() {
            let Some(key) = event.key.as_deref() else {
                continue;
            };
            if !matches!(outcome, Outcome::Accepted(_)) {
                failed.entry(key).or_insert(event);
            } else if let Some(first) = failed.get(key) {
                panic!("{event:?} was accepted behind {first:?}, which was not");
            }
        }
    }

    pub(super) fn causes(&self) -> BTreeSet<&'static str> {
        self.answered()
            .filter_map(|(_, outcome)| match outcome {
                Outcome::Unavailable(why) => Some(why.cause),
                _ => None,
            })
            .map(Cause::as_str)
            .collect()
    }
}

/// The future's answer if it has one without waiting; the future is dropped either way.
pub async fn poll_once<F: Future>(future: F) -> Option<F::Output> {
    let mut future = pin!(future);
    poll_fn(|context| {
        Poll::Ready(match future.as_mut().poll(context) {
            Poll::Ready(output) => Some(output),
            Poll::Pending => None,
        })
    })
    .await
}
