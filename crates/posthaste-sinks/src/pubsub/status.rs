//! The end of a call by gRPC: its frame, its status, and the part of the world that this blames.

use bytes::{BufMut as _, Bytes, BytesMut};
use hyper::{HeaderMap, StatusCode};
use posthaste_engine::{Cause, RejectionKind};
use prost::Message;

use crate::requests::refusal::{Blame, Refusal, excerpt};

/// Characters of a service's own words that are told, at the most.
const EXCERPT_CHARS: usize = 300;

/// Bytes before a message: whether it is compressed, and its length.
const PREFIX_BYTES: usize = 5;

/// A message as it stands in a request.
pub(super) fn frame(message: &impl Message) -> Bytes {
    let len = message.encoded_len();
    let mut out = BytesMut::with_capacity(PREFIX_BYTES + len);
    out.put_u8(0);
    // Far below 4 GiB: a request has ten million bytes.
    out.put_u32(u32::try_from(len).unwrap_or(u32::MAX));
    out.put(&*message.encode_to_vec());
    out.freeze()
}

/// The message of an answer; none: it is no whole message, or a compressed one, which we did not
/// ask for.
pub(super) fn unframe<M: Message + Default>(body: &[u8]) -> Option<M> {
    let (prefix, message) = body.split_first_chunk::<PREFIX_BYTES>()?;
    let &[compressed, len @ ..] = prefix;
    let is_whole = u32::from_be_bytes(len) as usize == message.len();
    match compressed == 0 && is_whole {
        true => M::decode(message).ok(),
        false => None,
    }
}

/// The end of a call that gave no message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Status {
    code: u32,
    words: String,
}

impl Status {
    /// The status in the last headers of an answer; none without one.
    pub(super) fn of(headers: &HeaderMap) -> Option<Self> {
        let code = headers.get("grpc-status")?.to_str().ok()?.parse().ok()?;
        let words = headers
            .get("grpc-message")
            .map_or(&b""[..], |v| v.as_bytes());
        Some(Self {
            code,
            words: excerpt(&decoded(words), EXCERPT_CHARS),
        })
    }

    pub(super) fn is_ok(&self) -> bool {
        self.code == 0
    }

    /// The name of its code in the definition of gRPC.
    fn name(&self) -> String {
        let names = [
            "OK",
            "CANCELLED",
            "UNKNOWN",
            "INVALID_ARGUMENT",
            "DEADLINE_EXCEEDED",
            "NOT_FOUND",
            "ALREADY_EXISTS",
            "PERMISSION_DENIED",
            "RESOURCE_EXHAUSTED",
            "FAILED_PRECONDITION",
            "ABORTED",
            "OUT_OF_RANGE",
            "UNIMPLEMENTED",
            "INTERNAL",
            "UNAVAILABLE",
            "DATA_LOSS",
            "UNAUTHENTICATED",
        ];
        let name = usize::try_from(self.code).ok().and_then(|at| names.get(at));
        name.map_or_else(
            || format!("status {}", self.code),
            |name| (*name).to_owned(),
        )
    }

    /// Why a call that ended so was refused.
    pub(super) fn refusal(&self) -> Refusal {
        let blame = self.blame();
        let mut reason = format!("the service answered {}", self.name());
        // Of credentials nothing is told that a server may repeat.
        if !self.words.is_empty() && !matches!(blame, Blame::Service(_)) {
            reason += &format!(": {}", self.words);
        }
        reason += fix(self.code, blame);
        Refusal { blame, reason }
    }

    /// A limit of a server's own library, and not of Pub/Sub, is told by the code of quotas.
    fn is_over_a_limit_of_grpc(&self) -> bool {
        let words = ["message larger than max", "message exceeds maximum size"];
        words.iter().any(|words| self.words.contains(words))
    }

    fn blame(&self) -> Blame {
        match self.code {
            // Other words may repeat what stands in an event.
            3 if self.words.starts_with("Invalid resource name") => {
                Blame::Place(Cause::Misconfigured)
            }
            3 | 11 => Blame::Event(RejectionKind::Invalid),
            8 if self.is_over_a_limit_of_grpc() => Blame::Event(RejectionKind::TooLarge),
            8 => Blame::Place(Cause::Throttled),
            5 | 9 => Blame::Place(Cause::Misconfigured),
            7 => Blame::Place(Cause::Denied),
            12 => Blame::Unclear(Cause::Misconfigured),
            14 => Blame::Place(Cause::Unknown),
            16 => Blame::Service(Cause::Denied),
            _ => Blame::Unclear(Cause::Unknown),
        }
    }
}

/// How to mend it.
fn fix(code: u32, blame: Blame) -> &'static str {
    match (code, blame) {
        (5, _) => "; create it, or correct project and topic",
        (7, _) => {
            "; give our account the role `roles/pubsub.publisher` there, or enable the \
                   interface in the project"
        }
        (12, _) => "; what answers there is no Pub/Sub: correct `endpoint`",
        (16, _) => "; correct the credentials, or set the clock",
        _ => "",
    }
}

