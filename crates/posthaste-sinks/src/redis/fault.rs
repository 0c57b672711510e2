//! The meaning of the server's refusals, with the fix.

use std::{error::Error as _, io, sync::Arc, time::Duration};

use ::redis::{ErrorKind, RedisError};
use posthaste_engine::{Cause, Outcome, RejectionKind, SinkError, Unavailability};

use crate::transport::{TransportError, refused_us};

/// A server without memory is asked again after this time: consumers or an operator make room.
const NO_MEMORY_WAIT: Duration = Duration::from_secs(1);

/// Why a connection was not made, or a question has no answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ServerFault {
    pub(super) blame: Blame,
    /// In words, with the fix where one is known.
    pub(super) reason: String,
    /// The first word of the server's refusal; none: it refused nothing.
    pub(super) code: Option<String>,
    /// Where else to ask, by a cluster.
    pub(super) moved_to: Option<String>,
}

/// The part of a destination that is to blame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Blame {
    /// The whole destination. The lane ends.
    Server(Cause),
    /// The stream takes nothing now, and others do.
    Stream,
    /// We may not use the stream.
    StreamDenied,
}

impl ServerFault {
    fn new(cause: Cause, reason: impl Into<String>) -> Self {
        Self {
            blame: Blame::Server(cause),
            reason: reason.into(),
            code: None,
            moved_to: None,
        }
    }

    /// It took too long.
    pub(super) fn slow(doing: &str, limit: Duration) -> Self {
        let reason = format!("{doing}: no answer within {limit:?}");
        Self::new(Cause::Unknown, reason)
    }

    /// The server does not begin TLS.
    pub(super) fn no_handshake(limit: Duration) -> Self {
        let reason = format!(
            "no answer to TLS within {limit:?}; write `redis://` where the port speaks none"
        );
        Self::new(Cause::Connection, reason)
    }

    /// The answer is none that the sink knows.
    pub(super) fn strange(doing: &str) -> Self {
        let reason = format!("{doing}: the server's answer has another form than Redis gives it");
        Self::new(Cause::Unknown, reason)
    }

    /// Fewer replicas than the address asks for have what was sent.
    pub(super) fn few_replicas(found: u64, wanted: u64, limit: Duration) -> Self {
        let reason = format!(
            "{found} of the {wanted} replicas that `wait` asks for confirmed within {limit:?}; see \
             the replicas"
        );
        Self::new(Cause::Unknown, reason)
    }

    /// The server does not have this lane: a newer one owns what it did, or `key` is lost.
    pub(super) fn fenced(key: &str) -> Self {
        let reason = format!(
            "a newer lane of this destination was opened, and if another relay did, it owns the \
             partitions now; or the server has lost the key `{key}`, which names the lanes"
        );
        Self::new(Cause::LaneEnded, reason)
    }

    /// The client's error.
    pub(super) fn of(error: &RedisError) -> Self {
        if let Some(words) = error.detail().and_then(of_line) {
            return Self::of_script(words);
        }
        match error.code() {
            Some(code) => Self {
                moved_to: error.redirect_node().map(|(node, _)| node.to_owned()),
                ..Self::said(code, error.detail().unwrap_or_default())
            },
            None => Self::of_client(error),
        }
    }

    /// The client's error at a login. A server that does not know the command repeats its
    /// arguments.
    pub(super) fn of_login(error: &RedisError) -> Self {
        match error.code() {
            Some("ERR") => Self::new(
                Cause::Denied,
                "the server knows no such login (`AUTH`); correct user and password",
            ),
            _ => Self::of(error),
        }
    }

    fn of_client(error: &RedisError) -> Self {
        let source = error.source();
        let io = source.and_then(|source| {
            let shared = source.downcast_ref::<Arc<io::Error>>();
            shared
                .map(|shared| &**shared)
                .or_else(|| source.downcast_ref())
        });
        match (error.kind(), io) {
            (ErrorKind::Parse, _) => Self::new(
                Cause::Misconfigured,
                "what answers there does not speak Redis; correct host and port (a server listens \
                 on 6379), or write `rediss://` where it asks for TLS",
            ),
            (_, Some(io)) if io.kind() == io::ErrorKind::UnexpectedEof => Self::closed(),
            (_, Some(io)) => match refused_us(io) {
                Some(refused) => refused.into(),
                None => Self::new(Cause::Connection, format!("the connection broke: {io}")),
            },
            (ErrorKind::Io, None) => Self::closed(),
            (_, None) => Self::new(Cause::Unknown, format!("the client said: {error}")),
        }
    }

    fn closed() -> Self {
        let reason = "the connection ended without an answer; see the server's log, or correct \
                      host, port and scheme (`rediss:` for TLS) where no such Redis listens";
        Self::new(Cause::Connection, reason)
    }

    /// The server refused, with this code and these words behind it.
    pub(super) fn said(code: &str, words: &str) -> Self {
        let (blame, fix) = classify(code, words);
        Self {
            blame,
            reason: format!("the server said: {code} {words}{fix}"),
            code: Some(code.to_owned()),
            moved_to: None,
        }
    }

