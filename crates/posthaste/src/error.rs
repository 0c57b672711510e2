//! Why an event was not written.

use std::error::Error;

/// Why an event was not written.
///
/// After [`EmitError::Database`] the transaction may be beyond use: PostgreSQL refuses every
/// further statement until it (or the savepoint around the emit) is rolled back, and a deadlock in
/// MySQL has rolled back all of it: what follows would be in no transaction. The other kinds are
/// found before anything is sent, except for rights and schema, which the database reports.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EmitError {
    /// A field is larger than its limit.
    #[error("{field} has {size} {unit}, the limit is {limit}")]
    Limit {
        /// The field, by the column's name.
        field: &'static str,
        /// How much was given.
        size: usize,
        /// How much is accepted.
        limit: usize,
        /// The unit: bytes or events.
        unit: &'static str,
    },
    /// A field holds what can be neither stored nor sent on, or is not honoured yet.
    #[error("{field} {reason}")]
    Invalid {
        /// The field, by the column's name.
        field: &'static str,
        /// The reason.
        reason: &'static str,
    },
    /// The database refused or did not answer.
    #[error("the database did not take the events")]
    Database {
        /// The client's own error, to be downcast where its kind matters.
        source: Box<dyn Error + Send + Sync>,
        /// See [`EmitError::is_retryable`].
        retryable: bool,
    },
    /// The schema, the rights or the settings are not as this library needs them.
    #[error("{problem}")]
    Configuration {
        /// The error, and its fix.
        problem: &'static str,
        /// The client's own error, where the database found out.
        source: Option<Box<dyn Error + Send + Sync>>,
    },
}

impl EmitError {
    /// Whether the whole transaction, run again from its beginning, may succeed: a lost connection,
    /// a deadlock, a serialization failure, a busy or stopping server.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        matches!(
            self,
            Self::Database {
                retryable: true,
                ..
            }
        )
    }

    pub(crate) fn limit(field: &'static str, size: usize, limit: usize) -> Self {
        Self::Limit {
            field,
            size,
            limit,
            unit: "bytes",
        }
    }

    /// PostgreSQL's answer; without a code the connection failed.
    #[cfg(any(feature = "sqlx-postgres", feature = "tokio-postgres"))]
    pub(crate) fn from_sqlstate(
        code: Option<&str>,
        source: impl Error + Send + Sync + 'static,
    ) -> Self {
        let problem = match code {
            Some("42P01" | "3F000" | "42703" | "42883") => {
                "the outbox is missing or too old in this database: run `posthaste init`"
            }
            Some("42501") => {
                "this role may not insert into the outbox: run `posthaste init --writer ROLE`"
            }
            _ => {
                let retryable = code.is_none_or(is_retryable_sqlstate);
                return Self::Database {
                    source: source.into(),
                    retryable,
                };
            }
        };
        Self::Configuration {
            problem,
            source: Some(source.into()),
        }
    }
}

/// Connection exceptions, rolled-back transactions, missing resources, a stopping server, locks.
#[cfg(any(feature = "sqlx-postgres", feature = "tokio-postgres"))]
fn is_retryable_sqlstate(code: &str) -> bool {
    matches!(code.get(..2), Some("08" | "40" | "53"))
        || matches!(code, "55P03" | "57P01" | "57P02" | "57P03" | "57P05")
}

#[cfg(all(test, feature = "tokio-postgres"))]
mod tests {
    use super::*;

    #[test]
    fn codes_are_told_apart() {
        let kind = |code| EmitError::from_sqlstate(code, std::fmt::Error);
        for code in ["40001", "40P01", "08006", "57P01", "53300", "55P03"] {
            assert!(kind(Some(code)).is_retryable(), "{code}");
        }
        assert!(kind(None).is_retryable());
        for code in ["23514", "22021", "25P02", "XX000"] {
            assert!(!kind(Some(code)).is_retryable(), "{code}");
        }
        for code in ["42P01", "3F000", "42501"] {
            assert!(
                matches!(kind(Some(code)), EmitError::Configuration { .. }),
                "{code}"
            );
        }
        let error = kind(Some("40001"));
        let source = std::error::Error::source(&error).unwrap();
        assert!(source.downcast_ref::<std::fmt::Error>().is_some());
    }
}
