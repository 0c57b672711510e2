//! The worker of a sink that writes lines to one place: a thread of its own renders, writes and
//! makes durable, so that no task of the relay ever waits for a disk.
//!
//! Records that wait are written together, as one *group*: a slow disk makes larger groups, not a
//! longer queue. The first failure to write ends the lane: nothing later on it is accepted, and the
//! target is let go at once, so that a new lane can be opened.

use posthaste_engine::{Decision, Outcome, Record, RejectionKind, SinkError, Unavailability};

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
    event_bytes_max: Option<u64>,
) -> Result<WorkerLane, SinkError> {
    let watched = stop.clone();
    let work = move |far_end| {
        let writer = LineWriter {
            target,
            stop: watched,
            event_bytes_max,
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
    event_bytes_max: Option<u64>,
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
        let (lines, event_bytes_max) = (&mut self.lines, self.event_bytes_max);
        self.far_end.records.decide(|item, _| {
            match render_record(lines, &item.record, event_bytes_max) {
                Ok(()) => Decision::Sent(()),
                Err(outcome) => Decision::Answered(outcome),
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

/// Appends the record's line.
///
/// # Errors
/// The outcome of a record that has none.
fn render_record(
    lines: &mut Vec<u8>,
    record: &Record,
    event_bytes_max: Option<u64>,
) -> Result<(), Outcome> {
    let size = record.value().map_or(0, <[u8]>::len) as u64;
    if let Some(limit) = event_bytes_max
        && size > limit
    {
        return Err(Outcome::rejected(
            RejectionKind::TooLarge,
            format!("payload of {size} bytes, over max_event_bytes={limit} of this destination"),
        ));
    }
    jsonl::write_line(lines, record).map_err(
        |fault @ (Unwritable::OccurredAt(_) | Unwritable::Memory(_))| {
            Outcome::rejected(RejectionKind::Invalid, fault.to_string())
        },
    )
}

#[cfg(test)]
mod tests;
