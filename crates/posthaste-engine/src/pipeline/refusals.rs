//! Refused events in any number: events at fault, or a destination that refuses everything.
//!
//! Nobody can tell the two apart before something else is accepted. So each event is tried once as
//! soon as it is read. Refused ones are parked, ever more slowly: that makes room for others behind
//! them. Those that may not be parked yet wait in the window. They are tried again once they may,
//! and a few at a time beside that, so that a mended destination is noticed.

use std::{collections::HashMap, ops::RangeInclusive, time::Duration};

use crate::{
    Backoff, Moment, RejectionKind,
    rule::{Rule, left_out},
};

/// How long answers are counted together when rejections are weighed.
const MINUTE: Duration = Duration::from_secs(60);

/// So many topics that are refused alike each count alone: a destination that refuses everything
/// refuses few topics often, or more than anybody names by mistake.
const TOPICS_ALONE: RangeInclusive<usize> = 101..=10_000;

/// A destination that refuses everything for an hour parks, in so many steps, as many events as
/// keys may be blocked: with the default `probe`, the first step lasts for a second.
const STEPS_OF_AN_HOUR: usize = 12;

/// Half of a step at the least: steps that never end would be counted for ever.
const SHORTEST_STEP: Duration = Duration::from_millis(1);

/// A minute's rejections of one kind.
#[derive(Debug, Clone, Default)]
struct Rejections {
    all: u64,
    /// Of each topic, by its hash, where people mend at the broker what is wrong with that topic.
    /// Once there are too many to count alone no further ones are kept.
    of_topics: HashMap<u64, u64>,
}

impl Rejections {
    /// Counts one more; answers how many count together with it.
    fn count(&mut self, kind: RejectionKind, topic: u64) -> u64 {
        self.all += 1;
        if !kind.is_mended_at_the_broker() || self.of_topics.len() > *TOPICS_ALONE.end() {
            return self.all;
        }
        let alike = self.of_topics.entry(topic).or_default();
        *alike += 1;
        let alike = *alike;
        match TOPICS_ALONE.contains(&self.of_topics.len()) {
            true => alike,
            false => self.all,
        }
    }
}

/// Most answers are rejections.
#[derive(Debug, Clone)]
struct Broken {
    /// Events that may still be parked in this step.
    room: usize,
    /// How long this step lasts; each one lasts twice as long as the one before.
    step: Duration,
    next_step: Moment,
}

/// Decides which refused events are parked, and when the others are tried again.
#[derive(Debug, Clone)]
pub(super) struct Refusals {
    probe: Backoff,
    /// In a minute, that are taken for events at fault.
    rejections_max: u64,
    /// Parked in one step at the most.
    step_events: usize,
    /// Rejections so far.
    total: u64,
    minute_began: Moment,
    answers: u64,
    rejections: HashMap<RejectionKind, Rejections>,
    broken: Option<Broken>,
    /// Why events that were refused wait.
    reason: String,
    /// Probes in a row of events that were refused before.
    probes: u32,
    next_probe: Moment,
    /// Nothing that may be parked is looked for before.
    look_at: Moment,
}

impl Refusals {
    /// Takes so many rejections in a minute for events at fault, whatever their share. Events that
    /// were refused are tried again after `probe`'s waits; `keys_max` keys may be blocked.
    pub(super) fn new(probe: Backoff, rejections_max: u64, keys_max: usize) -> Self {
        Self {
            probe,
            rejections_max,
            step_events: (keys_max / STEPS_OF_AN_HOUR).max(1),
            total: 0,
            minute_began: Moment::default(),
            answers: 0,
            rejections: HashMap::new(),
            broken: None,
            reason: String::new(),
            probes: 0,
            next_probe: Moment::default(),
            look_at: Moment::default(),
        }
    }

    /// Why events that were refused wait, while they do.
    pub(super) fn reason(&self) -> &str {
        &self.reason
    }

    /// Whether most answers were rejections, and nothing was accepted since.
    pub(super) fn is_broken(&self) -> bool {
        self.broken.is_some()
    }

    /// Rejections so far: each is an answer of a destination that is there.
    pub(super) fn total(&self) -> u64 {
        self.total
    }

