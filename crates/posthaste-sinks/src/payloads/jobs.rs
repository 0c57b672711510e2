//! Work on payloads that takes a processor's time: small ones at once in the relay's task, the
//! others on threads.

use std::{collections::HashMap, panic::resume_unwind};

use posthaste_engine::Record;
use tokio::task::JoinSet;

/// Bytes that are worked on at once in the relay's task: it takes less than a millisecond, and a
/// thread would take as long to begin.
const AT_ONCE_BYTES: usize = 32 << 10;
/// Bytes that a thread works on before it answers.
const TURN_BYTES: usize = 256 << 10;
/// Payloads that are worked on, or in flight as such, at the most; a larger one is alone. As much
/// as the engine's own window by default, since each such payload is in memory twice.
pub(super) const BYTES_MAX: usize = 8 << 20;

/// The note on a record that waits.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) enum Progress {
    #[default]
    New,
    /// A thread has its payload.
    Begun,
}

/// Work whose results are of this type.
#[derive(Debug)]
pub(super) struct Jobs<T> {
    threads: JoinSet<Vec<Done<T>>>,
    /// Results of threads, until the decisions that follow at once.
    done: HashMap<u64, T>,
    /// Work of the next threads.
    next: Vec<Job<T>>,
    /// Bytes of payloads in `next` and in threads, and of results in flight.
    bytes: usize,
    /// A payload has found no room in this round: no later one takes it away.
    is_full: bool,
    /// Bytes that may still be worked on in this turn of the relay's task, and in each.
    at_once: usize,
    pub(super) at_once_max: usize,
}

struct Job<T> {
    ticket: u64,
    /// Bytes of the payload.
    bytes: usize,
    work: Box<dyn FnOnce() -> T + Send>,
}

#[derive(Debug)]
struct Done<T> {
    ticket: u64,
    bytes: usize,
    result: T,
}

impl<T> std::fmt::Debug for Job<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Job").field("ticket", &self.ticket).finish()
    }
}

impl<T: Send + 'static> Jobs<T> {
    pub(super) fn new() -> Self {
        Self {
            threads: JoinSet::new(),
            done: HashMap::new(),
            next: Vec::new(),
            bytes: 0,
            is_full: false,
            at_once: 0,
            at_once_max: AT_ONCE_BYTES,
        }
    }

    /// A round of steps begins.
    pub(super) fn begin(&mut self) {
        self.is_full = false;
        self.at_once = self.at_once_max;
    }

    /// The result of work that a thread has begun; none until it is there.
    pub(super) fn result(&mut self, record: &Record) -> Option<T> {
        self.done.remove(&record.ticket())
    }

    /// The result of work on a payload of so many bytes; none until it is there. Work that is not
    /// quick never stands in the relay's way.
    pub(super) fn run(
        &mut self,
        record: &Record,
        bytes: usize,
        is_quick: bool,
        progress: &mut Progress,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        self.is_full |= self.bytes > 0 && self.bytes + bytes > BYTES_MAX;
        if self.is_full {
            return None;
        }
        if is_quick && let Some(rest) = self.at_once.checked_sub(bytes) {
            self.at_once = rest;
            return Some(work());
        }
        *progress = Progress::Begun;
        self.bytes += bytes;
        self.next.push(Job {
            ticket: record.ticket(),
            bytes,
            work: Box::new(work),
        });
        None
    }

    #[cfg(test)]
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// A result of so many bytes is in flight.
    pub(super) fn hold(&mut self, bytes: usize) {
        self.bytes += bytes;
    }

    /// It is not any more.
    pub(super) fn free(&mut self, bytes: usize) {
        self.bytes -= bytes;
    }

    /// A round of steps ends: threads begin.
    pub(super) fn end(&mut self) {
        // The rest belongs to records that were answered meanwhile.
        self.done.clear();
        let mut all = std::mem::take(&mut self.next).into_iter().peekable();
        while all.peek().is_some() {
            let (mut turn, mut bytes) = (Vec::new(), 0);
            while let Some(next) = all.next_if(|_| bytes < TURN_BYTES) {
                bytes += next.bytes;
                turn.push(next);
            }
            self.threads.spawn_blocking(move || {
                let done = turn.into_iter().map(|job| Done {
                    ticket: job.ticket,
                    bytes: job.bytes,
                    result: (job.work)(),
                });
                done.collect()
            });
        }
    }

    /// Waits until results are there; ends at once where no thread works. Cancel safe.
    pub(super) async fn go_on(&mut self) -> bool {
        let Some(ended) = self.threads.join_next().await else {
            return false;
        };
        // A bug, and none that more events would survive.
        let done = ended.unwrap_or_else(|broken| resume_unwind(broken.into_panic()));
        for Done {
            ticket,
            bytes,
            result,
        } in done
        {
            self.bytes -= bytes;
            self.done.insert(ticket, result);
        }
        true
    }
}
