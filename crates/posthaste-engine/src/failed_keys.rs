//! How a sink that is its own receiver keeps [`KeyOrder::Pipelined`](crate::KeyOrder::Pipelined).

use std::collections::HashMap;

use crate::rule::{Rule, left_out};

/// The keys of a lane behind whose first failure nothing is accepted.
///
/// A record is refused when it was submitted before the engine could know of its key's failure,
/// that is before the failing verdict was handed out. A later submission of the key is made by an
/// engine that knows, and passes.
#[derive(Debug, Default)]
pub struct FailedKeys {
    failures: u64,
    by_key: HashMap<u64, u64>,
}

impl FailedKeys {
    /// Notes that a record of this key was not accepted. Answers the number that
    /// [`refuses`](Self::refuses) compares with, once its verdict was handed out.
    pub fn note(&mut self, order_key: Option<u64>) -> u64 {
        self.failures += 1;
        if let Some(key) = order_key {
            self.by_key.insert(key, self.failures);
        }
        self.failures
    }

    /// Whether a record of this key, submitted when `seen` failures had been handed out, lies
    /// behind a failure that its sender did not know.
    #[must_use]
    pub fn refuses(&self, order_key: Option<u64>, seen: u64) -> bool {
        if left_out(Rule::ReceiverRefusesAfterFailure) {
            return false;
        }
        order_key
            .and_then(|key| self.by_key.get(&key))
            .is_some_and(|&failure| failure > seen)
    }

    /// Forgets keys: every record that is still to come was submitted when at least `seen` failures
    /// had been handed out. A record that waits in the lane counts as still to come.
    pub fn forget(&mut self, seen: u64) {
        self.by_key.retain(|_, &mut failure| failure > seen);
    }
}