    /// The destination accepted events. Whether it is not broken any more.
    pub(super) fn accepted(&mut self, events: u64, now: Moment) -> bool {
        self.count(now);
        self.answers += events;
        self.broken.take().is_some()
    }

    /// An event that had been refused was accepted.
    pub(super) fn mended(&mut self) {
        self.probes = 0;
    }

    /// The destination rejected an event of this topic, which is a hash. More than half of a
    /// minute's answers that are rejections alike are no events at fault but a broken destination.
    pub(super) fn rejected(&mut self, kind: RejectionKind, topic: u64, reason: &str, now: Moment) {
        self.count(now);
        self.total += 1;
        self.answers += 1;
        let same = self.rejections.entry(kind).or_default().count(kind, topic);
        if self.broken.is_none() && same > self.rejections_max && same * 2 > self.answers {
            self.reason = format!(
                "{same} of {} answers were rejections: {reason}; they are parked ever more slowly, \
                 and once it takes them `posthaste dead retry --all` sends them at once",
                self.answers
            );
            let step = self.probe.first.max(SHORTEST_STEP) * 2;
            self.broken = Some(Broken {
                room: self.step_events,
                step,
                next_step: now.after(step),
            });
        }
    }

    /// A refused event waits because so many keys are blocked already.
    pub(super) fn too_many_keys(&mut self, keys: usize, reason: &str) {
        self.reason = format!(
            "{keys} keys are blocked, as many as may be: {reason}; `posthaste dead retry --all` \
             sends their events again, `dead skip` and `dead discard` give them up"
        );
    }

    /// Whether a refused event may be parked. It is, then.
    pub(super) fn park(&mut self) -> bool {
        let Some(broken) = &mut self.broken else {
            return true;
        };
        let may = broken.room > 0;
        broken.room = broken.room.saturating_sub(1);
        may
    }

    /// None of those that may be parked is ready.
    pub(super) fn look_later(&mut self, now: Moment) {
        self.look_at = now.after(self.probe.first);
    }

    /// How many refused events may be parked.
    pub(super) fn room(&mut self, now: Moment) -> usize {
        if now < self.look_at {
            return 0;
        }
        let Some(broken) = &mut self.broken else {
            return usize::MAX;
        };
        while broken.next_step <= now {
            broken.room += self.step_events;
            if !left_out(Rule::StepsOfRefusalsDouble) {
                broken.step *= 2;
            }
            broken.next_step = broken.next_step.after(broken.step);
        }
        broken.room
    }

    /// Whether some that were refused are to be tried again. They are, then.
    pub(super) fn probe(&mut self, now: Moment) -> bool {
        let is_due = self.next_probe <= now;
        if is_due {
            self.probes = self.probes.saturating_add(1);
            // Others of the herd began at other moments.
            self.next_probe = now.after(self.probe.delay(self.probes, 0.5));
        }
        is_due
    }

    /// When more may be parked, or some are tried again, later than `now`.
    pub(super) fn next_turn(&self, now: Moment) -> Option<Moment> {
        let next_step = self.broken.as_ref().map(|broken| broken.next_step);
        let turns = [next_step, Some(self.look_at), Some(self.next_probe)];
        turns.into_iter().flatten().filter(|&at| at > now).min()
    }

    fn count(&mut self, now: Moment) {
        if self.minute_began.until(now) >= MINUTE {
            self.minute_began = now;
            self.answers = 0;
            self.rejections.clear();
        }
    }

    #[cfg(feature = "model")]
    pub(super) fn describe(&self, out: crate::model::Out<'_>) {
        use crate::model::{Part, number};
        let Self {
            // These never change.
            probe: _,
            rejections_max: _,
            step_events: _,
            // Compared where it is described.
            total: _,
            minute_began: _,
            // A model has far fewer answers than it takes to break a destination.
            answers: _,
            rejections: _,
            broken,
            // For operators alone.
            reason: _,
            // Only the length of a wait hangs on it, and no time passes.
            probes: _,
            next_probe: _,
            look_at: _,
        } = self;
        let room = broken.as_ref().map(|broken| broken.room);
        out(Part::Number(room.is_some().into()));
        out(number(room.unwrap_or_default()));
    }
}

#[cfg(test)]
mod tests;
