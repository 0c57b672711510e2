//! Tells states of a window apart.

use super::{Entry, PageEnd, Passed, State, Window};
use crate::model::{Out, Part, number};

impl Window {
    /// `answers`: how many events the destination has accepted or refused by now.
    pub(in crate::pipeline) fn describe(&self, answers: u64, out: Out<'_>) {
        let Self {
            // Never changes.
            order: _,
            first,
            entries,
            pages,
            ready,
            ready_stale,
            passed_over,
            passed_part,
            // These follow from the entries.
            queues: _,
            failed: _,
            failed_events: _,
            done_prefix: _,
        } = self;
        out(Part::Number(*first));
        let mut passed_over: Vec<_> = passed_over.iter().copied().collect();
        passed_over.sort_unstable();
        out(number(passed_over.len()));
        passed_over
            .into_iter()
            .for_each(|key| out(Part::Number(key)));
        out(Part::Number((*passed_part).into()));
        out(number(entries.len()));
        for entry in entries {
            let Entry {
                event,
                state,
                evidence,
                maybe_sent,
                // The event's own.
                order_key: _,
                bytes: _,
            } = entry;
            out(Part::Event(event));
            out(Part::Number(match state {
                State::Ready => 0,
                // A batch's number decides nothing.
                State::Sent { batch: _ } => 1,
                // There is one reason in a model.
                State::Failed(_) => 2,
                State::Parking => 3,
                State::Done { finished } => 4 + u64::from(*finished),
            }));
            evidence.describe(answers, out);
            out(Part::Number((*maybe_sent).into()));
        }
        out(number(pages.len()));
        for page in pages {
            let PageEnd {
                next,
                base,
                end,
                store_end,
            } = page;
            out(Part::Number(*next));
            out(Part::Place(&**base));
            end.describe(out);
            out(Part::Number((*store_end).into()));
        }
        out(Part::Text(&format!("{ready:?} {ready_stale}")));
    }
}

impl Passed {
    pub(in crate::pipeline) fn describe(&self, out: Out<'_>) {
        let Self {
            up_to,
            // Stores that mark each event are not in the model.
            finished: _,
            events,
            // Bytes never limit anything in the model.
            bytes: _,
            wanted,
        } = self;
        up_to.describe(out);
        out(number(*events));
        out(Part::Number((*wanted).into()));
    }
}
