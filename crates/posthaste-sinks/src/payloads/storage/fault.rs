//! Why an object was not written, by what its owner does about it.

use posthaste_engine::{Outcome, RejectionKind, is_plain_name};

use super::connector::CallError;

/// Why an object was not written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::payloads) enum Fault {
    /// The storage refuses this object.
    Refused(RejectionKind, String, &'static str),
    /// The storage takes nothing for now.
    Away(String, &'static str),
}

const ACCESS: &str = "give the credentials of the relay the right to write objects there";
const CREDENTIALS: &str = "correct the credentials in the relay's environment";
const BUCKET: &str = "create it, or correct `claim_check`";
const SETTINGS: &str = "correct `claim_check`, or the relay's environment";
const NETWORK: &str = "bring it back, or correct `claim_check`";

/// Credentials were found in no other place, and the machine's own service gives none.
const METADATA: &str = "169.254.169.254";

impl Fault {
    /// The fault, and the way to mend it.
    pub(in crate::payloads) fn told(self) -> (String, String) {
        let (Self::Refused(_, fault, mend) | Self::Away(fault, mend)) = self;
        (fault, mend.to_owned())
    }

    /// The outcome of the event whose payload was not stored.
    pub(in crate::payloads) fn outcome(self) -> Outcome {
        match self {
            Self::Refused(kind, fault, mend) => {
                Outcome::rejected(kind, format!("its payload is not stored: {fault}; {mend}"))
            }
            Self::Away(fault, mend) => {
                Outcome::later(format!("its payload is not stored: {fault}; {mend}"))
            }
        }
    }

    /// The bucket is not there.
    pub(super) fn no_bucket() -> Self {
        Self::Away("there is no such bucket".to_owned(), BUCKET)
    }

    /// The storage cannot be reached.
    pub(in crate::payloads) fn away(fault: String) -> Self {
        Self::Away(fault, NETWORK)
    }

    /// By the error of the client. Its words may hold what was signed: they are not repeated, but
    /// for the code of an answer.
    pub(super) fn of(error: &object_store::Error) -> Self {
        if let Some(call) = call_error(error) {
            return match call.0.contains(METADATA) {
                true => Self::Away(
                    "no credentials were found".to_owned(),
                    "give them in the relay's environment",
                ),
                false => Self::away(call.0.clone()),
            };
        }
        let words = error.to_string();
        let code = between(&words, "<Code>", "</Code>").filter(|code| is_plain_name(code));
        let status = between(&words, "status code: ", " ").filter(|text| is_plain_name(text));
        let answer = match (code, status) {
            (Some(code), _) => format!("the storage answered {code}"),
            (None, Some(status)) => format!("the storage answered with status {status}"),
            (None, None) => "its client failed".to_owned(),
        };
        if code.is_some_and(|code| TOO_LARGE.contains(&code)) || status == Some("413") {
            return Self::Refused(RejectionKind::TooLarge, answer, "raise the storage's limit");
        }
        match error {
            object_store::Error::PermissionDenied { .. }
                if code.is_none_or(|code| DENIED.contains(&code)) =>
            {
                Self::Refused(RejectionKind::Denied, answer, ACCESS)
            }
            object_store::Error::PermissionDenied { .. }
            | object_store::Error::Unauthenticated { .. } => Self::Away(answer, CREDENTIALS),
            object_store::Error::NotFound { .. } => Self::Away(answer, BUCKET),
            _ if status.is_some_and(|status| status.starts_with('5')) => Self::away(answer),
            _ => Self::Away(answer, SETTINGS),
        }
    }
}

/// Codes of an object that is denied, while the credentials are good.
const DENIED: &[&str] = &[
    "AccessDenied",
    "AllAccessDisabled",
    "AuthorizationPermissionMismatch",
    "InsufficientAccountPermissions",
];
const TOO_LARGE: &[&str] = &["EntityTooLarge", "RequestBodyTooLarge"];

fn call_error<'e>(error: &'e (dyn std::error::Error + 'static)) -> Option<&'e CallError> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(call) = error.downcast_ref::<CallError>() {
            return Some(call);
        }
        next = error.source();
    }
    None
}

/// Whether the storage says that the bucket is not there.
pub(super) fn is_no_bucket(error: &object_store::Error) -> bool {
    let words = error.to_string();
    let code = between(&words, "<Code>", "</Code>");
    code.is_some_and(|code| ["NoSuchBucket", "ContainerNotFound"].contains(&code))
}

fn between<'t>(text: &'t str, before: &str, after: &str) -> Option<&'t str> {
    let (_, rest) = text.split_once(before)?;
    Some(rest.split_once(after)?.0)
}
