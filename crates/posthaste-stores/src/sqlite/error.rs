//! SQLite's errors, sorted by their meaning to the caller.

use posthaste_engine::StoreError;
use rusqlite::{Error, ErrorCode};

const FIX_INIT: &str = ": run `posthaste init` for this store";

/// Wraps the driver's error as what the caller will do about it.
pub(super) fn classify(operation: &'static str, error: Error) -> StoreError {
    let verdict = error.sqlite_error_code().map(verdict);
    let reason = match &error {
        // Without the statement, which may be a whole migration.
        Error::SqlInputError { msg, .. } => msg.clone(),
        error => error.to_string(),
    };
    match verdict {
        Some(Verdict::Unavailable) => StoreError::Unavailable {
            operation,
            reason,
            source: Some(Box::new(error)),
        },
        Some(Verdict::Denied) => StoreError::Denied { operation, reason },
        Some(Verdict::Misconfigured) => StoreError::Misconfigured {
            operation,
            reason: format!("{reason}: check the path, or restore the file from a backup"),
        },
        Some(Verdict::Statement) if is_missing_object(&reason) => StoreError::Schema {
            operation,
            reason: reason + FIX_INIT,
        },
        Some(Verdict::Statement) | None => StoreError::Bug { operation, reason },
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Unavailable,
    Denied,
    Misconfigured,
    Statement,
}

fn verdict(code: ErrorCode) -> Verdict {
    match code {
        // A full disk, a device that fails and a lock that is held too long all heal from outside.
        ErrorCode::DatabaseBusy
        | ErrorCode::DatabaseLocked
        | ErrorCode::OutOfMemory
        | ErrorCode::ReadOnly
        | ErrorCode::OperationInterrupted
        | ErrorCode::OperationAborted
        | ErrorCode::SystemIoFailure
        | ErrorCode::DiskFull
        | ErrorCode::CannotOpen
        | ErrorCode::FileLockingProtocolFailed
        | ErrorCode::SchemaChanged => Verdict::Unavailable,
        ErrorCode::PermissionDenied | ErrorCode::AuthorizationForStatementDenied => Verdict::Denied,
        ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase | ErrorCode::NoLargeFileSupport => {
            Verdict::Misconfigured
        }
        _ => Verdict::Statement,
    }
}

/// SQLite has one code for every statement that does not compile; only its words tell.
fn is_missing_object(reason: &str) -> bool {
    reason.contains("no such table") || reason.contains("no such column")
}

/// The error where the file has other things under names of ours: they are in the way of ours, or
/// lack what ours have.
pub(super) fn not_ours(error: StoreError) -> StoreError {
    match error {
        StoreError::Bug { operation, reason } | StoreError::Schema { operation, reason }
            if is_missing_object(&reason)
                || reason.contains("already")
                || reason.contains("Invalid column type") =>
        {
            let reason = reason.strip_suffix(FIX_INIT).unwrap_or(&reason);
            StoreError::Misconfigured {
                operation,
                reason: format!(
                    "names that begin with `posthaste_` are not posthaste's here ({reason}); \
                     nothing was changed: rename those tables, or give another file"
                ),
            }
        }
        error => error,
    }
}

/// A value in the file that no statement of ours, and no row that passed the table's checks, holds.
pub(super) fn unexpected(operation: &'static str, what: impl Into<String>) -> StoreError {
    StoreError::Bug {
        operation,
        reason: what.into(),
    }
}

#[cfg(test)]
mod tests {
    use rusqlite::ffi;

    use super::*;

    fn classified(code: i32, message: &str) -> StoreError {
        classify(
            "read",
            Error::SqliteFailure(ffi::Error::new(code), Some(message.to_owned())),
        )
    }

    #[test]
    fn every_code_has_its_class() {
        let table: &[(i32, &str, &str)] = &[
            (ffi::SQLITE_BUSY, "database is locked", "unavailable"),
            (
                ffi::SQLITE_BUSY_RECOVERY,
                "database is locked",
                "unavailable",
            ),
            (ffi::SQLITE_LOCKED, "table is locked", "unavailable"),
            (ffi::SQLITE_NOMEM, "out of memory", "unavailable"),
            (
                ffi::SQLITE_READONLY,
                "attempt to write a readonly database",
                "unavailable",
            ),
            (ffi::SQLITE_READONLY_DBMOVED, "moved", "unavailable"),
            (ffi::SQLITE_INTERRUPT, "interrupted", "unavailable"),
            (ffi::SQLITE_IOERR, "disk I/O error", "unavailable"),
            (ffi::SQLITE_IOERR_FSYNC, "disk I/O error", "unavailable"),
            (ffi::SQLITE_FULL, "database or disk is full", "unavailable"),
            (
                ffi::SQLITE_CANTOPEN,
                "unable to open database file",
                "unavailable",
            ),
            (ffi::SQLITE_PROTOCOL, "locking protocol", "unavailable"),
            (ffi::SQLITE_SCHEMA, "schema has changed", "unavailable"),
            (ffi::SQLITE_PERM, "access permission denied", "denied"),
            (ffi::SQLITE_AUTH, "not authorized", "denied"),
            (ffi::SQLITE_CORRUPT, "malformed", "misconfigured"),
            (
                ffi::SQLITE_NOTADB,
                "file is not a database",
                "misconfigured",
            ),
            (
                ffi::SQLITE_ERROR,
                "no such table: posthaste_cursors",
                "schema",
            ),
            (ffi::SQLITE_ERROR, "no such column: version", "schema"),
            (ffi::SQLITE_ERROR, "near \"selct\": syntax error", "bug"),
            (ffi::SQLITE_CONSTRAINT, "UNIQUE constraint failed", "bug"),
            (ffi::SQLITE_MISUSE, "bad parameter", "bug"),
        ];
        for &(code, message, class) in table {
            let error = classified(code, message);
            let got = match &error {
                StoreError::Unavailable { .. } => "unavailable",
                StoreError::Denied { .. } => "denied",
                StoreError::Schema { .. } => "schema",
                StoreError::Misconfigured { .. } => "misconfigured",
                StoreError::Bug { .. } => "bug",
                _ => "another",
            };
            assert_eq!(got, class, "{code} {message}");
            assert_eq!(
                error.is_retryable(),
                class == "unavailable",
                "{code} {message}"
            );
        }
    }
}