    /// A command of a script was refused in these words.
    pub(super) fn of_script(words: &str) -> Self {
        let words = of_line(words).unwrap_or(words).trim_end();
        let words = words.strip_prefix('-').unwrap_or(words);
        match words.split_once(' ') {
            Some((code, words)) if code.bytes().all(|byte| byte.is_ascii_uppercase()) => {
                Self::said(code, words)
            }
            _ => Self::said("ERR", words),
        }
    }

    /// The same of a command at this key of ours.
    pub(super) fn at_own_key(words: &str, key: &str) -> Self {
        let fault = Self::of_script(words);
        match fault.blame {
            Blame::Stream => Self {
                reason: format!(
                    "the server said: {words}; the sink keeps its own data in the key `{key}`: \
                     remove what it holds"
                ),
                ..fault
            },
            _ => fault,
        }
    }

    /// The same where all streams meet it.
    pub(super) fn of_all_streams(self) -> Self {
        Self {
            blame: Blame::Server(self.cause()),
            ..self
        }
    }

    /// The cause where the whole destination is blamed.
    pub(super) fn cause(&self) -> Cause {
        match self.blame {
            Blame::Server(cause) => cause,
            Blame::Stream => Cause::Misconfigured,
            Blame::StreamDenied => Cause::Denied,
        }
    }

    /// The same as the answer of `check` and `open_lane`.
    pub(super) fn into_error(self, target: String) -> SinkError {
        SinkError::new(self.cause(), target, self.reason)
    }

    /// The same as the end of a lane.
    pub(super) fn unavailability(&self) -> Unavailability {
        let cause = self.cause();
        Unavailability {
            wait: (cause == Cause::Throttled).then_some(NO_MEMORY_WAIT),
            ..Unavailability::new(cause, self.reason.as_str())
        }
    }

    /// The same as the outcome of a record of this stream.
    pub(super) fn outcome(&self, stream: &str) -> Outcome {
        let reason = || format!("stream `{stream}`: {}", self.reason);
        match self.blame {
            Blame::Server(_) => Outcome::Unavailable(Arc::new(self.unavailability())),
            Blame::Stream => Outcome::later(reason()),
            Blame::StreamDenied => Outcome::rejected(RejectionKind::Denied, reason()),
        }
    }
}

impl From<TransportError> for ServerFault {
    fn from(error: TransportError) -> Self {
        match error {
            TransportError::Connection(words) => Self::new(Cause::Connection, words),
            TransportError::Setup(words) => Self::new(Cause::Misconfigured, words),
            TransportError::Certificate(words) => Self::new(Cause::Denied, words),
        }
    }
}

/// The refusal behind the line of a script, as Redis 6.2 says it: `@user_script: 25: -OOM command`.
fn of_line(words: &str) -> Option<&str> {
    let (_, behind) = words.split_once("@user_script: ")?;
    let (line, refusal) = behind.split_once(": ")?;
    line.bytes()
        .all(|byte| byte.is_ascii_digit())
        .then_some(refusal)
}

