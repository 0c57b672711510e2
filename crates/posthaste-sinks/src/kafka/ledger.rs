//! What was submitted to a lane, and what it has answered: the same for both kinds of lane.

use std::{
    collections::VecDeque,
    mem,
    time::{Duration, Instant},
};

use posthaste_engine::{Batches, Cause, FailedKeys, Outcome, Record, RejectionKind, Verdict};

/// A record that is not sent yet.
pub(super) struct Waiting {
    pub(super) record: Record,
    pub(super) batch: u64,
    /// Since when it waits for its topic to be looked up.
    pub(super) looking_since: Option<Instant>,
    /// Failures whose verdicts had been handed out when the record was submitted.
    seen: u64,
}

impl Waiting {
    /// The outcome of a record whose topic could not be looked up in time, which happens only where
    /// more topics wait than the cluster can be asked for. Its time is measured from its
    /// submission, and what is left of it is for sending: a record that waited on would make its
    /// lane late.
    pub(super) fn looked_long_enough(
        &mut self,
        publish_timeout: Duration,
        now: Instant,
    ) -> Option<Outcome> {
        let limit = publish_timeout / 2;
        let since = *self.looking_since.get_or_insert(now);
        (now.duration_since(since) >= limit).then(|| {
            let reason = format!(
                "topic `{}`: the cluster has not told within {limit:?} whether it exists, so many \
                 others are asked for",
                self.record.topic()
            );
            Outcome::rejected(RejectionKind::Unroutable, reason)
        })
    }
}

/// The account of one lane's records.
#[derive(Default)]
pub(super) struct Ledger {
    /// Not sent yet, in the order of submission.
    pub(super) waiting: VecDeque<Waiting>,
    batches: Batches<Instant>,
    failed: FailedKeys,
    /// Failures in `ready`, and before it.
    failures: u64,
    /// Failures whose verdicts were handed out.
    seen: u64,
    ready: Vec<Verdict>,
    /// What becomes of records that come after the lane's end.
    ended: Option<Outcome>,
}

impl Ledger {
    pub(super) fn has_ended(&self) -> bool {
        self.ended.is_some()
    }

    /// When the oldest batch that is not answered was submitted.
    pub(super) fn oldest(&self) -> Option<Instant> {
        self.batches.oldest()
    }

    /// Takes in a batch; once the lane has ended, by refusing it.
    pub(super) fn submit(&mut self, batch: Vec<Record>) {
        if let Some(ended) = self.ended.clone() {
            for record in &batch {
                self.note_failure(record.ticket(), record.order_key(), ended.clone());
            }
            return;
        }
        if self.waiting.is_empty() {
            self.failed.forget(self.seen);
        }
        let number = self.batches.begin(Instant::now(), batch.len());
        for record in batch {
            self.waiting.push_back(Waiting {
                record,
                batch: number,
                looking_since: None,
                seen: self.seen,
            });
        }
    }

    /// The outcome of a record whose key has a failure that its sender did not know.
    pub(super) fn behind_failure(&self, item: &Waiting) -> Option<Outcome> {
        let behind = self.failed.refuses(item.record.order_key(), item.seen);
        behind.then(|| {
            Outcome::unavailable(
                Cause::BehindFailure,
                "not tried: an earlier event of its key was not accepted",
            )
        })
    }

    pub(super) fn accept(&mut self, ticket: u64, batch: u64) {
        self.batches.answered(batch);
        self.ready.push(Verdict {
            ticket,
            outcome: Outcome::Accepted(None),
        });
    }

    pub(super) fn refuse(
        &mut self,
        ticket: u64,
        order_key: Option<u64>,
        batch: u64,
        outcome: Outcome,
    ) {
        self.batches.answered(batch);
        self.note_failure(ticket, order_key, outcome);
    }

    fn note_failure(&mut self, ticket: u64, order_key: Option<u64>, outcome: Outcome) {
        self.failures = self.failed.note(order_key);
        self.ready.push(Verdict { ticket, outcome });
    }

    /// Answers everything: what was under way, by ticket and key of order, and what waits.
    pub(super) fn end(
        &mut self,
        under_way: impl Iterator<Item = (u64, Option<u64>)>,
        cause: Cause,
        reason: &str,
    ) {
        let outcome = Outcome::unavailable(cause, reason);
        for (ticket, order_key) in under_way {
            self.note_failure(ticket, order_key, outcome.clone());
        }
        let later = format!("not sent: the lane had ended: {reason}");
        let later = Outcome::unavailable(Cause::LaneEnded, later);
        for item in mem::take(&mut self.waiting) {
            self.note_failure(item.record.ticket(), item.record.order_key(), later.clone());
        }
        self.ended = Some(later);
        self.batches.clear();
    }

    /// The verdicts since the last call, to be handed out.
    pub(super) fn take_ready(&mut self) -> Vec<Verdict> {
        self.seen = self.failures;
        mem::take(&mut self.ready)
    }
}
