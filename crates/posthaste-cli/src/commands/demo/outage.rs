//! The outage: the warehouse's directory is moved away, and back after some seconds.

use std::{
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use crate::failure::Failure;

/// Long enough for a backlog that can be seen, short enough to wait for.
const LASTS: Duration = Duration::from_secs(3);

/// Where the story of the outage stands.
#[derive(Debug, Clone, Copy)]
enum State {
    Before,
    Away(Instant),
    Over(Duration),
}

/// Takes the directory away when the shop has written two events of five.
#[derive(Debug)]
pub(super) struct Outage {
    directory: PathBuf,
    away: PathBuf,
    begins_at: u64,
    state: State,
}

impl Outage {
    pub(super) fn new(directory: &Path, events: u64) -> Self {
        Self {
            directory: directory.to_owned(),
            away: directory.with_extension("gone"),
            begins_at: events * 2 / 5,
            state: State::Before,
        }
    }

    /// Does what is due, now that the shop has committed so many events.
    pub(super) fn follow(&mut self, committed: u64) -> Result<(), Failure> {
        match self.state {
            State::Before if committed >= self.begins_at => {
                std::fs::rename(&self.directory, &self.away)?;
                self.state = State::Away(Instant::now());
            }
            State::Away(since) if since.elapsed() >= LASTS => {
                std::fs::rename(&self.away, &self.directory)?;
                self.state = State::Over(since.elapsed());
            }
            _ => {}
        }
        Ok(())
    }

    pub(super) fn is_over(&self) -> bool {
        matches!(self.state, State::Over(_))
    }

    /// How long it has been lasting, while it does.
    pub(super) fn lasts(&self) -> Option<Duration> {
        match self.state {
            State::Away(since) => Some(since.elapsed()),
            _ => None,
        }
    }

    /// How long it lasted.
    pub(super) fn lasted(&self) -> Duration {
        match self.state {
            State::Over(lasted) => lasted,
            _ => Duration::ZERO,
        }
    }
}
