use std::time::Duration;

use crate::Backoff;

/// Bounds and waits of a pipeline.
#[derive(Debug, Clone)]
pub struct PipelineLimits {
    /// Events read and not behind the stored cursor, at the most: what a crash may repeat.
    pub window_events: usize,
    /// Bytes of the same.
    pub window_bytes: usize,
    /// Events in a read or a batch at the most.
    pub batch_events: usize,
    /// Bytes in a read or a batch at the most.
    pub batch_bytes: usize,
    /// Wait between attempts with a parked event.
    pub retry: Backoff,
    /// Wait between probes of an unavailable destination.
    pub probe: Backoff,
    /// Blocked keys at the most; beyond that it is not poison but a broken destination.
    pub blocked_keys_max: usize,
    /// Blocked keys that are kept in memory; whether others are blocked, the store is asked.
    pub blocked_keys_kept: usize,
    /// Rejections in a minute that are taken for poison events, whatever their share; beyond that,
    /// a destination of whose answers most are rejections is broken.
    pub rejections_max: u64,
    /// An advance is made at least this often while there is something to store.
    pub advance_every: Duration,
    /// How long after an abort nothing is sent, unless the sink fences exactly.
    pub settle: Duration,
    /// Wait after a read that brought a few events; up to ten times as long after many.
    pub poll_busy: Duration,
    /// Wait between reads of an idle outbox.
    pub poll_idle: Duration,
    /// How often the parked table is looked at for operators' decisions.
    pub due_every: Duration,
}

impl PipelineLimits {
    /// So many events and bytes are one part of so many of the window.
    pub(super) fn is_much(&self, (events, bytes): (usize, usize), parts: usize) -> bool {
        events * parts >= self.window_events || bytes * parts >= self.window_bytes
    }
}
