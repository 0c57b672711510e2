//! Trials: suspects are sent with nothing else in flight, all others between two trials.
//!
//! A trial that passes is followed by one of twice as many; one that fails at a destination that
//! answers others, by one of a single suspect. From its failure on the others have as long as it
//! took, so that any number of events that end lanes takes them half of their time.

use std::time::Duration;

use crate::Moment;

/// So long after the first failure some of the others are kept, and sent one in each turn: only
/// their answers show that a suspect is at fault, and perhaps no more events come. A lane that
/// falls silent takes eight seconds by default, and five such failures are needed.
const WITNESSES_FOR: Duration = Duration::from_secs(30);
/// They are kept again so long after they were last: a copy of an event that was parked may fail so
/// each time that it is tried again.
const WITNESSES_EVERY: Duration = Duration::from_secs(300);
/// The others have a turn so long after the first trial, even where none fails.
const TURN_MAX: Duration = Duration::from_secs(5);
/// The others' turn takes so long at the most: the first trial may lie an outage back.
const OTHERS_MAX: Duration = Duration::from_secs(10);
/// The others' turn takes at least so long: enough for a lane that begins slowly. The next trial
/// comes no sooner after one that failed, so that no more than four lanes end in a second.
pub(super) const OTHERS_MIN: Duration = Duration::from_millis(250);
/// The first trial, before one has failed.
const FIRST_TRIAL: usize = 10;
/// So many of a destination that answers nothing follow soon after one another.
const UNANSWERED_SOON_MAX: u32 = 64;
/// After so many it is no outage that began by chance, or one that lasts.
const UNANSWERED_LONG: u32 = 3;

/// How a suspect failed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Failed {
    /// With others in flight.
    #[default]
    AmongOthers,
    /// Alone, perhaps in an outage.
    Alone,
    /// Alone, though others had been answered since it had failed before.
    BesideAnswers,
}

/// The order in which suspects are tried: those last that failed alone, which others need not wait
/// for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Rank {
    pub(super) failed: Failed,
    pub(super) number: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Turn {
    /// The others', until then.
    Others(Moment),
    Suspects,
    /// The suspects' turn has ended, and nothing was sent since.
    Over,
}

/// The meaning of a failed lane for the destination.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Tells {
    /// It was a trial, and the destination has answered since the last one that failed: it is
    /// there.
    ItIsThere,
    /// It was the first trial of these suspects. The next ones are tried soon.
    OfTheseSuspects,
    /// It may be away.
    Nothing,
}

/// Suspects in flight, and nothing else.
#[derive(Debug, Clone, Copy)]
struct Trial {
    suspects: usize,
    /// None of them was tried before.
    is_first: bool,
}

#[derive(Debug, Clone)]
pub(super) struct Trials {
    turn: Turn,
    /// When the first trial of this turn was sent.
    first_trial: Option<Moment>,
    /// No trial is sent before.
    not_before: Moment,
    /// Suspects of the next trial at the most.
    at_once: usize,
    in_flight: Option<Trial>,
    /// The number of events that the destination had answered when a lane failed last.
    answers_at_failure: Option<u64>,
    /// How many trials failed without an answer in between.
    unanswered: u32,
    /// How many lanes failed.
    failed: u32,
    /// The last suspect that was tried since the last failure.
    last: Option<Rank>,
    /// When witnesses were last kept.
    witnesses_since: Option<Moment>,
    /// Nothing of the others was sent since a lane ended, or since the suspects' turn.
    others_begin: bool,
}

impl Trials {
    pub(super) fn new() -> Self {
        Self {
            turn: Turn::Others(Moment::default()),
            first_trial: None,
            not_before: Moment::default(),
            at_once: FIRST_TRIAL,
            in_flight: None,
            answers_at_failure: None,
            unanswered: 0,
            failed: 0,
            last: None,
            witnesses_since: None,
            others_begin: true,
        }
    }

    /// Nothing is in flight: a trial has passed, if one was under way.
    pub(super) fn nothing_in_flight(&mut self) {
        if let Some(passed) = self.in_flight.take() {
            self.at_once = self.at_once.max(passed.suspects.saturating_mul(2));
        }
    }

    pub(super) fn is_under_way(&self) -> bool {
        self.in_flight.is_some()
    }

