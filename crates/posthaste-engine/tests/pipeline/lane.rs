//! A model of a lane.

use std::{
    collections::{BTreeSet, HashMap, VecDeque},
    ops::Range,
};

use posthaste_engine::{
    Cause, FailedKeys, KeyOrder, Outcome, Record, RejectionKind, StoredEvent, Verdict,
};

use super::{Dice, store::Model};

/// The broker's progress, as a lane knows it.
pub(crate) struct Progress {
    accepted: BTreeSet<i64>,
    /// Learned when the lane took over, and not submitted since.
    learned: BTreeSet<i64>,
    tickets: HashMap<u64, i64>,
}

impl Progress {
    fn take_over(progress: &BTreeSet<i64>) -> Self {
        Self {
            accepted: progress.clone(),
            learned: progress.clone(),
            tickets: HashMap::new(),
        }
    }

    pub(crate) fn stored(&mut self, tickets: &Range<u64>) {
        self.tickets.retain(|ticket, seq| {
            let stored = tickets.contains(ticket);
            if stored {
                self.accepted.remove(seq);
            }
            !stored
        });
    }

    pub(crate) fn caught_up(&mut self) {
        for seq in std::mem::take(&mut self.learned) {
            self.accepted.remove(&seq);
        }
    }
}

/// A lane as its contract says, with whatever freedom the contract leaves.
pub(crate) struct ModelLane {
    order: KeyOrder,
    pub(crate) queue: VecDeque<(Record, u64)>,
    failed: FailedKeys,
    pub(crate) seen: u64,
    verdicts: VecDeque<(Verdict, u64)>,
    broken: bool,
    pub(crate) progress: Option<Progress>,
}

impl ModelLane {
    pub(crate) fn new(order: KeyOrder, progress: Option<&BTreeSet<i64>>) -> Self {
        let (queue, verdicts) = (VecDeque::new(), VecDeque::new());
        Self {
            order,
            queue,
            failed: FailedKeys::default(),
            seen: 0,
            verdicts,
            broken: false,
            progress: progress.map(Progress::take_over),
        }
    }

    /// Handles one record; a lane without pipelined order takes any of them. `full`: the place of
    /// these topics takes nothing.
    pub(crate) fn work(
        &mut self,
        model: &mut Model,
        delivered: &mut Vec<StoredEvent>,
        (away, full): (bool, Option<&str>),
        dice: &mut Dice,
    ) {
        let pick = match self.order {
            KeyOrder::Pipelined => 0,
            KeyOrder::OneAtATime => {
                usize::try_from(dice.roll(self.queue.len().max(1) as u64)).unwrap()
            }
        };
        let Some((record, seen)) = self.queue.remove(pick) else {
            return;
        };
        if self.order == KeyOrder::Pipelined {
            self.failed.forget(seen);
        }
        let (ticket, order_key, seq) = (record.ticket(), record.order_key(), record.event().seq());
        let behind = self.order == KeyOrder::Pipelined && self.failed.refuses(order_key, seen);
        // Some are taken all the same: what a relay did not hear of may be refused when it comes
        // again, but for what is suppressed then.
        let progress = self.progress.as_ref();
        let is_known = progress.is_some_and(|progress| progress.accepted.contains(&seq));
        let poison = model.poison.get_mut(&seq).filter(|left| **left > 0);
        let poison = poison.filter(|_| !is_known && !dice.one_in(4));
        let outcome = if self.broken {
            Outcome::unavailable(Cause::LaneEnded, "ended")
        } else if behind {
            Outcome::unavailable(Cause::BehindFailure, "behind")
        } else if away {
            self.broken = true;
            Outcome::unavailable(Cause::Connection, "away")
        } else if full == Some(record.topic()) {
            Outcome::later("full")
        } else if let Some(left) = poison {
            *left -= 1;
            Outcome::rejected(RejectionKind::Other, "poison")
        } else {
            self.accept(model, delivered, &record);
            Outcome::accepted()
        };
        let failure = match outcome {
            Outcome::Accepted(_) => 0,
            _ => self.failed.note(order_key),
        };
        self.verdicts
            .push_back((Verdict { ticket, outcome }, failure));
    }

    /// With progress, an event and the list of what was accepted are committed together.
    fn accept(&mut self, model: &mut Model, delivered: &mut Vec<StoredEvent>, record: &Record) {
        let event = record.event();
        // It may have come before: a relay that crashed did not hear of it, and skipped it in its
        // next life.
        let skipped = model.skipped.contains(&event.seq());
        assert!(!skipped, "{} was skipped, and comes after all", event.seq());
        let Some(progress) = &mut self.progress else {
            return delivered.push(event.clone());
        };
        progress.learned.remove(&event.seq());
        progress.tickets.insert(record.ticket(), event.seq());
        if progress.accepted.insert(event.seq()) {
            delivered.push(event.clone());
            model.progress = Some(progress.accepted.clone());
        }
    }

    pub(crate) fn outcomes(&mut self) -> Vec<Verdict> {
        let told: Vec<_> = self.verdicts.drain(..).collect();
        self.seen = told
            .iter()
            .map(|(_, failure)| *failure)
            .fold(self.seen, u64::max);
        told.into_iter().map(|(verdict, _)| verdict).collect()
    }
}
