//! Says which events were refused, and which died of it. A destination that refuses everything must
//! not fill the log.

use posthaste_engine::{Moment, Refused};
use tracing::warn;

use crate::said_once::SAY_EVERY;

/// Lines in a period at the most.
const LINES_MAX: u32 = 10;

/// The refusals of this period: how many were logged, and how many were not.
#[derive(Debug, Default)]
pub(crate) struct RefusedEvents {
    until: Option<Moment>,
    said: u32,
    unsaid: u64,
}

impl RefusedEvents {
    /// To be called from time to time without any as well: what was not said is said in sum.
    pub(crate) fn say(&mut self, destination: &str, refused: Vec<Refused>, now: Moment) {
        if self.until.is_some_and(|until| until <= now) {
            self.say_rest(destination);
        }
        for refused in refused {
            if self.said == LINES_MAX {
                self.unsaid += 1;
                continue;
            }
            self.said += 1;
            self.until.get_or_insert(now.after(SAY_EVERY));
            let Refused {
                id,
                topic,
                slot,
                kind,
                reason,
                key_waits,
                is_dead,
            } = refused;
            let key = if key_waits { "its key waits; " } else { "" };
            let (state, next) = match is_dead {
                true => ("dead", ""),
                false => ("refused", "it is tried again until that is mended; "),
            };
            warn!(
                destination, event = %id, topic, slot, kind,
                "event {id} to `{topic}` is {state} ({kind}): {reason}; {key}{next}`posthaste dead \
                 show {id}` shows it"
            );
        }
    }

    /// The end of a period, or of the relay.
    pub(crate) fn say_rest(&mut self, destination: &str) {
        if self.unsaid > 0 {
            warn!(
                destination,
                "{} more events were refused; `posthaste dead list` shows them", self.unsaid
            );
        }
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(count: usize) -> Vec<Refused> {
        let one = Refused {
            id: "an id".to_owned(),
            topic: "t".to_owned(),
            slot: 1,
            kind: "invalid",
            reason: "no".to_owned(),
            key_waits: true,
            is_dead: true,
        };
        vec![one; count]
    }

    #[test]
    fn a_period_has_so_many_lines_and_one_for_the_rest() {
        let (mut events, now) = (RefusedEvents::default(), Moment::default());
        events.say("d", refused(4), now);
        events.say("d", refused(100), now);
        assert_eq!((events.said, events.unsaid), (LINES_MAX, 94));
        events.say("d", Vec::new(), now.after(SAY_EVERY));
        assert_eq!((events.said, events.unsaid), (0, 0));
        // Long after: at once.
        events.say("d", refused(1), now.after(SAY_EVERY * 9));
        assert_eq!((events.said, events.unsaid), (1, 0));
    }
}
