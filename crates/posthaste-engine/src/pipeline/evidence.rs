//! Evidence against one event over which lanes fail, although the destination says no more than
//! that it is unavailable: an outage that began there by chance, or an event that ends every
//! connection, or silences it.
//!
//! Only other events tell the two apart. All that was in flight waits as suspects while others are
//! sent. When these are accepted, a suspect is tried with nothing else in flight (`trials.rs`): a
//! write that fails as a whole says nothing about any of its events. A suspect that is accepted is
//! cleared. One over which lanes fail alone, time and again, is at fault.

use super::trials::Failed;

/// How often an event may fail although others were answered since its last failure, before it
/// counts as the one at fault: an outage begins once at the very moment at which a suspect is
/// tried, but not every time.
pub(super) const FAILS_ALONE_MAX: u32 = 5;

/// Gathered against one event, for as long as this relay handles it.
#[derive(Debug, Clone, Default)]
pub(super) struct Evidence {
    /// How often a lane failed over it alone although others had been accepted, or refused for
    /// their own sake, since its last failure.
    alone: u32,
    /// The number of events that the destination had answered so when this one last failed.
    answers_at_failure: Option<u64>,
}

impl Evidence {
    /// A lane failed over the event and others, when so many events had been answered in all.
    pub(super) fn failed_among_others(&mut self, answers: u64) {
        self.answers_at_failure.get_or_insert(answers);
    }

    /// A lane failed over the event, alone or among others, when so many events had been answered
    /// in all. Answers how; none: the event is at fault.
    pub(super) fn failed(&mut self, is_alone: bool, answers: u64) -> Option<Failed> {
        if !is_alone {
            self.failed_among_others(answers);
            return Some(Failed::AmongOthers);
        }
        let before = self.answers_at_failure.replace(answers);
        self.alone += u32::from(before.is_some_and(|before| answers > before));
        match self.alone {
            0 => Some(Failed::Alone),
            alone if alone < FAILS_ALONE_MAX => Some(Failed::BesideAnswers),
            _ => None,
        }
    }

    pub(super) fn is_none(&self) -> bool {
        self.alone == 0 && self.answers_at_failure.is_none()
    }

    /// Whether it looks as if the event were at fault.
    pub(super) fn is_against(&self) -> bool {
        self.alone > 0
    }

    /// `answers`: how many events the destination has accepted or refused by now.
    #[cfg(feature = "model")]
    pub(super) fn describe(&self, answers: u64, out: crate::model::Out<'_>) {
        let Self {
            alone,
            answers_at_failure,
        } = self;
        out(crate::model::Part::Number((*alone).into()));
        // Only whether others were answered since is ever asked.
        let others = answers_at_failure.map_or(0, |then| 1 + u64::from(answers > then));
        out(crate::model::Part::Number(others));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_failures_behind_which_others_were_accepted_count() {
        let mut evidence = Evidence::default();
        assert!(
            (0..100).all(|_| evidence.failed(true, 7).is_some()),
            "an outage"
        );
        let at_fault = (8..100).position(|accepted| evidence.failed(true, accepted).is_none());
        assert_eq!(at_fault, Some(FAILS_ALONE_MAX as usize - 1));
    }
}
