use std::time::Duration;

/// A reading of the machine's boot clock: time since boot, suspend included (`CLOCK_BOOTTIME`).
///
/// Deadlines compare these. They are never compared with a database's clock, nor between machines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Moment(pub Duration);

impl Moment {
    /// The moment `later` after this one.
    #[must_use]
    pub fn after(self, later: Duration) -> Self {
        Self(self.0.saturating_add(later))
    }

    /// How long from this moment until `other`; zero when `other` is not later.
    #[must_use]
    pub fn until(self, other: Self) -> Duration {
        other.0.saturating_sub(self.0)
    }
}
