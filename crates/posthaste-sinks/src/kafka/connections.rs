//! Connections to brokers that have ended, as the client's log tells. They are no errors to the
//! client where something was under way: it connects again by itself, and repeats that.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

/// The client tells the same of a broker again only after so long.
const TOLD_AGAIN_AFTER: Duration = Duration::from_secs(30);

/// When a connection was last told to have ended, by the number of its broker.
#[derive(Default)]
pub(super) struct EndedConnections(HashMap<i32, Instant>);

impl EndedConnections {
    /// Takes in a line of the client's log.
    pub(super) fn take_log(&mut self, facility: &str, message: &str, now: Instant) {
        if let Some(broker) = broker_that_failed(facility, message) {
            self.0.insert(broker, now);
        }
    }

    /// Whether a connection to this broker may have ended since then.
    pub(super) fn may_have_since(&self, broker: i32, then: Instant) -> bool {
        let told = self.0.get(&broker);
        told.is_some_and(|told| *told + TOLD_AGAIN_AFTER >= then)
    }
}

/// The number of the broker to which a connection has ended, by a line of the client's log:
/// `[thrd:NAME]: HOST:PORT/NUMBER: WORDS`.
fn broker_that_failed(facility: &str, message: &str) -> Option<i32> {
    if facility != "FAIL" {
        return None;
    }
    let (_, line) = message.split_once("]: ")?;
    let (name, _) = line.split_once(": ")?;
    name.rsplit_once('/')?.1.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_log_names_the_broker() {
        let words = "Disconnected: verify that security.protocol is right (after 3ms in state UP)";
        for (name, expected) in [
            ("127.0.0.1:9092/1", Some(1)),
            ("sasl_ssl://kafka-2.example:9093/1002", Some(1002)),
            ("ssl://[2001:db8::1]:9093/7", Some(7)),
            ("127.0.0.1:9092/bootstrap", None),
            ("GroupCoordinator", None),
        ] {
            let message = format!("[thrd:{name}]: {name}: {words}");
            assert_eq!(broker_that_failed("FAIL", &message), expected, "{name}");
            assert_eq!(broker_that_failed("TIMEOUT", &message), None);
        }
        assert_eq!(broker_that_failed("FAIL", "something else"), None);
    }

    #[test]
    fn an_end_that_need_not_be_told_again_counts_as_one() {
        let (begin, second) = (Instant::now(), Duration::from_secs(1));
        let mut connections = EndedConnections::default();
        assert!(!connections.may_have_since(1, begin));
        let message = "[thrd:h:9092/1]: h:9092/1: Disconnected (after 3ms in state UP)";
        connections.take_log("FAIL", message, begin + second);
        assert!(connections.may_have_since(1, begin), "it was told since");
        assert!(connections.may_have_since(1, begin + second + TOLD_AGAIN_AFTER));
        assert!(!connections.may_have_since(1, begin + 2 * second + TOLD_AGAIN_AFTER));
        assert!(!connections.may_have_since(2, begin), "another broker");
    }
}
