//! Where chance comes from: waits are spread by it, and nothing else is decided by it.

use std::{fmt, sync::Arc, time::Duration};

/// Numbers from 0 to below 1. Clones draw from the same source.
#[derive(Clone)]
pub(crate) struct Jitter(Arc<dyn Fn() -> f64 + Send + Sync>);

impl Jitter {
    pub(crate) fn of(source: impl Fn() -> f64 + Send + Sync + 'static) -> Self {
        Self(Arc::new(source))
    }

    pub(crate) fn draw(&self) -> f64 {
        (self.0)()
    }

    /// +-10 %, so that relays which started together do not call the store together.
    pub(crate) fn spread(&self, wait: Duration) -> Duration {
        wait.mul_f64(0.9 + 0.2 * self.draw())
    }
}

impl Default for Jitter {
    fn default() -> Self {
        Self::of(rand::random::<f64>)
    }
}

impl fmt::Debug for Jitter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Jitter")
    }
}