    /// Whether the suspects have their turn, now that something may be sent.
    pub(super) fn have_their_turn(&mut self, now: Moment) -> bool {
        let lasts = self.first_trial.map(|first| first.until(now));
        match self.turn {
            Turn::Suspects if lasts.is_none_or(|lasts| lasts < TURN_MAX) => {}
            Turn::Suspects | Turn::Over => {
                let as_long = lasts.unwrap_or_default().clamp(OTHERS_MIN, OTHERS_MAX);
                self.turn = Turn::Others(now.after(as_long));
            }
            Turn::Others(until) if until <= now => {
                self.turn = Turn::Suspects;
                self.first_trial = None;
            }
            Turn::Others(_) => {}
        }
        self.turn == Turn::Suspects && self.may_begin(now)
    }

    /// Whether enough time has passed since the last failure.
    pub(super) fn may_begin(&self, now: Moment) -> bool {
        self.not_before <= now
    }

    /// Nothing is to be gained from more of the others before the next trial.
    pub(super) fn others_have_had_their_turn(&mut self, now: Moment) {
        if let Turn::Others(until) = self.turn {
            self.turn = Turn::Others(until.min(now));
        }
    }

    /// The moments at which more may be sent than before, past ones too.
    pub(super) fn turns(&self) -> [Option<Moment>; 3] {
        let others_until = match self.turn {
            Turn::Others(until) => Some(until),
            Turn::Suspects | Turn::Over => None,
        };
        let witnesses_until = self.witnesses_since.map(|since| since.after(WITNESSES_FOR));
        [Some(self.not_before), others_until, witnesses_until]
    }

    /// How many suspects may be sent at once.
    pub(super) fn at_once(&self) -> usize {
        self.at_once
    }

    /// The suspects behind this one are tried next. None: those behind a part of them, another part
    /// after each failure ([`part`]).
    pub(super) fn last(&self) -> Result<Rank, u32> {
        self.last.ok_or(self.failed)
    }

    /// So many suspects were sent, from the first to the second one if these are known.
    pub(super) fn sent(&mut self, suspects: usize, ranks: Option<(Rank, Rank)>, now: Moment) {
        let is_first = ranks.is_some_and(|(first, _)| first.failed == Failed::AmongOthers);
        self.in_flight = Some(Trial { suspects, is_first });
        self.first_trial.get_or_insert(now);
        self.last = ranks.map(|(_, last)| last).or(self.last);
        self.others_begin = true;
    }

    /// The part of the window behind which the others begin, if they do.
    pub(super) fn others_begin(&mut self) -> Option<u32> {
        std::mem::take(&mut self.others_begin).then_some(self.failed)
    }

    /// Whether the destination has answered since a lane failed.
    pub(super) fn is_answered(&self, answers: u64) -> bool {
        self.answers_at_failure != Some(answers)
    }

    /// Whether some trials have failed, and the destination has answered nothing in between.
    pub(super) fn are_long_unanswered(&self) -> bool {
        self.unanswered >= UNANSWERED_LONG
    }

    /// Whether a few of the others are kept.
    pub(super) fn keep_witnesses(&self, now: Moment) -> bool {
        let since = self.witnesses_since.unwrap_or(now);
        since.until(now) < WITNESSES_FOR
    }

    /// A lane failed over what was in flight, when so many events had been answered in all.
    pub(super) fn lane_failed(&mut self, answers: u64, now: Moment) -> Tells {
        let is_long_ago = |since: Moment| since.until(now) >= WITNESSES_EVERY;
        if self.witnesses_since.is_none_or(is_long_ago) {
            self.witnesses_since = Some(now);
        }
        let is_answered = self.is_answered(answers);
        self.answers_at_failure = Some(answers);
        self.failed = self.failed.wrapping_add(1);
        self.others_begin = true;
        self.last = None;
        self.not_before = now.after(OTHERS_MIN);
        let Some(trial) = self.in_flight.take() else {
            return Tells::Nothing;
        };
        if self.turn == Turn::Suspects {
            self.turn = Turn::Over;
        }
        if is_answered {
            self.at_once = 1;
            self.unanswered = 0;
            return Tells::ItIsThere;
        }
        self.unanswered = self.unanswered.saturating_add(1);
        match trial.is_first && self.unanswered <= UNANSWERED_SOON_MAX {
            true => Tells::OfTheseSuspects,
            false => Tells::Nothing,
        }
    }

    /// There is no suspect any more.
    pub(super) fn end(&mut self) {
        *self = Self {
            in_flight: self.in_flight,
            witnesses_since: self.witnesses_since,
            ..Self::new()
        };
    }

