//! The meaning of a refusal, or of a request without an answer.

use std::{error::Error, fmt, time::Duration};

use aws_credential_types::provider::error::CredentialsError;
use aws_smithy_runtime_api::{
    client::{orchestrator::HttpResponse, result::SdkError},
    http::Headers,
};
use aws_smithy_types::error::metadata::ProvideErrorMetadata;
use posthaste_engine::{Cause, RejectionKind};

use crate::{
    requests::refusal::{Blame, Refusal, excerpt},
    transport::TransportError,
};

/// Characters of a service's own words that are told, at the most.
const EXCERPT_CHARS: usize = 300;
/// The same of a code, which is one word.
const CODE_CHARS: usize = 80;

/// The way to a service is broken: why there was no answer. Passes through the SDK.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CallFault {
    pub(crate) cause: Cause,
    pub(crate) reason: String,
    /// The server let us connect: it is there.
    pub(crate) has_connected: bool,
}

impl fmt::Display for CallFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reason)
    }
}

impl Error for CallFault {}

/// A part of credentials makes no header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NoHeader(pub(crate) &'static str);

impl fmt::Display for NoHeader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(part) = self;
        write!(
            f,
            "{part} has a line break, or another character that no header may have; remove it"
        )
    }
}

impl Error for NoHeader {}

impl CallFault {
    pub(crate) fn connection(reason: impl Into<String>) -> Self {
        Self::new(Cause::Connection, reason)
    }

    /// Somebody has to change something.
    pub(crate) fn setup(reason: impl Into<String>) -> Self {
        Self::new(Cause::Misconfigured, reason)
    }

    fn new(cause: Cause, reason: impl Into<String>) -> Self {
        Self {
            cause,
            reason: reason.into(),
            has_connected: false,
        }
    }

    pub(crate) fn slow(doing: &str, limit: Duration) -> Self {
        Self::connection(format!("{doing}: no answer within {limit:?}"))
    }
}

impl From<TransportError> for CallFault {
    fn from(error: TransportError) -> Self {
        let (cause, reason) = match error {
            TransportError::Connection(words) => (Cause::Connection, words),
            TransportError::Setup(words) => (Cause::Misconfigured, words),
            TransportError::Certificate(words) => (Cause::Denied, words),
        };
        Self::new(cause, reason)
    }
}

impl Refusal {
    /// One event of a request was refused with this code and these words.
    pub(crate) fn of_entry(code: &str, words: Option<&str>, is_our_fault: bool) -> Self {
        let blame = match blame(code) {
            Some(blame) => blame,
            None if is_our_fault => Blame::Event(RejectionKind::Other),
            None => Blame::Place(Cause::Unknown),
        };
        Self::said(blame, code, words)
    }

    /// A request was refused, or had no answer.
    pub(crate) fn of_request<E>(error: &SdkError<E, HttpResponse>) -> Self
    where
        E: ProvideErrorMetadata + Error + 'static,
    {
        match error {
            SdkError::ServiceError(refused) => {
                let meta = refused.err().meta();
                match meta.code() {
                    Some(code) => {
                        let blame = match blame(code) {
                            Some(Blame::Event(_)) if names_topic(meta.message()) => {
                                Blame::Place(Cause::Misconfigured)
                            }
                            Some(blame) => blame,
                            // An event is the last to be blamed.
                            None => Blame::Place(Cause::Unknown),
                        };
                        Self::said(blame, code, meta.message())
                    }
                    None => Self::of_status(refused.raw()),
                }
            }
            SdkError::ResponseError(strange) => Self::of_status(strange.raw()),
            _ => Self::of_no_answer(error),
        }
    }

    fn said(blame: Blame, code: &str, words: Option<&str>) -> Self {
        let name = plain(code);
        let mut reason = format!("the service answered {}", excerpt(name, CODE_CHARS));
        // Of a signature it would tell what was signed, the session's token among it.
        let is_told = !matches!(blame, Blame::Service(_));
        if let Some(words) = words.filter(|words| is_told && !words.is_empty()) {
            reason += &format!(": {}", excerpt(words, EXCERPT_CHARS));
        }
        reason += fix(name, blame);
        Self { blame, reason }
    }

