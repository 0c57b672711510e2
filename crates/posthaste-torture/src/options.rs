//! The options of a run.

use std::{path::PathBuf, time::Duration};

/// A run.
#[derive(Debug, Clone)]
pub struct Torture {
    /// How long, start and end of servers and the last deliveries not counted.
    pub time: Duration,
    /// Of everything that is drawn by lot. Two runs differ all the same: processes and servers take
    /// their time.
    pub seed: u64,
    /// Only this lap, as long as it is in a run of this time; none: all in their order.
    pub lap: Option<u32>,
    /// See [`LapOptions::writer`](crate::fixture::LapOptions::writer).
    pub writer: Option<PathBuf>,
}
