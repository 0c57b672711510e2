//! The worker of a sink that writes lines to one place: a thread of its own renders, writes and
//! makes durable, so that no task of the relay ever waits for a disk.
//!
//! Records that wait are written together, as one *group*: a slow disk makes larger groups, not a
//! longer queue. The first failure to write ends the lane: nothing later on it is accepted, and the
//! target is let go at once, so that a new lane can be opened.

use posthaste_engine::{Decision, Outcome, RejectionKind, SinkError, Unavailability};

use crate::{
    jsonl::{self, Unwritable},
    publisher::{FarEnd, Stop, WorkerLane},
};

/// When a group is written although more waits. Large enough to hide the cost of an fsync, small
/// beside the relay's memory budget.
const GROUP_BYTES_MAX: usize = 1 << 20;

/// Where lines go.
pub(crate) trait Target: Send + 'static {
    /// Takes over whole lines: once this answers `Ok`, they count as accepted.
    ///
    /// # Errors
    /// Why the lines did not, or not surely, arrive. The lane has ended.
    fn append(&mut self, lines: &[u8]) -> Result<(), Unavailability>;
}

/// Starts the thread of a lane. `stop` is the flag that `target` watches too, if it can wait for
/// long.
pub(crate) fn start(
    name: &'static str,
    target: impl Target,
    stop: Stop,
    value_bytes_max: Option<u64>,
) -> Result<WorkerLane, SinkError> {
    let watched = stop.clone();
    let work = move |mut far_end: FarEnd| {
        far_end.records.limit_values(value_bytes_max);
        let writer = LineWriter {
            target,
            stop: watched,
            lines: Vec::new(),
            far_end,
        };
        writer.run();
    };
    WorkerLane::start_thread(format!("posthaste-{name}"), stop, work).map_err(|error| {
        SinkError::Unavailable {
            target: name.to_owned(),
            reason: format!("no thread could be started: {error}"),
        }
    })
}

/// Fields drop in this order: the target is free when the lane learns that its thread has ended.
struct LineWriter<T> {
    target: T,
    stop: Stop,
    /// The group's lines, reused from group to group.
    lines: Vec<u8>,
    /// Its records in flight are those of `lines`.
    far_end: FarEnd,
}

impl<T: Target> LineWriter<T> {
    fn run(mut self) {
        while self.far_end.blocking_receive() {
            self.render();
            while self.lines.len() < GROUP_BYTES_MAX && self.far_end.try_receive() {
                self.render();
            }
            if self.stop.is_set() {
                return;
            }
            let appended = match self.lines.is_empty() {
                true => Ok(()),
                false => self.target.append(&self.lines),
            };
            if let Err(fault) = appended {
                return self.end(fault);
            }
            self.far_end.records.answer_all(&Outcome::accepted());
            self.far_end.hand_out();
            self.lines.clear();
            // One huge event must not pin its size for the life of the lane.
            self.lines.shrink_to(4 * GROUP_BYTES_MAX);
        }
    }

    /// Adds the lines of all that waits to the group.
    fn render(&mut self) {
        let lines = &mut self.lines;
        self.far_end.records.decide(|item, _| {
            let written = jsonl::write_line(lines, &item.record);
            match written {
                Ok(()) => Decision::Sent(()),
                Err(fault @ (Unwritable::OccurredAt(_) | Unwritable::Memory(_))) => {
                    let reason = fault.to_string();
                    Decision::Answered(Outcome::rejected(RejectionKind::Invalid, reason))
                }
            }
        });
    }

    /// Lets go of the target, then answers the group and all that still comes.
    fn end(self, fault: Unavailability) {
        let Self {
            target,
            mut far_end,
            ..
        } = self;
        drop(target);
        far_end.records.end(fault);
        far_end.hand_out();
        while far_end.blocking_receive() {
            far_end.hand_out();
        }
    }
}

#[cfg(test)]
mod tests;
