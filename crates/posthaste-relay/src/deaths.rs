//! Says which events died. A destination that refuses everything must not fill the log.

use posthaste_engine::{Died, Moment};
use tracing::warn;

use crate::said_once::SAY_EVERY;

/// Lines in a period at the most.
const LINES_MAX: u32 = 10;

/// The deaths of this period: how many were logged, and how many were not.
#[derive(Debug, Default)]
pub(crate) struct Deaths {
    until: Option<Moment>,
    said: u32,
    unsaid: u64,
}

impl Deaths {
    /// To be called from time to time without any as well: what was not said is said in sum.
    pub(crate) fn say(&mut self, destination: &str, died: Vec<Died>, now: Moment) {
        if self.until.is_some_and(|until| until <= now) {
            self.say_rest(destination);
        }
        for died in died {
            if self.said == LINES_MAX {
                self.unsaid += 1;
                continue;
            }
            self.said += 1;
            self.until.get_or_insert(now.after(SAY_EVERY));
            let Died {
                id,
                topic,
                slot,
                kind,
                reason,
                key_waits,
            } = died;
            let key = if key_waits { "its key waits; " } else { "" };
            warn!(
                destination, event = %id, topic, slot, kind,
                "event {id} to `{topic}` is dead ({kind}): {reason}; {key}`posthaste dead show {id}` \
                 shows it"
            );
        }
    }

    /// The end of a period, or of the relay.
    pub(crate) fn say_rest(&mut self, destination: &str) {
        if self.unsaid > 0 {
            warn!(
                destination,
                "{} more events died; `posthaste dead list` shows them", self.unsaid
            );
        }
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn died(count: usize) -> Vec<Died> {
        let one = Died {
            id: uuid::Uuid::nil(),
            topic: "t".to_owned(),
            slot: 1,
            kind: "invalid",
            reason: "no".to_owned(),
            key_waits: true,
        };
        vec![one; count]
    }

    #[test]
    fn a_period_has_so_many_lines_and_one_for_the_rest() {
        let (mut deaths, now) = (Deaths::default(), Moment::default());
        deaths.say("d", died(4), now);
        deaths.say("d", died(100), now);
        assert_eq!((deaths.said, deaths.unsaid), (LINES_MAX, 94));
        deaths.say("d", Vec::new(), now.after(SAY_EVERY));
        assert_eq!((deaths.said, deaths.unsaid), (0, 0));
        // Long after: at once.
        deaths.say("d", died(1), now.after(SAY_EVERY * 9));
        assert_eq!((deaths.said, deaths.unsaid), (1, 0));
    }
}