/// The blame for a refusal, and the fix.
fn classify(code: &str, words: &str) -> (Blame, &'static str) {
    let server = |cause, fix| (Blame::Server(cause), fix);
    match code {
        "WRONGTYPE" => (
            Blame::Stream,
            "; the key holds something else than a stream: rename that, or give `stream` another \
             name",
        ),
        "NOPERM" if words.contains("one of the keys") || words.contains("access a key") => (
            Blame::StreamDenied,
            "; allow the user to read and write the stream's key, and keys that begin with \
             `posthaste:`",
        ),
        "NOPERM" => server(Cause::Denied, "; allow the user this command"),
        // Redis 7.2 and Valkey name the command within a script; Redis 7.0 does not.
        "ERR" if words.contains("ACL failure in script") => {
            server(Cause::Denied, "; allow the user this command")
        }
        "ERR" if words.contains("user executing the script") => server(
            Cause::Denied,
            "; allow the user the commands that the sink's page names (`posthaste check` says \
             which one it lacks)",
        ),
        "NOAUTH" | "WRONGPASS" => server(Cause::Denied, "; correct user and password"),
        "DENIED" => server(Cause::Denied, ""),
        "OOM" => server(
            Cause::Throttled,
            "; trim streams (`maxlen`), or raise the server's `maxmemory`",
        ),
        "MISCONF" => server(Cause::Misconfigured, ""),
        "READONLY" => server(
            Cause::Connection,
            "; the server is a replica: name all servers, of which the sink finds the primary",
        ),
        "ERR" if words.contains("WAIT cannot be used with replica") => {
            server(Cause::Connection, "; the server has become a replica")
        }
        "CROSSSLOT" => server(
            Cause::Misconfigured,
            "; a cluster's streams must be in one slot: give `stream` a hash tag, as in \
             `stream={{outbox}}:{topic}`",
        ),
        "LOADING" | "MASTERDOWN" | "CLUSTERDOWN" | "TRYAGAIN" | "MOVED" | "ASK" | "BUSY"
        | "NOREPLICAS" | "UNBLOCKED" => server(Cause::Connection, ""),
        "ERR" if words.contains("max number of clients") => server(Cause::Connection, ""),
        "ERR" if words.contains("DB index") || words.contains("cluster mode") => server(
            Cause::Misconfigured,
            "; correct the database behind the `/` of the address",
        ),
        "ERR" if words.contains("unknown command") => server(
            Cause::Misconfigured,
            "; use Redis 6.2 or later, and do not rename its commands",
        ),
        // It ends the connection, so it cannot say which event it is.
        "ERR" if words.contains("invalid bulk length") => server(
            Cause::Unknown,
            "; an event is over the server's `proto-max-bulk-len`: lower `max_event_bytes`",
        ),
        // The most entries that a stream can have: it takes nothing more.
        "ERR" if words.contains("exhausted the last possible ID") => {
            (Blame::Stream, "; give `stream` another name")
        }
        _ => server(Cause::Unknown, ""),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_have_a_blame() {
        let server = Blame::Server;
        for (code, words, blame) in [
            (
                "WRONGTYPE",
                "Operation against a key holding the wrong kind of value",
                Blame::Stream,
            ),
            (
                "NOPERM",
                "this user has no permissions to access one of the keys used as arguments",
                Blame::StreamDenied,
            ),
            (
                "NOPERM",
                "No permissions to access a key",
                Blame::StreamDenied,
            ),
            (
                "NOPERM",
                "this user has no permissions to run the 'eval' command",
                server(Cause::Denied),
            ),
            (
                "WRONGPASS",
                "invalid username-password pair or user is disabled.",
                server(Cause::Denied),
            ),
            ("NOAUTH", "Authentication required.", server(Cause::Denied)),
            (
                "OOM",
                "command not allowed when used memory > 'maxmemory'.",
                server(Cause::Throttled),
            ),
            (
                "READONLY",
                "You can't write against a read only replica.",
                server(Cause::Connection),
            ),
            (
                "LOADING",
                "Redis is loading the dataset in memory",
                server(Cause::Connection),
            ),
            (
                "CLUSTERDOWN",
                "The cluster is down",
                server(Cause::Connection),
            ),
            (
                "MASTERDOWN",
                "Link with MASTER is down and replica-serve-stale-data is set to 'no'.",
                server(Cause::Connection),
            ),
            (
                "ERR",
                "max number of clients reached",
                server(Cause::Connection),
            ),
            (
                "ERR",
                "DB index is out of range",
                server(Cause::Misconfigured),
            ),
            (
                "CROSSSLOT",
                "Keys in request don't hash to the same slot",
                server(Cause::Misconfigured),
            ),
            (
                "MISCONF",
                "Redis is configured to save RDB snapshots, but it's currently unable to",
                server(Cause::Misconfigured),
            ),
            (
                "ERR",
                "The user executing the script can't run this command or subcommand",
                server(Cause::Denied),
            ),
            (
                "ERR",
                "ACL failure in script: User u has no permissions to run the 'xadd' command",
                server(Cause::Denied),
            ),
            (
                "ERR",
                "Protocol error: invalid bulk length",
                server(Cause::Unknown),
            ),
            ("ERR", "something new", server(Cause::Unknown)),
        ] {
            let fault = ServerFault::said(code, words);
            assert_eq!(fault.blame, blame, "{code} {words}");
            assert!(fault.reason.contains(words), "{}", fault.reason);
        }
    }

    #[test]
    fn a_refusal_within_a_script_is_read_in_the_form_of_each_version() {
        let server = Blame::Server;
        for (words, blame, said) in [
            (
                "OOM command not allowed",
                server(Cause::Throttled),
                "said: OOM command not allowed;",
            ),
            (
                "@user_script: 25: -OOM command not allowed\r\n",
                server(Cause::Throttled),
                "said: OOM command not allowed;",
            ),
            (
                "@user_script: 11: The user executing the script can't run this command",
                server(Cause::Denied),
                "said: ERR The user executing",
            ),
            ("WRONGTYPE Operation", Blame::Stream, "said: WRONGTYPE Op"),
        ] {
            let fault = ServerFault::of_script(words);
            assert_eq!(fault.blame, blame, "{words}");
            assert!(fault.reason.contains(said), "{}", fault.reason);
        }
        // Raised by the script, and not answered.
        let words = "Error running script (call to f_1): @user_script:27: @user_script: 27: \
                     -READONLY You can't write against a read only replica.";
        let error = ::redis::make_extension_error("ERR".to_owned(), Some(words.to_owned()));
        let fault = ServerFault::of(&error);
        assert_eq!(fault.blame, server(Cause::Connection));
        assert!(
            fault.reason.contains("said: READONLY You"),
            "{}",
            fault.reason
        );
    }

    #[test]
    fn a_login_is_never_repeated() {
        let words = "unknown command 'AUTH', with args beginning with: 's3cret'";
        let error = ::redis::make_extension_error("ERR".to_owned(), Some(words.to_owned()));
        assert!(ServerFault::of(&error).reason.contains("s3cret"));
        let fault = ServerFault::of_login(&error);
        assert!(!fault.reason.contains("s3cret"), "{}", fault.reason);
        assert_eq!(fault.cause(), Cause::Denied);
    }
}
