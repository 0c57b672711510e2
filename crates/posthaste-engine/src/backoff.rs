use std::time::Duration;

/// Exponential backoff with jitter. The random number is an argument, so that a run can be
/// replayed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Backoff {
    /// The first wait.
    pub first: Duration,
    /// The longest wait, before jitter.
    pub max: Duration,
    /// The share of a wait by which it may be shorter or longer, 0 to 1: retries of many relays
    /// must not meet.
    pub jitter: f64,
}

impl Default for Backoff {
    /// 1 s doubling to 5 min, +-25 %: a passing fault costs a second, an hour's fault a dozen
    /// tries.
    fn default() -> Self {
        Self {
            first: Duration::from_secs(1),
            max: Duration::from_secs(300),
            jitter: 0.25,
        }
    }
}

impl Backoff {
    /// The wait after `failures` failures (1 is the first), with `random` in 0 to 1.
    #[must_use]
    pub fn delay(&self, failures: u32, random: f64) -> Duration {
        // More doublings than that take the shortest wait past the longest.
        let doublings = failures.saturating_sub(1).min(100);
        let doubled = self.first.as_nanos().saturating_mul(1 << doublings);
        let wait = doubled.min(self.max.as_nanos()) as f64 / 1e9;
        let factor = 1.0 + self.jitter.clamp(0.0, 1.0) * (2.0 * random.clamp(0.0, 1.0) - 1.0);
        // Only what is too long for a `Duration` cannot be one.
        Duration::try_from_secs_f64(wait * factor).unwrap_or(Duration::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn doubles_up_to_the_longest_wait_and_stays_within_the_jitter() {
        let backoff = Backoff::default();
        let seconds = |failures, random| backoff.delay(failures, random).as_secs_f64();
        assert_eq!(
            [1, 2, 3, 20].map(|n| seconds(n, 0.5)),
            [1.0, 2.0, 4.0, 300.0]
        );
        assert_eq!([0.0, 1.0].map(|random| seconds(2, random)), [1.5, 2.5]);
        assert!(seconds(u32::MAX, 1.0) <= 375.0);
    }

    #[test]
    fn a_wait_too_long_for_the_clock_is_the_longest_there_is() {
        let backoff = Backoff {
            first: Duration::MAX,
            max: Duration::MAX,
            jitter: 0.25,
        };
        assert_eq!(backoff.delay(1, 1.0), Duration::MAX);
    }

    #[test]
    fn a_tiny_first_wait_grows_to_the_longest_too() {
        let backoff = Backoff {
            first: Duration::from_nanos(1),
            ..Backoff::default()
        };
        assert_eq!(backoff.delay(60, 0.5), backoff.max);
    }
}
