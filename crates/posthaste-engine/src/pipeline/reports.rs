//! Reports to operators: numbers, the breaker's state, ages of accepted events, and refused events.

use std::time::Duration;

use super::{breaker::BreakerState, change::Change};
use crate::{Moment, Rejection, StoredEvent, wire_id_room};

/// The reason of a trouble that the store knows of is told anew so often at the most: how many
/// places are held back may change with each answer.
const WORDS_EVERY: Duration = Duration::from_secs(1);

/// Numbers of events and failures; they only grow.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Events accepted by the broker.
    pub accepted: u64,
    /// Those among them that the broker had already, and keeps no second time.
    pub duplicates: u64,
    /// Events rejected by the broker, each attempt counted.
    pub rejected: u64,
    /// Events that their place refused for now, each time counted.
    pub later: u64,
    /// Failures of the destination.
    pub unavailable: u64,
    /// Events parked.
    pub parked: u64,
    /// Events that no route takes, here or at any other destination.
    pub unrouted: u64,
    /// Events read.
    pub read: u64,
    /// Events sent again although the fate of their first sending is unknown.
    pub repeated: u64,
}

/// An event that wants an operator: its attempts are used up, or it was refused for the first time,
/// for what people mend at the broker. Its other fields are not for everybody's eyes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refused {
    /// The event's wire id.
    pub id: String,
    /// Its topic, as it was written.
    pub topic: String,
    /// The slot of its key.
    pub slot: u16,
    /// The class of the failure ([`crate::RejectionKind::as_str`]).
    pub kind: &'static str,
    /// The broker's last answer.
    pub reason: String,
    /// Whether its key waits for it.
    pub key_waits: bool,
    /// Whether it is tried no more.
    pub is_dead: bool,
}

/// A place that takes nothing for now, or not everything yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeldPlace {
    /// Its topic, as the broker knows it, or `topic/part` ([`crate::TopicParts`]).
    pub name: Box<str>,
    /// The broker's answer in words.
    pub reason: Box<str>,
    /// How long it has taken nothing, or not everything.
    pub held_for: Duration,
    /// It is tried: its events flow again, or one of them is to show whether they can.
    pub returns: bool,
    /// An operator has paused it: it is not tried.
    pub is_paused: bool,
    /// Its events that were read and are not finished.
    pub in_memory: usize,
    /// Its events that were parked since then, so that they do not fill the memory. Later
    /// events of their keys are not counted.
    pub set_aside: usize,
}

impl HeldPlace {
    /// Another relay holds the same place back.
    pub(crate) fn and(&mut self, other: Self) {
        self.returns &= other.returns;
        self.is_paused |= other.is_paused;
        self.in_memory += other.in_memory;
        self.set_aside += other.set_aside;
        if other.held_for > self.held_for {
            (self.held_for, self.reason) = (other.held_for, other.reason);
        }
    }
}

#[derive(Debug, Clone)]
pub(super) struct Reports {
    pub(super) counts: Counts,
    /// The breaker as the store was told.
    told: (&'static str, Option<String>),
    told_at: Moment,
    /// When the accepted events were inserted, since they were last asked for.
    accepted_inserted_at: Vec<i64>,
    refused: Vec<Refused>,
}

impl Reports {
    pub(super) fn new() -> Self {
        Self {
            counts: Counts::default(),
            told: ("", None),
            told_at: Moment::default(),
            accepted_inserted_at: Vec::new(),
            refused: Vec::new(),
        }
    }

    /// The store knows already that the destination is away.
    pub(super) fn store_knows_of_an_outage(&mut self) {
        self.told.0 = OPEN;
    }

    /// The report that the store is owed. `reached`: a lane was opened.
    pub(super) fn next(
        &mut self,
        state: BreakerState,
        last_error: Option<&str>,
        reached: bool,
        now: Moment,
    ) -> Option<Change> {
        // A probe is part of the outage: operators see one episode, and the store one write.
        let breaker = match state {
            // Whether the destination is reached is not known before.
            BreakerState::Closed if !reached => return None,
            BreakerState::Closed => state.as_str(),
            BreakerState::Open { .. } | BreakerState::HalfOpen => OPEN,
        };
        if (breaker, last_error) == (self.told.0, self.told.1.as_deref()) {
            return None;
        }
        let only_words = breaker == self.told.0 && last_error.is_some() && self.told.1.is_some();
        if only_words && now < self.told_at.after(WORDS_EVERY) {
            return None;
        }
        self.told = (breaker, last_error.map(str::to_owned));
        self.told_at = now;
        Some(Change::Report {
            breaker,
            last_error: self.told.1.clone(),
        })
    }

    pub(super) fn accepted(&mut self, inserted_at: i64) {
        self.accepted_inserted_at.push(inserted_at);
    }

    pub(super) fn take_accepted_inserted_at(&mut self) -> std::vec::Drain<'_, i64> {
        self.accepted_inserted_at.drain(..)
    }

    pub(super) fn refused(
        &mut self,
        event: &StoredEvent,
        rejection: &Rejection,
        key_waits: bool,
        is_dead: bool,
    ) {
        self.refused.push(Refused {
            id: event.wire_id(&mut wire_id_room()).to_owned(),
            topic: event.topic().to_owned(),
            slot: event.slot(),
            kind: rejection.kind.as_str(),
            reason: rejection.reason.clone(),
            key_waits,
            is_dead,
        });
    }

    pub(super) fn take_refused(&mut self) -> Vec<Refused> {
        std::mem::take(&mut self.refused)
    }

    #[cfg(feature = "model")]
    pub(super) fn describe(&self, out: crate::model::Out<'_>) {
        let Self {
            // They only grow; where one is compared, the result is described there.
            counts: _,
            told,
            // Every moment is the first one.
            told_at: _,
            // For the runner alone: they decide nothing.
            accepted_inserted_at: _,
            refused: _,
        } = self;
        out(crate::model::Part::Text(&format!("{told:?}")));
    }
}

/// The state that the store knows of a breaker that is not closed.
const OPEN: &str = "open";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_store_is_told_of_an_outage_once() {
        let mut reports = Reports::new();
        let mut now = Moment::default();
        let mut told = |state, error, reached| {
            now = now.after(WORDS_EVERY);
            reports.next(state, error, reached, now).is_some()
        };
        let (closed, half_open) = (BreakerState::Closed, BreakerState::HalfOpen);
        let open = BreakerState::Open {
            until: Moment::default(),
        };
        assert!(!told(closed, None, false), "nothing was tried yet");
        assert!(told(closed, None, true) && !told(closed, None, true));
        assert!(told(open, Some("away"), true) && !told(half_open, Some("away"), true));
        assert!(told(open, Some("refused"), true) && told(closed, None, true));
    }

    #[test]
    fn words_that_change_all_the_time_are_told_once_a_second() {
        let (mut reports, mut told) = (Reports::new(), 0);
        for tenth in 0..100 {
            let now = Moment(Duration::from_millis(tenth * 100));
            let words = format!("full (and {tenth} more)");
            let report = reports.next(BreakerState::Closed, Some(&words), true, now);
            told += usize::from(report.is_some());
        }
        let now = Moment(Duration::from_millis(9_950));
        let healed = reports.next(BreakerState::Closed, None, true, now);
        assert!(told == 10 && healed.is_some(), "{told} were told");
    }
}
