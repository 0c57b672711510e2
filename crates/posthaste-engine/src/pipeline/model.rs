//! Tells states of a pipeline apart, for a model without time: every moment is the first one.

use super::Pipeline;
use crate::model::{Out, Part, number};

impl Pipeline {
    /// Describes all that decides what the pipeline does next while every moment is the same.
    /// `rejects`: events may be rejected for good; without that nothing is ever parked, and what
    /// only parked events change is left out.
    #[doc(hidden)]
    pub fn describe(&mut self, rejects: bool, out: Out<'_>) {
        let Self {
            // These never change.
            limits: _,
            info: _,
            router: _,
            reading,
            main,
            side,
            retries,
            waiting,
            trials,
            breaker,
            refusals,
            lane,
            progress,
            reports,
            // Every moment is the first one.
            leave_at: _,
            put_off_alone,
            paused,
            stop_behind,
            stop_leaves,
        } = self;
        let answers = reports.counts.accepted + refusals.total();
        main.describe(answers, out);
        side.describe(answers, rejects, out);
        reading.describe(rejects, out);
        retries.describe(answers, rejects, out);
        waiting.describe(out);
        let tried = trials.last().map_or(0, |last| waiting.suspects_up_to(last));
        trials.describe(answers, tried, out);
        breaker.describe(out);
        refusals.describe(out);
        lane.describe(out);
        progress.describe(out);
        reports.describe(out);
        out(number(*put_off_alone));
        out(Part::Number((*paused).into()));
        out(Part::Text(&format!("{stop_behind:?} {stop_leaves}")));
    }

    /// Whether the pipeline is in a state that [`describe`](Self::describe) tells only where events
    /// may be rejected.
    #[doc(hidden)]
    #[must_use]
    pub fn has_rejected(&self) -> bool {
        self.reports.counts.rejected > 0
            || self.waiting.parked_keys() > 0
            || !self.retries.is_idle()
            || !self.side.is_idle()
    }
}
