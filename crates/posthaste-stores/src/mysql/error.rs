//! The server's answers, told apart by what the caller will do.

use mysql_async::{DriverError, Error, IoError, ServerError};
use posthaste_engine::StoreError;

/// A rule of this code, or an assumption on the database, that does not hold.
pub(super) fn unexpected(operation: &'static str, reason: impl Into<String>) -> StoreError {
    StoreError::Bug {
        operation,
        reason: reason.into(),
    }
}

pub(super) fn unavailable(operation: &'static str, reason: impl Into<String>) -> StoreError {
    StoreError::Unavailable {
        operation,
        reason: reason.into(),
        source: None,
    }
}

pub(super) fn misconfigured(operation: &'static str, reason: impl Into<String>) -> StoreError {
    StoreError::Misconfigured {
        operation,
        reason: reason.into(),
    }
}

pub(super) fn classify(operation: &'static str, error: Error) -> StoreError {
    if let Some(fault) = refused_certificate(&error) {
        return misconfigured(operation, fault);
    }
    match &error {
        Error::Server(answer) => of_server(operation, answer),
        Error::Driver(
            DriverError::FromValue { .. }
            | DriverError::FromRow { .. }
            | DriverError::Params(_)
            | DriverError::MixedParams
            | DriverError::StmtParamsMismatch { .. }
            | DriverError::StmtParamsNumberExceedsLimit { .. },
        ) => unexpected(operation, error.to_string()),
        Error::Driver(DriverError::UnknownAuthPlugin { .. }) => StoreError::Denied {
            operation,
            reason: format!(
                "{error}: give the user one of mysql_native_password and caching_sha2_password"
            ),
        },
        Error::Driver(DriverError::NoClientSslFlagFromServer) => misconfigured(
            operation,
            "the server has no TLS: switch it on there, or write `ssl-mode=disabled`",
        ),
        Error::Url(_) => misconfigured(operation, error.to_string()),
        _ => StoreError::Unavailable {
            operation,
            reason: error.to_string(),
            source: Some(Box::new(error)),
        },
    }
}

/// Why the server's certificate is not believed, if that is the fault.
fn refused_certificate(error: &Error) -> Option<String> {
    let Error::Io(IoError::Io(error)) = error else {
        return None;
    };
    let refused = error.get_ref()?.downcast_ref::<rustls::Error>()?;
    let rustls::Error::InvalidCertificate(_) = refused else {
        return None;
    };
    // The driver does not tell a wrong name from a wrong authority.
    Some(format!(
        "{refused}: check `ssl-ca`, and that the host's name stands in the certificate, which \
         `ssl-mode=verify-ca` asks for, too"
    ))
}

fn of_server(operation: &'static str, answer: &ServerError) -> StoreError {
    let ServerError { code, message, .. } = answer;
    let reason = format!("{message} ({code})");
    match code {
        // Login, database, table, column, routine, a privilege of the server.
        1044 | 1045 | 1142 | 1143 | 1227 | 1370 | 1698 | 1401 => StoreError::Denied {
            operation,
            reason: format!(
                "{reason}: check user and password, or run `posthaste init` with `--relay USER` \
                 as an administrator"
            ),
        },
        1046 | 1049 => misconfigured(operation, format!("{reason}: check the address")),
        1054 | 1146 => StoreError::Schema {
            operation,
            reason: format!("{reason}: run `posthaste init`"),
        },
        // Its own text, or values that no table of ours can hold.
        1048 | 1062 | 1064 | 1136 | 1210 | 1264 | 1292 | 1366 | 1406 | 1451 | 1452 | 3819
        | 4025 => unexpected(operation, reason),
        1665 => misconfigured(
            operation,
            format!("{reason}: set binlog_format to ROW or MIXED"),
        ),
        // All else that the server says may pass: a lock, memory, a disk, a stop, a fail-over.
        _ => StoreError::Unavailable {
            operation,
            reason,
            source: Some(Box::new(Error::Server(answer.clone()))),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_told_apart() {
        let table = [
            (1045, "denied"),
            (1142, "denied"),
            (1049, "misconfigured"),
            (1146, "schema"),
            (1054, "schema"),
            (1064, "bug"),
            (1665, "misconfigured"),
            (1205, "unavailable"),
            (1213, "unavailable"),
            (1290, "unavailable"),
            (1053, "unavailable"),
            (1927, "unavailable"),
        ];
        for (code, class) in table {
            let error = classify(
                "test",
                Error::Server(ServerError {
                    code,
                    message: "said".to_owned(),
                    state: "HY000".to_owned(),
                }),
            );
            let got = match &error {
                StoreError::Unavailable { .. } => "unavailable",
                StoreError::Denied { .. } => "denied",
                StoreError::Schema { .. } => "schema",
                StoreError::Misconfigured { .. } => "misconfigured",
                StoreError::Bug { .. } => "bug",
                _ => "another",
            };
            assert_eq!(got, class, "{code}");
        }
    }
}
