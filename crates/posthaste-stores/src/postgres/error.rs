//! The driver's errors, sorted by their meaning to the caller.

use std::{error::Error, io};

use posthaste_engine::StoreError;
use tokio_postgres::error::SqlState;

const FIX_INIT: &str = "run `posthaste init --store URL`";
const FIX_GRANT: &str = "run `posthaste init --store URL --relay ROLE` as the schema's owner, or \
     for a new schema as a role that may create one in the database";
pub(super) const FIX_ROW_SECURITY: &str = "row-level security hides rows from this role, and \
     hidden events would be lost: alter table NAME disable row level security, or alter role ROLE \
     bypassrls";
/// Where the server finds that a policy would hide rows, in every language.
const ROW_SECURITY: &str = "check_enable_rls";

/// The meaning of an SQLSTATE to the caller.
#[derive(Debug, PartialEq, Eq)]
enum Class {
    Unavailable,
    Denied(&'static str),
    Schema(&'static str),
    Misconfigured(&'static str),
    Bug,
}

/// Sorts a driver's error. An unknown one is unavailable: lost time can be repaired.
pub(super) fn classify(operation: &'static str, error: tokio_postgres::Error) -> StoreError {
    let (class, reason) = match error.as_db_error() {
        // Not the detail: it quotes column values.
        Some(db) => (
            match db.routine() {
                Some(ROW_SECURITY) => Class::Denied(FIX_ROW_SECURITY),
                _ => by_sql_state(db.code()),
            },
            format!("{} (SQLSTATE {})", db.message(), db.code().code()),
        ),
        None => (without_sql_state(&error), chain(&error)),
    };
    let with_fix = |fix: &str| format!("{reason}: {fix}");
    match class {
        Class::Unavailable => StoreError::Unavailable {
            operation,
            reason,
            source: Some(Box::new(error)),
        },
        Class::Denied(fix) => StoreError::Denied {
            operation,
            reason: with_fix(fix),
        },
        Class::Schema(fix) => StoreError::Schema {
            operation,
            reason: with_fix(fix),
        },
        Class::Misconfigured(fix) => StoreError::Misconfigured {
            operation,
            reason: with_fix(fix),
        },
        Class::Bug => StoreError::Bug { operation, reason },
    }
}

fn by_sql_state(state: &SqlState) -> Class {
    match state.code() {
        "28P01" => Class::Denied("check user, password and pg_hba.conf"),
        "28000" => Class::Denied(
            "check user, password and pg_hba.conf; `create role NAME login` makes a role",
        ),
        "42501" => Class::Denied(FIX_GRANT),
        "3D000" => Class::Misconfigured("create the database or correct the URL"),
        "42P01" | "3F000" | "42703" | "42883" => Class::Schema(FIX_INIT),
        "26000" => Class::Misconfigured(
            "a transaction pooler loses prepared statements: connect to the server itself or use \
             session pooling",
        ),
        // "cached plan must not change result type": a new connection helps.
        "0A000" => Class::Unavailable,
        code if ["22", "23", "42"]
            .iter()
            .any(|class| code.starts_with(class)) =>
        {
            Class::Bug
        }
        _ => Class::Unavailable,
    }
}

/// The driver does not let its kinds out; their texts are what it offers.
fn without_sql_state(error: &tokio_postgres::Error) -> Class {
    let text = error.to_string();
    if chain(error).contains("password missing") {
        return Class::Misconfigured("give one in PGPASSWORD, in ~/.pgpass or in the URL");
    }
    if text.starts_with("invalid c") || text.starts_with("authentication error") {
        return Class::Misconfigured("correct the URL");
    }
    if text.contains("serializing") {
        return Class::Bug;
    }
    if text.starts_with("error performing TLS handshake") && !is_io(error) {
        return Class::Misconfigured("correct sslmode or sslrootcert, or the server's certificate");
    }
    if chain(error).contains("database does not allow writes") {
        return Class::Misconfigured("no host of the URL is a primary: name the primary");
    }
    Class::Unavailable
}

/// Whether a handshake broke because the network did.
fn is_io(error: &tokio_postgres::Error) -> bool {
    let source = error.source().and_then(|source| source.downcast_ref());
    source.is_some_and(|io: &io::Error| {
        // So the TLS layer hands on what it refuses, and a name that is none.
        !matches!(
            io.kind(),
            io::ErrorKind::InvalidData | io::ErrorKind::InvalidInput
        )
    })
}

fn chain(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(source) = next {
        text.push_str(": ");
        text.push_str(&source.to_string());
        next = source.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sql_states_are_sorted_by_what_the_caller_does() {
        let unavailable = [
            "08006", "25006", "40001", "40P01", "53100", "53300", "55P03", "57014", "57P01",
            "57P03", "XX000", "58030", "0A000",
        ];
        for code in unavailable {
            assert_eq!(
                by_sql_state(&SqlState::from_code(code)),
                Class::Unavailable,
                "{code}"
            );
        }
        for code in ["22003", "23505", "42601"] {
            assert_eq!(
                by_sql_state(&SqlState::from_code(code)),
                Class::Bug,
                "{code}"
            );
        }
        for code in ["28P01", "28000", "42501"] {
            let class = by_sql_state(&SqlState::from_code(code));
            assert!(matches!(class, Class::Denied(_)), "{code}");
        }
        for code in ["42P01", "3F000", "42703", "42883"] {
            let class = by_sql_state(&SqlState::from_code(code));
            assert!(matches!(class, Class::Schema(_)), "{code}");
        }
        for code in ["3D000", "26000"] {
            let class = by_sql_state(&SqlState::from_code(code));
            assert!(matches!(class, Class::Misconfigured(_)), "{code}");
        }
    }
}
