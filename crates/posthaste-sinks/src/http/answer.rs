//! The meaning of an endpoint's answer.

use std::time::Duration;

use hyper::StatusCode;
use posthaste_engine::{Cause, RejectionKind};

/// Characters of an endpoint's own words that are told, at the most.
const EXCERPT_CHARS: usize = 200;

/// An endpoint that is no more is asked again after this time, the longest that the engine waits.
const GONE_WAIT: Duration = Duration::from_secs(300);

/// An answer that came in whole, or as far as anybody wants to read it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Answer {
    pub(super) status: StatusCode,
    /// `Retry-After`.
    pub(super) wait: Option<Duration>,
    /// `Location`, without query.
    pub(super) location: Option<String>,
    /// The beginning of its body, in one line.
    pub(super) excerpt: String,
}

/// The part of the world that an answer blames.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Meaning {
    Accepted,
    /// The event is at fault.
    Rejected(RejectionKind),
    /// The endpoint refuses this event, or us.
    Refused(Refusal),
    /// The endpoint asks to slow down.
    Busy,
    /// The endpoint failed, over this event or over any.
    Failed,
    /// Somebody has to change something; how.
    Setup(&'static str),
}

/// A refusal that may be over one event, as by a firewall that reads it or an interface that says
/// so of things, or over all of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Refusal {
    /// A login is wrong, or an event not allowed.
    Denied,
    /// There is no endpoint.
    Missing,
    /// There is none any more.
    Gone,
}

impl Refusal {
    /// Over one event: its kind. Over all: its cause, how to mend it, and when the endpoint is
    /// asked again.
    pub(super) fn parts(self) -> (RejectionKind, Cause, &'static str, Option<Duration>) {
        match self {
            Self::Denied => (
                RejectionKind::Denied,
                Cause::Denied,
                "; correct the login, `secret_headers` or `secret_query`, or allow it there",
                None,
            ),
            Self::Missing => (
                RejectionKind::Unroutable,
                Cause::Misconfigured,
                "; correct the path, or make the endpoint",
                None,
            ),
            Self::Gone => (
                RejectionKind::Other,
                Cause::Misconfigured,
                "; it wants no more events: correct the address, or route them elsewhere and \
                 remove the destination",
                Some(GONE_WAIT),
            ),
        }
    }
}

impl Answer {
    pub(super) fn meaning(&self) -> Meaning {
        match self.status.as_u16() {
            200..=299 => Meaning::Accepted,
            300..=399 => Meaning::Setup("; redirections are not followed: correct the address"),
            400 | 415 | 422 => Meaning::Rejected(RejectionKind::Invalid),
            401 | 403 => Meaning::Refused(Refusal::Denied),
            404 | 405 => Meaning::Refused(Refusal::Missing),
            407 => Meaning::Setup("; correct `proxy_password`"),
            408 | 425 => Meaning::Failed,
            410 => Meaning::Refused(Refusal::Gone),
            413 | 431 => Meaning::Rejected(RejectionKind::TooLarge),
            429 => Meaning::Busy,
            503 if self.wait.is_some() => Meaning::Busy,
            400..=499 => Meaning::Rejected(RejectionKind::Other),
            500..=599 => Meaning::Failed,
            _ => Meaning::Setup("; no endpoint of webhooks answers so: correct the address"),
        }
    }

    /// The answer in words, behind the words for the endpoint.
    pub(super) fn words(&self, endpoint: &str) -> String {
        let mut words = format!("{endpoint} answered {}", self.status.as_u16());
        if let Some(name) = self.status.canonical_reason() {
            words += &format!(" {name}");
        }
        if let Some(location) = &self.location {
            words += &format!(", to `{location}`");
        }
        if !self.excerpt.is_empty() {
            words += &format!(": {}", self.excerpt);
        }
        words
    }
}

/// The beginning of a text from outside, in one line: white space of any kind is one space, and
/// what cannot be seen is left out.
pub(super) fn excerpt(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let mut out = String::new();
    for word in text.split(|c: char| c.is_whitespace() || c.is_control()) {
        if word.is_empty() {
            continue;
        }
        if !out.is_empty() {
            out.push(' ');
        }
        out.extend(word.chars().filter(|&c| !changes_direction(c)));
    }
    match out.char_indices().nth(EXCERPT_CHARS) {
        Some((end, _)) => format!("{}…", &out[..end]),
        None => out,
    }
}

/// Whether a character turns what stands behind it around, or is not seen at all.
fn changes_direction(c: char) -> bool {
    matches!(
        c,
        '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}'
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(status: u16) -> Answer {
        Answer {
            status: StatusCode::from_u16(status).unwrap(),
            wait: None,
            location: None,
            excerpt: String::new(),
        }
    }

    #[test]
    fn each_status_blames_somebody() {
        use Meaning::{Accepted, Busy, Failed, Refused, Rejected, Setup};
        use Refusal::{Denied, Gone, Missing};
        use RejectionKind::{Invalid, Other, TooLarge};
        for (status, expected) in [
            (200, Accepted),
            (202, Accepted),
            (204, Accepted),
            (299, Accepted),
            (400, Rejected(Invalid)),
            (401, Refused(Denied)),
            (402, Rejected(Other)),
            (403, Refused(Denied)),
            (404, Refused(Missing)),
            (405, Refused(Missing)),
            (408, Failed),
            (409, Rejected(Other)),
            (410, Refused(Gone)),
            (413, Rejected(TooLarge)),
            (415, Rejected(Invalid)),
            (418, Rejected(Other)),
            (422, Rejected(Invalid)),
            (425, Failed),
            (429, Busy),
            (431, Rejected(TooLarge)),
            (500, Failed),
            (502, Failed),
            (503, Failed),
            (504, Failed),
            (599, Failed),
        ] {
            assert_eq!(answer(status).meaning(), expected, "{status}");
        }
        for status in [101, 301, 302, 304, 307, 308, 407, 600] {
            assert!(matches!(answer(status).meaning(), Setup(_)), "{status}");
        }
        let mut busy = answer(503);
        busy.wait = Some(Duration::from_secs(1));
        assert_eq!(busy.meaning(), Busy);
    }

    #[test]
    fn words_from_outside_are_one_short_line() {
        for (body, expected) in [
            (&b""[..], ""),
            (b" \r\n\t", ""),
            (b"no\r\n such\x00\x1b[31morder ", "no such [31morder"),
            ("a\u{202e}b\u{2028}c".as_bytes(), "ab c"),
            (b"\xff!", "\u{fffd}!"),
        ] {
            assert_eq!(excerpt(body), expected);
        }
        let long = excerpt("ü".repeat(EXCERPT_CHARS + 1).as_bytes());
        assert_eq!(long, format!("{}…", "ü".repeat(EXCERPT_CHARS)));
        let mut refused = answer(302);
        refused.location = Some("https://other/".to_owned());
        refused.excerpt = "moved".to_owned();
        assert_eq!(
            refused.words("the endpoint"),
            "the endpoint answered 302 Found, to `https://other/`: moved"
        );
    }
}