    /// An answer that says nothing that is known.
    fn of_status(response: &HttpResponse) -> Self {
        let status = response.status().as_u16();
        if status >= 500 {
            return Self::unclear(Cause::Unknown, format!("the service answered {status}"));
        }
        // A server in front of the service reads no request that is much too large.
        if status == 413 {
            return Self {
                blame: Blame::Event(RejectionKind::TooLarge),
                reason: "the service answered 413: the request is too large".to_owned(),
            };
        }
        // No service says so that it took something.
        let is_other = status < 300 || !names_a_request(response.headers());
        let fix = match is_other {
            true => "; what answers there is no such service: correct `endpoint`",
            false => "",
        };
        let reason = format!("the service answered {status} without a code{fix}");
        Self::unclear(Cause::Misconfigured, reason)
    }

    fn of_no_answer(error: &(dyn Error + 'static)) -> Self {
        let mut credentials = None;
        let mut source = Some(error);
        let mut root = error;
        while let Some(inner) = source {
            if let Some(fault) = inner.downcast_ref::<CallFault>() {
                let CallFault { cause, reason, .. } = fault;
                return match credentials {
                    Some(_) => {
                        Self::of_service(*cause, format!("asking for credentials: {reason}"))
                    }
                    None if fault.has_connected => Self::unclear(*cause, reason.as_str()),
                    None => Self::of_service(*cause, reason.as_str()),
                };
            }
            if let Some(found) = inner.downcast_ref::<CredentialsError>() {
                credentials.get_or_insert(found);
            }
            root = inner;
            source = inner.source();
        }
        match credentials {
            Some(found) => Self::of_credentials(found),
            None => {
                let reason = format!(
                    "the request was not made: {}",
                    excerpt(&root.to_string(), EXCERPT_CHARS)
                );
                Self::of_service(Cause::Connection, reason)
            }
        }
    }

    /// There are no credentials. Of the errors below, only the kind is told: what a server of
    /// credentials answers may hold some.
    pub(crate) fn of_credentials(error: &CredentialsError) -> Self {
        if let Some(fault) = error
            .source()
            .and_then(<dyn Error>::downcast_ref::<NoHeader>)
        {
            return Self::of_service(Cause::Denied, fault.to_string());
        }
        let (cause, fix) = match error {
            CredentialsError::ProviderTimedOut(_) => (Cause::Connection, ""),
            CredentialsError::CredentialsNotLoaded(_) => (
                Cause::Denied,
                "; set `AWS_ACCESS_KEY_ID` and `AWS_SECRET_ACCESS_KEY`, or give the relay a \
                 profile or a role",
            ),
            _ => (Cause::Denied, "; see profile, role and their rights"),
        };
        Self::of_service(cause, format!("there are no credentials: {error}{fix}"))
    }
}

/// Whether an answer is one of AWS, or of a server like it.
fn names_a_request(headers: &Headers) -> bool {
    let mut names = ["x-amzn-requestid", "x-amz-request-id"].iter();
    names.any(|name| headers.contains_key(name))
}

/// The code without what stands before and behind it in one of the protocols:
/// `AWS.SimpleQueueService.NonExistentQueue`, `com.amazonaws.sqs#QueueDoesNotExist`,
/// `NotFoundException`. `KMS.` tells whose fault it is, and stays.
fn plain(code: &str) -> &str {
    let code = match code.find("KMS.") {
        Some(at) => &code[at..],
        None => code.rsplit(['#', '.']).next().unwrap_or(code),
    };
    code.strip_suffix("Exception").unwrap_or(code)
}

/// The name of a fault of the key by which a place is encrypted: `KmsDisabled`, `KMSDisabled` and
/// `KMS.Disabled` are the same one.
fn of_key(name: &str) -> Option<&str> {
    let (start, fault) = name.split_at_checked(3)?;
    let is_one = start.eq_ignore_ascii_case("kms");
    is_one.then(|| fault.strip_prefix('.').unwrap_or(fault))
}

/// Whether SNS says that it is the topic's ARN that it does not take: it is of another region, or
/// account.
fn names_topic(words: Option<&str>) -> bool {
    let parameter = words.and_then(|words| words.strip_prefix("Invalid parameter: "));
    parameter.is_some_and(|name| name.starts_with("TopicArn") || name.starts_with("TargetArn"))
}

/// The part of the world that a code blames, if it is known.
fn blame(code: &str) -> Option<Blame> {
    use Blame::{Event, Place, Service};
    let name = plain(code);
    if let Some(fault) = of_key(name) {
        return Some(Place(match fault {
            "AccessDenied" => Cause::Denied,
            "Throttled" | "Throttling" => Cause::Throttled,
            _ => Cause::Misconfigured,
        }));
    }
    Some(match name {
        "BatchRequestTooLong" | "MessageTooLong" => Event(RejectionKind::TooLarge),
        "InvalidMessageContents"
        | "InvalidArgument"
        | "InvalidAttributeName"
        | "InvalidAttributeValue"
        | "InvalidParameter"
        | "InvalidParameterValue"
        | "MissingParameter"
        | "Validation" => Event(RejectionKind::Invalid),
        "NonExistentQueue"
        | "QueueDoesNotExist"
        | "QueueDeletedRecently"
        | "NotFound"
        | "ResourceNotFound"
        | "InvalidAddress"
        | "InvalidState"
        | "UnsupportedOperation" => Place(Cause::Misconfigured),
        "AccessDenied" | "AuthorizationError" => Place(Cause::Denied),
        "RequestThrottled"
        | "LimitExceeded"
        | "ProvisionedThroughputExceeded"
        | "Throttled"
        | "Throttling"
        | "RequestLimitExceeded"
        | "TooManyRequests"
        | "OverLimit" => Place(Cause::Throttled),
        "ConcurrentAccess"
        | "InternalError"
        | "InternalFailure"
        | "InternalServerError"
        | "ResourceInUse"
        | "ServiceUnavailable" => Place(Cause::Unknown),
        "ExpiredToken"
        | "IncompleteSignature"
        | "InvalidAccessKeyId"
        | "InvalidClientTokenId"
        | "InvalidSecurity"
        | "InvalidSignature"
        | "MissingAuthenticationToken"
        | "NotAuthorized"
        | "OptInRequired"
        | "RequestExpired"
        | "RequestTimeTooSkewed"
        | "SignatureDoesNotMatch"
        | "UnrecognizedClient" => Service(Cause::Denied),
        _ => return None,
    })
}

/// How to mend it.
fn fix(name: &str, blame: Blame) -> &'static str {
    match (name, blame) {
        ("ExpiredToken" | "RequestExpired" | "RequestTimeTooSkewed", _) => {
            "; renew the credentials, or set the clock"
        }
        (_, Blame::Service(Cause::Denied)) => "; correct the credentials, or the region",
        (name, Blame::Place(Cause::Denied | Cause::Misconfigured)) if of_key(name).is_some() => {
            "; see the key by which it is encrypted, and the right to use it"
        }
        (_, Blame::Place(Cause::Denied)) => "; allow it to our user or role",
        ("NonExistentQueue" | "QueueDoesNotExist" | "NotFound" | "ResourceNotFound", _) => {
            "; create it, or correct name, region and account"
        }
        ("InvalidParameter", Blame::Place(_)) => "; correct ARN, region or `endpoint`",
        ("ProvisionedThroughputExceeded", _) => "; give it more shards, or on-demand capacity",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use aws_smithy_runtime_api::http::StatusCode;
    use aws_smithy_types::body::SdkBody;

    use super::*;

    #[test]
    fn each_code_blames_somebody() {
        use Blame::{Event, Place, Service};
        use RejectionKind::{Invalid, Other, TooLarge};
        for (code, is_our_fault, expected) in [
            (
                "AWS.SimpleQueueService.BatchRequestTooLong",
                true,
                Event(TooLarge),
            ),
            (
                "com.amazonaws.sqs#InvalidMessageContents",
                true,
                Event(Invalid),
            ),
            ("InvalidParameterValueException", true, Event(Invalid)),
            ("SomethingNew", true, Event(Other)),
            ("SomethingNew", false, Place(Cause::Unknown)),
            ("InternalError", false, Place(Cause::Unknown)),
            ("ThrottlingException", false, Place(Cause::Throttled)),
            ("RequestThrottled", true, Place(Cause::Throttled)),
            (
                "ProvisionedThroughputExceededException",
                false,
                Place(Cause::Throttled),
            ),
            ("InternalFailure", false, Place(Cause::Unknown)),
            (
                "ResourceNotFoundException",
                true,
                Place(Cause::Misconfigured),
            ),
            (
                "AWS.SimpleQueueService.NonExistentQueue",
                true,
                Place(Cause::Misconfigured),
            ),
            ("NotFound", true, Place(Cause::Misconfigured)),
            ("AccessDeniedException", true, Place(Cause::Denied)),
            ("AuthorizationError", true, Place(Cause::Denied)),
            ("ConcurrentAccessException", true, Place(Cause::Unknown)),
            ("InvalidStateException", true, Place(Cause::Misconfigured)),
            ("SignatureDoesNotMatch", true, Service(Cause::Denied)),
            ("ExpiredTokenException", true, Service(Cause::Denied)),
        ] {
            let refusal = Refusal::of_entry(code, None, is_our_fault);
            assert_eq!(refusal.blame, expected, "{code}");
        }
    }

    /// In SQS they have a point behind `KMS`, and elsewhere none.
    #[test]
    fn a_fault_of_a_key_is_the_places() {
        for (fault, cause) in [
            ("AccessDenied", Cause::Denied),
            ("Disabled", Cause::Misconfigured),
            ("InvalidKeyUsage", Cause::Misconfigured),
            ("InvalidState", Cause::Misconfigured),
            ("NotFound", Cause::Misconfigured),
            ("OptInRequired", Cause::Misconfigured),
            ("Throttling", Cause::Throttled),
            ("Throttled", Cause::Throttled),
            ("SomethingNew", Cause::Misconfigured),
        ] {
            for start in [
                "KMS.",
                "com.amazonaws.sqs#KMS.",
                "Kms",
                "com.amazonaws.sqs#Kms",
                "KMS",
            ] {
                let code = format!("{start}{fault}Exception");
                let refusal = Refusal::of_entry(&code, None, true);
                assert_eq!(refusal.blame, Blame::Place(cause), "{code}");
                let has_fix = refusal.reason.contains("see the key");
                assert_eq!(has_fix, cause != Cause::Throttled, "{}", refusal.reason);
            }
        }
    }

    #[test]
    fn an_answer_without_a_code_names_the_fix() {
        for (status, request, expected, fix) in [
            (500, None, Blame::Unclear(Cause::Unknown), false),
            (413, None, Blame::Event(RejectionKind::TooLarge), false),
            (403, None, Blame::Unclear(Cause::Misconfigured), true),
            (403, Some("r"), Blame::Unclear(Cause::Misconfigured), false),
            (200, None, Blame::Unclear(Cause::Misconfigured), true),
            (200, Some("r"), Blame::Unclear(Cause::Misconfigured), true),
        ] {
            let status = StatusCode::try_from(status).unwrap();
            let mut answer = HttpResponse::new(status, SdkBody::empty());
            if let Some(request) = request {
                answer.headers_mut().insert("x-amzn-requestid", request);
            }
            let refusal = Refusal::of_status(&answer);
            assert_eq!(refusal.blame, expected, "{status:?}");
            assert_eq!(refusal.reason.contains("`endpoint`"), fix, "{status:?}");
        }
    }

    #[test]
    fn a_code_is_one_short_line() {
        for (code, told) in [
            ("Strange\n\u{1b}[2Jcode\r", "Strange [2Jcode"),
            (
                &*"x".repeat(5_000),
                &*format!("{}…", "x".repeat(CODE_CHARS)),
            ),
        ] {
            let refusal = Refusal::of_entry(code, None, false);
            assert_eq!(refusal.reason, format!("the service answered {told}"));
        }
    }

    #[test]
    fn words_of_a_signature_are_not_told() {
        let words = Some("x-amz-security-token:s3cret\n");
        let refusal = Refusal::of_entry("SignatureDoesNotMatch", words, true);
        assert_eq!(
            refusal.reason,
            "the service answered SignatureDoesNotMatch; correct the credentials, or the region"
        );
        let words = Some("The specified\nqueue\u{0} does not exist");
        let refusal = Refusal::of_entry("a#QueueDoesNotExist", words, true);
        assert_eq!(
            refusal.reason,
            "the service answered QueueDoesNotExist: The specified queue does not exist; create \
             it, or correct name, region and account"
        );
    }
}
