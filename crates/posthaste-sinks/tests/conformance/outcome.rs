//! Looks into outcomes, for the tests of services that answer for each event.

use std::time::Duration;

use posthaste_engine::{Cause, LaneSpec, Outcome, RejectionKind};
use posthaste_testkit::sink_suite::lane_spec;

/// A lane that waits for a second at the most.
pub(crate) fn short(number: u64) -> LaneSpec {
    LaneSpec {
        publish_timeout: Duration::from_secs(1),
        ..lane_spec(number)
    }
}

/// Expects that the destination is at fault: why, and the words.
pub(crate) fn cause(outcome: &Outcome) -> (Cause, &str) {
    match outcome {
        Outcome::Unavailable(why) => (why.cause, &why.reason),
        other => panic!("{other:?}"),
    }
}

/// Why it was rejected, and the words.
pub(crate) fn rejection(outcome: &Outcome) -> (RejectionKind, &str) {
    match outcome {
        Outcome::Rejected(why) => (why.kind, &why.reason),
        other => panic!("{other:?}"),
    }
}

/// Why it was put off.
pub(crate) fn put_off(outcome: &Outcome) -> &str {
    match outcome {
        Outcome::Later(why) => &why.reason,
        other => panic!("{other:?}"),
    }
}
