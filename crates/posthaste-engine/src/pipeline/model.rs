//! Tells states of a pipeline apart, for a model without time: every moment is the first one.

use super::{Pipeline, UnderWay};
use crate::model::{Out, Part, number};

impl Pipeline {
    /// Describes all that decides what the pipeline does next while every moment is the same and no event is
    /// rejected, so that nothing is parked. Counters that nothing compares are left out.
    #[doc(hidden)]
    pub fn describe(&mut self, out: Out<'_>) {
        self.main.describe(out);
        self.side.window.describe(out);
        self.suspects.describe(out);
        self.throttled.describe(out);
        let flags = [self.due_seen, self.reading, self.paused];
        flags
            .iter()
            .for_each(|&flag| out(Part::Number(flag.into())));
        out(number(self.in_flight));
        out(number(self.unstored.0));
        out(number(self.unstored.1));
        out(Part::Text(&format!(
            "{:?} {:?} {:?} {:?} {:?} {:?} {:?}",
            self.lane,
            self.breaker.state(crate::Moment::default()),
            self.ramp,
            self.lane_not_before,
            self.due_at,
            self.reported,
            self.stop_behind,
        )));
        match &self.change {
            None => out(Part::Number(0)),
            Some(UnderWay::Advance { events, bytes }) => {
                out(Part::Number(1));
                out(number(*events));
                out(number(*bytes));
            }
            Some(other) => out(Part::Text(&format!("{other:?}"))),
        }
        out(Part::Number(self.passed.is_some().into()));
        if let Some(passed) = &self.passed {
            passed.up_to.describe(out);
            out(number(passed.events));
            out(Part::Number(passed.wanted.into()));
        }
    }

    /// Describes what [`describe`](Self::describe) leaves out: all that decides what becomes of rejected
    /// events, and the side read.
    #[doc(hidden)]
    pub fn describe_set_aside(&self, out: Out<'_>) {
        let (blocked, beyond) = self.blocked.parts();
        out(number(beyond));
        let mut keys: Vec<&String> = blocked.iter().collect();
        keys.sort();
        out(number(keys.len()));
        keys.iter().for_each(|key| out(Part::Text(key)));
        let set_aside = self.set_aside.iter();
        // The model emits no id twice, and numbers of its own would part states that are alike.
        let mut set_aside: Vec<String> = set_aside.map(|of| of.id.to_string()).collect();
        set_aside.sort();
        out(number(set_aside.len()));
        set_aside.iter().for_each(|of| out(Part::Text(of)));
        let mut probed: Vec<u64> = self.probed.iter().copied().collect();
        probed.sort_unstable();
        out(number(probed.len()));
        probed.iter().for_each(|&name| out(Part::Number(name)));
        out(number(self.failed));
        let joinable = self.joinable.as_ref();
        for is in [
            self.drain_target.is_some(),
            self.stands_joinable,
            joinable.is_some(),
        ] {
            out(Part::Number(is.into()));
        }
        if let Some(joinable) = joinable {
            joinable.describe(out);
        }
        self.retries.describe(out);
        self.side.describe(out);
    }

    /// Whether the pipeline is in a state that [`describe`](Self::describe) does not tell wholly: something was
    /// rejected.
    #[doc(hidden)]
    #[must_use]
    pub fn has_rejected(&self) -> bool {
        self.counts.rejected > 0
            || self.blocked.len() > 0
            || !self.retries.is_idle()
            || !self.side.is_idle()
    }
}
