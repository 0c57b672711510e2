//! Answers, verdicts and news: each is passed on to the pipeline.

use std::sync::Arc;

use posthaste_engine::{LaneScope, Moment};
use tracing::info;

use super::{
    Input, Runner,
    calls::{Changed, SideAnswer},
};

impl Runner<'_> {
    pub(super) fn take_in(&mut self, input: Input) {
        let now = self.clock().now();
        match input {
            Input::Page(page, marked) => {
                self.across.share.saw_version(page.shares_version, now);
                self.pipeline.read_marked(page, &marked, now);
            }
            Input::Shares(asked, shares) => self.across.share.saw(shares, asked, now),
            Input::Verdicts(verdicts) => {
                self.pipeline
                    .verdicts(verdicts, now, self.task.settings.jitter.draw());
                self.measure();
            }
            Input::Changed(Changed::Done) => self.pipeline.change_done(None, false, now),
            Input::Changed(Changed::Advanced(advanced)) => {
                self.pipeline.change_done(None, advanced.read_at_once, now);
                self.across.repeats = false;
                self.task.destination.counters.progressed(now);
            }
            Input::Changed(Changed::Due(due)) => self.pipeline.change_done(Some(due), false, now),
            Input::Changed(Changed::PutOff(found)) => self.pipeline.put_off_are(found, now),
            Input::Side(answer) => self.side_answered(answer, now),
            Input::Lane(Ok(lane)) => {
                self.lane = Some(lane);
                self.pipeline.lane_opened();
                self.across.lane_has_taken_over(self.task.settings.lease);
                let fenced = LaneScope {
                    former: Vec::new(),
                    ..(*self.scope).clone()
                };
                self.scope = Arc::new(fenced);
                if !std::mem::replace(&mut self.across.began, true) {
                    info!(destination = %self.claim.destination, "delivering");
                }
            }
            Input::Lane(Err(error)) => {
                self.pipeline
                    .lane_refused(&error, now, self.task.settings.jitter.draw())
            }
            Input::Hint => self.pipeline.hint(now),
            Input::Nothing => {}
        }
    }

    fn side_answered(&mut self, answer: SideAnswer, now: Moment) {
        match answer {
            SideAnswer::Opened(side) => {
                self.side = Some(side);
                self.pipeline.side_opened();
            }
            SideAnswer::Read(side, page) => {
                self.side = Some(side);
                self.pipeline.side_read(page);
            }
            SideAnswer::Advanced(side) => {
                self.side = Some(side);
                self.pipeline.side_advanced();
                self.across.repeats = false;
                self.task.destination.counters.progressed(now);
            }
            SideAnswer::Joined => {
                let keys = self.pipeline.side_joined(now);
                info!(destination = %self.claim.destination, keys, "blocked keys are released");
            }
        }
    }
}