/// An answer that is none of gRPC, by its status of HTTP.
pub(super) fn refusal_of_http(status: StatusCode, is_grpc: bool) -> Refusal {
    let reason = format!("the service answered {} of HTTP", status.as_u16());
    match status.as_u16() {
        200 if is_grpc => Refusal::unclear(Cause::Unknown, "an answer that has no end"),
        413 => Refusal {
            blame: Blame::Event(RejectionKind::TooLarge),
            reason: format!("{reason}: the request is too large"),
        },
        401 => Refusal::of_service(
            Cause::Denied,
            format!("{reason}; correct the credentials, or set the clock"),
        ),
        403 => Refusal {
            blame: Blame::Place(Cause::Denied),
            reason,
        },
        429 => Refusal {
            blame: Blame::Place(Cause::Throttled),
            reason,
        },
        500..=599 => Refusal::unclear(Cause::Unknown, reason),
        _ => Refusal::unclear(
            Cause::Misconfigured,
            format!("{reason}; what answers there is no Pub/Sub: correct `endpoint`"),
        ),
    }
}

/// A text in which bytes are percent-encoded. A percent sign that begins no escape is itself.
fn decoded(text: &[u8]) -> String {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((&byte, tail)) = rest.split_first() {
        let digit = |at: usize| tail.get(at).and_then(|&c| char::from(c).to_digit(16));
        let escaped = digit(0).zip(digit(1)).filter(|_| byte == b'%');
        match escaped.and_then(|(high, low)| u8::try_from(high * 16 + low).ok()) {
            Some(byte) => {
                out.push(byte);
                rest = &tail[2..];
            }
            None => {
                out.push(byte);
                rest = tail;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pubsub::wire::PublishResponse;

    fn refusal(code: u32, words: &str) -> Refusal {
        let mut headers = HeaderMap::new();
        headers.insert("grpc-status", code.into());
        headers.insert("grpc-message", words.parse().unwrap());
        Status::of(&headers).unwrap().refusal()
    }

    #[test]
    fn each_code_blames_somebody() {
        use Blame::{Event, Place, Service, Unclear};
        for (code, expected) in [
            (1, Unclear(Cause::Unknown)),
            (2, Unclear(Cause::Unknown)),
            (3, Event(RejectionKind::Invalid)),
            (4, Unclear(Cause::Unknown)),
            (5, Place(Cause::Misconfigured)),
            (6, Unclear(Cause::Unknown)),
            (7, Place(Cause::Denied)),
            (8, Place(Cause::Throttled)),
            (9, Place(Cause::Misconfigured)),
            (10, Unclear(Cause::Unknown)),
            (11, Event(RejectionKind::Invalid)),
            (12, Unclear(Cause::Misconfigured)),
            (13, Unclear(Cause::Unknown)),
            (14, Place(Cause::Unknown)),
            (15, Unclear(Cause::Unknown)),
            (16, Service(Cause::Denied)),
            (99, Unclear(Cause::Unknown)),
        ] {
            assert_eq!(refusal(code, "words").blame, expected, "{code}");
        }
        let name = "Invalid resource name given (name=projects/p/topics/x)";
        assert_eq!(refusal(3, name).blame, Place(Cause::Misconfigured));
        let other = "field `Invalid resource name` is missing";
        assert_eq!(refusal(3, other).blame, Event(RejectionKind::Invalid));
        for large in [
            "grpc: received message larger than max (5 vs. 4)",
            "gRPC message exceeds maximum size 4: 5",
        ] {
            assert_eq!(refusal(8, large).blame, Event(RejectionKind::TooLarge));
        }
    }

    #[test]
    fn words_are_one_line_and_tell_nothing_of_credentials() {
        let words = "no%20such%0atopic %E2%80%9Cx%E2%80%9D 100%";
        assert_eq!(
            refusal(5, words).reason,
            "the service answered NOT_FOUND: no such topic “x” 100%; create it, or correct \
             project and topic"
        );
        assert_eq!(
            refusal(16, "token s3cret").reason,
            "the service answered UNAUTHENTICATED; correct the credentials, or set the clock"
        );
    }

    #[test]
    fn an_answer_that_is_none_of_grpc_blames_somebody() {
        use Blame::{Event, Place, Service, Unclear};
        for (status, expected) in [
            (200, Unclear(Cause::Misconfigured)),
            (401, Service(Cause::Denied)),
            (403, Place(Cause::Denied)),
            (404, Unclear(Cause::Misconfigured)),
            (413, Event(RejectionKind::TooLarge)),
            (429, Place(Cause::Throttled)),
            (503, Unclear(Cause::Unknown)),
        ] {
            let status = StatusCode::from_u16(status).unwrap();
            assert_eq!(refusal_of_http(status, false).blame, expected, "{status}");
        }
        let cut = refusal_of_http(StatusCode::OK, true);
        assert_eq!(cut.blame, Unclear(Cause::Unknown));
    }

    #[test]
    fn a_message_has_a_frame() {
        let message = PublishResponse {
            message_ids: vec!["1".to_owned()],
        };
        let framed = frame(&message);
        assert_eq!(&*framed, b"\0\0\0\0\x03\x0a\x011");
        assert_eq!(unframe(&framed), Some(message));
        for wrong in [
            &b""[..],
            b"\0\0\0\0",
            b"\0\0\0\0\x01",
            b"\x01\0\0\0\x03\x0a\x011",
            b"\0\0\0\0\x03\x0a\x0911",
        ] {
            assert_eq!(unframe::<PublishResponse>(wrong), None, "{wrong:?}");
        }
    }
}
