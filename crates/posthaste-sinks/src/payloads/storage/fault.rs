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
const CREDENTIALS: &str = "correct the credentials, in `claim_check` or the relay's environment";
const BUCKET: &str = "create it, or correct `claim_check`";
const SETTINGS: &str = "correct `claim_check`, or the relay's environment";
const NETWORK: &str = "bring it back, or correct `claim_check`";

/// Credentials were found in no other place, and the machine's own service gives none.
const METADATA: &str = "169.254.169.254";

/// The client's words for an answer that names no other place.
const REDIRECT: &str = "Received redirect without LOCATION";

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

    /// The storage cannot be reached.
    pub(in crate::payloads) fn away(fault: String) -> Self {
        Self::Away(fault, NETWORK)
    }

    /// By the error of the client. Its words may hold what was signed: they are not repeated, but
    /// for the code of an answer.
    pub(super) fn of(error: &object_store::Error) -> Self {
        let words = error.to_string();
        let call = call_error(error);
        if call.map_or(&words, |call| &call.0).contains(METADATA) {
            return Self::Away(
                "no credentials were found".to_owned(),
                "give them in `claim_check`, or in the relay's environment",
            );
        }
        if let Some(call) = call {
            return Self::away(call.0.clone());
        }
        let (code, status) = (code(&words), status(&words));
        let answer = match (code, status) {
            (Some(code), _) => format!("the storage answered {code}"),
            (None, Some(status)) => format!("the storage answered with status {status}"),
            (None, None) if words.contains(REDIRECT) => {
                return Self::Away(
                    "the storage sends us elsewhere".to_owned(),
                    "correct `region` or `endpoint` in `claim_check`, or the relay's environment",
                );
            }
            (None, None) if words.contains("ETag") => {
                "the storage answered without an ETag".to_owned()
            }
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
            _ if status.is_some_and(|status| status.starts_with('5') || status == "429") => {
                Self::away(answer)
            }
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
/// Codes of a bucket that is not there, or soon will not be.
const NO_BUCKET: &[&str] = &[
    "NoSuchBucket",
    "ContainerNotFound",
    "ContainerBeingDeleted",
    "ContainerDisabled",
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

/// Whether the answer to a question about an object says that there is no bucket, or no object
/// storage at all: that names by a code what is missing.
pub(super) fn missing(error: &object_store::Error) -> Option<Fault> {
    let words = error.to_string();
    match code(&words) {
        Some(code) if NO_BUCKET.contains(&code) => {
            Some(Fault::Away("there is no such bucket".to_owned(), BUCKET))
        }
        _ if is_bare(error) => Some(Fault::Away(
            "no object storage answers there (status 404)".to_owned(),
            SETTINGS,
        )),
        _ => None,
    }
}

/// Whether the answer is that nothing is there, without a code.
pub(super) fn is_bare(error: &object_store::Error) -> bool {
    let words = error.to_string();
    code(&words).is_none() && status(&words) == Some("404")
}

fn code(words: &str) -> Option<&str> {
    between(words, "<Code>", "</Code>").filter(|code| is_plain_name(code))
}

fn status(words: &str) -> Option<&str> {
    between(words, "status code: ", " ").filter(|text| is_plain_name(text))
}

fn between<'t>(text: &'t str, before: &str, after: &str) -> Option<&'t str> {
    let (_, rest) = text.split_once(before)?;
    Some(rest.split_once(after)?.0)
}
