//! Stores and sinks that fail as a script says: [`Faulty`] wraps a real one.
//!
//! Four faults cover what a network and a broker can do to a caller: refuse before the work, fail
//! after it, hold the answer, answer slowly. After *fail after* and *hold* the work is done
//! although the caller does not know it, which is where the bugs live.
//!
//! ```no_run
//! # async fn example(store: std::sync::Arc<dyn posthaste_engine::Store>) {
//! use posthaste_testkit::faulty::{Call, Fault, Faulty, Script};
//!
//! let script = Script::default();
//! let store = Faulty::new(store, script.clone());
//! script.once(Call::Advance, Fault::FailAfter);
//! // ... run a relay on `store` ...
//! script.met(Call::Advance, 1).await;
//! # drop(store);
//! # }
//! ```

mod script;
mod sink;
mod store;
pub mod watch;

pub use script::{Call, Fault, Script};
use watch::Unwatched;

/// Something that fails as its script says: a [`Store`](posthaste_engine::Store), a
/// [`Sink`](posthaste_engine::Sink), and what they open. It may be watched.
#[derive(Debug, Clone)]
pub struct Faulty<T, W = Unwatched> {
    inner: T,
    script: Script,
    watch: W,
}

impl<T> Faulty<T> {
    /// `inner`, with the faults of `script`. All that it opens shares the script.
    #[must_use]
    pub fn new(inner: T, script: Script) -> Self {
        Self::watched(inner, script, Unwatched)
    }
}

impl<T, W> Faulty<T, W> {
    /// As [`new`](Faulty::new), and calls are told to `watch`.
    #[must_use]
    pub fn watched(inner: T, script: Script, watch: W) -> Self {
        Self {
            inner,
            script,
            watch,
        }
    }
}
