//! How a command ends.

use std::{fmt, process::ExitCode};

use posthaste_engine::{SinkError, StoreError};

use crate::config::ConfigError;

/// The words of PostgreSQL's driver where no connection came about.
const NOT_CONNECTED: &str = "error connecting to server";

/// The exit statuses, a contract with scripts and process managers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Status {
    /// Everything was done.
    Done = 0,
    /// Something failed that may pass.
    Failure = 1,
    /// Somebody has to act: the command line, the configuration or the set-up is wrong, here or
    /// elsewhere.
    Usage = 2,
    /// Drained, but some events are parked, or blocked behind parked ones.
    Parked = 3,
    /// Not drained within `--drain-timeout`.
    DrainTimeout = 4,
}

impl From<Status> for ExitCode {
    fn from(status: Status) -> Self {
        Self::from(status as u8)
    }
}

/// Why a command did not do its work: a report for people, with the fix.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) status: Status,
    report: String,
}

impl Failure {
    /// Something failed that may pass.
    pub(crate) fn failed(report: impl Into<String>) -> Self {
        Self {
            status: Status::Failure,
            report: report.into(),
        }
    }

    /// Something must be set right first.
    pub(crate) fn usage(report: impl Into<String>) -> Self {
        Self {
            status: Status::Usage,
            report: report.into(),
        }
    }

    /// The failure of one among several things, such as destinations.
    pub(crate) fn of(self, what: &str) -> Self {
        Self {
            report: format!("{what}: {}", self.report),
            ..self
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.report)
    }
}

impl From<ConfigError> for Failure {
    fn from(error: ConfigError) -> Self {
        Self::usage(error.to_string())
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Denied { .. }
            | StoreError::Schema { .. }
            | StoreError::Misconfigured { .. } => Self::usage(error.to_string()),
            StoreError::Unavailable { ref reason, .. } if reason.contains(NOT_CONNECTED) => {
                Self::failed(format!(
                    "{error}\nfix: start the database, or correct host and port in the URL"
                ))
            }
            _ => Self::failed(error.to_string()),
        }
    }
}

impl From<SinkError> for Failure {
    fn from(error: SinkError) -> Self {
        match error {
            SinkError::Denied { .. } | SinkError::Misconfigured { .. } => {
                Self::usage(error.to_string())
            }
            _ => Self::failed(error.to_string()),
        }
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        Self::failed(error.to_string())
    }
}