    /// `tried`: how many suspects stand in front of the next one.
    #[cfg(feature = "model")]
    pub(super) fn describe(&self, answers: u64, tried: usize, out: crate::model::Out<'_>) {
        let Self {
            turn,
            // Every moment is the first one.
            first_trial: _,
            not_before: _,
            at_once,
            in_flight,
            answers_at_failure,
            // Otherwise only the length of a wait hangs on it, and no time passes.
            unanswered,
            failed,
            // Told as its place in their order.
            last: _,
            // Every moment is the first one.
            witnesses_since: _,
            others_begin,
        } = self;
        // Only whether the destination has answered since is ever asked.
        let answered = *answers_at_failure != Some(answers);
        let unanswered = (*unanswered).min(UNANSWERED_LONG);
        let text = format!(
            "{turn:?} {at_once} {in_flight:?} {answered} {unanswered} {failed} {tried} \
             {others_begin}"
        );
        out(crate::model::Part::Text(&text));
    }
}

/// A part of so many, another one for each number: none for 0 and 1, then the first half, the first
/// quarter, the first three quarters, and so on.
pub(super) fn part(of: usize, number: u32) -> usize {
    let bits = number.saturating_sub(1).reverse_bits();
    usize::try_from((of as u64 * u64::from(bits)) >> 32).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(milliseconds: u64) -> Moment {
        Moment::default().after(Duration::from_millis(milliseconds))
    }

    #[test]
    fn others_have_as_long_as_the_suspects_and_the_lane_that_they_ended() {
        let mut trials = Trials::new();
        assert!(trials.have_their_turn(at(0)));
        trials.sent(trials.at_once(), None, at(0));
        assert_eq!(trials.lane_failed(7, at(0)), Tells::ItIsThere);
        // A new lane took three seconds.
        assert!(!trials.have_their_turn(at(3_000)));
        assert!(!trials.have_their_turn(at(5_999)));
        assert!(trials.have_their_turn(at(6_000)));
        // It waits for what was in flight.
        assert!(trials.have_their_turn(at(20_000)));
        trials.sent(1, None, at(20_000));
        trials.nothing_in_flight();
        assert!(trials.have_their_turn(at(24_999)));
        assert!(!trials.have_their_turn(at(25_000)), "without a failure");
        assert!(!trials.have_their_turn(at(29_999)));
        assert!(trials.have_their_turn(at(30_000)));
        trials.sent(1, None, at(30_000));
        trials.lane_failed(8, at(31_000));
        // An outage of an hour followed.
        assert!(!trials.have_their_turn(at(3_600_000)));
        assert!(trials.have_their_turn(at(3_610_000)));
    }

    #[test]
    fn a_trial_follows_a_failed_one_after_a_quarter_of_a_second() {
        let mut trials = Trials::new();
        trials.sent(1, None, at(0));
        trials.lane_failed(7, at(0));
        trials.have_their_turn(at(0));
        for (now, may_begin) in [(100, false), (249, false), (250, true)] {
            trials.others_have_had_their_turn(at(now));
            assert_eq!(trials.have_their_turn(at(now)), may_begin, "{now}");
        }
    }

    #[test]
    fn trials_that_pass_double_and_one_that_fails_is_followed_by_one_suspect() {
        let mut trials = Trials::new();
        let mut sizes = Vec::new();
        for _ in 0..4 {
            sizes.push(trials.at_once());
            trials.sent(trials.at_once(), None, at(0));
            trials.nothing_in_flight();
        }
        assert_eq!(sizes, [10, 20, 40, 80]);
        trials.sent(160, None, at(0));
        assert_eq!(trials.lane_failed(1, at(0)), Tells::ItIsThere);
        assert_eq!(trials.at_once(), 1);
        let mut fails_alone = |failed: Failed, answers: u64| {
            let rank = Rank { failed, number: 0 };
            trials.sent(1, Some((rank, rank)), at(0));
            trials.lane_failed(answers, at(0))
        };
        assert_eq!(fails_alone(Failed::AmongOthers, 1), Tells::OfTheseSuspects);
        assert_eq!(fails_alone(Failed::Alone, 1), Tells::Nothing);
        assert_eq!(fails_alone(Failed::Alone, 2), Tells::ItIsThere);
        assert_eq!(
            trials.lane_failed(3, at(0)),
            Tells::Nothing,
            "others failed"
        );
    }
}
