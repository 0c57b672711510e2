use std::{sync::Arc, time::Duration};

use posthaste_engine::{Backoff, PipelineLimits, Routes, Store};

use crate::{
    BootClock, Clock, Destination, Relay, RelayError,
    jitter::Jitter,
    settings::{LEASE, Settings},
};

/// Sets up a [`Relay`].
pub struct RelayBuilder {
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    settings: Settings,
    destinations: Vec<Destination>,
    routes: Routes,
    poll_idle: Option<Duration>,
}

impl Relay {
    /// Begins to set up a relay over `store`.
    pub fn builder(store: Arc<dyn Store>) -> RelayBuilder {
        RelayBuilder::new(store)
    }
}

impl RelayBuilder {
    fn new(store: Arc<dyn Store>) -> Self {
        let limits = PipelineLimits {
            // A crash may repeat so much: a second's worth for a fast broker, a few MiB of memory.
            window_events: 10_000,
            window_bytes: 8 << 20,
            // Larger pages gain nothing on PostgreSQL once plans are generic, and double the
            // memory.
            batch_events: 1_000,
            batch_bytes: 1 << 20,
            retry: Backoff::default(),
            // Delivery resumes within five seconds of the destination's return: the longest wait
            // with its jitter, and a connection.
            probe: Backoff {
                first: Duration::from_millis(500),
                max: Duration::from_secs(3),
                jitter: 0.25,
            },
            // So many refusals of so many keys are a destination's fault.
            blocked_keys_max: 10_000,
            // A few MiB where keys are long; all that one relay blocks by itself.
            blocked_keys_kept: 10_000,
            // A burst of bad events is not an outage; a topic that is missing for all of them is.
            rejections_max: 100,
            // Ten row versions a second: cheap for the database, and a tenth of a second to repeat.
            advance_every: Duration::from_millis(100),
            settle: LEASE / 6,
            // Most of what an event waits for at a few hundred a second.
            poll_busy: Duration::from_millis(2),
            poll_idle: Duration::from_millis(700),
            due_every: Duration::from_secs(5),
        };
        let settings = Settings {
            name: default_name(),
            lease: LEASE,
            // Answers must come, and late bytes must be gone, well before the lease can end.
            publish_timeout: LEASE / 3,
            margin: LEASE / 6,
            settle: LEASE / 6,
            shutdown_timeout: Duration::from_secs(10),
            partitions_max: u16::MAX,
            until_drained: false,
            limits,
            jitter: Jitter::default(),
        };
        Self {
            store,
            clock: Arc::new(BootClock),
            settings,
            destinations: Vec::new(),
            routes: Routes::default(),
            poll_idle: None,
        }
    }

    /// The relay's name, shown to operators. Default: the host's name.
    #[must_use]
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.settings.name = name.into();
        self
    }

    /// The lease; publish time-out, margin and settle follow it (a third, a sixth, a sixth).
    /// Default 15 s, at least 1 s.
    #[must_use]
    pub fn lease(mut self, lease: Duration) -> Self {
        self.settings.lease = lease;
        self.settings.publish_timeout = lease / 3;
        self.settings.margin = lease / 6;
        self.settings.settle = lease / 6;
        self.settings.limits.settle = lease / 6;
        self
    }

    /// How long one batch may take to be accepted. Default: a third of the lease; set it after
    /// that.
    #[must_use]
    pub fn publish_timeout(mut self, limit: Duration) -> Self {
        self.settings.publish_timeout = limit;
        self
    }

    /// Spare time between the last publish and the end of the lease. Default: a sixth of the lease;
    /// set it after that.
    #[must_use]
    pub fn margin(mut self, margin: Duration) -> Self {
        self.settings.margin = margin;
        self
    }

    /// How long bytes of an aborted lane may still arrive. Default: a sixth of the lease; set it
    /// after that.
    #[must_use]
    pub fn settle(mut self, settle: Duration) -> Self {
        self.settings.settle = settle;
        self.settings.limits.settle = settle;
        self
    }

    /// Changes single bounds and waits of each destination.
    #[must_use]
    pub fn limits(mut self, change: impl FnOnce(&mut PipelineLimits)) -> Self {
        change(&mut self.settings.limits);
        self
    }

    /// How long a planned stop may take. Default 10 s.
    #[must_use]
    pub fn shutdown_timeout(mut self, limit: Duration) -> Self {
        self.settings.shutdown_timeout = limit;
        self
    }

    /// Partitions of each destination that this relay owns at the most, so that a small machine
    /// takes a small share. Default: no bound. Partitions that no relay takes are not delivered.
    #[must_use]
    pub fn partitions_max(mut self, partitions: u16) -> Self {
        self.settings.partitions_max = partitions;
        self
    }

    /// End when every event that was visible at the start is accepted, parked, or blocked behind a
    /// parked one.
    #[must_use]
    pub fn until_drained(mut self, until_drained: bool) -> Self {
        self.settings.until_drained = until_drained;
        self
    }

    /// The in-flight window of each destination: what a crash may repeat. Default 10 000 events and
    /// 8 MiB.
    #[must_use]
    pub fn window(mut self, events: usize, bytes: usize) -> Self {
        self.settings.limits.window_events = events;
        self.settings.limits.window_bytes = bytes;
        self
    }

    /// Events and bytes of a read, and of a batch. Default 1 000 events and 1 MiB.
    #[must_use]
    pub fn batch(mut self, events: usize, bytes: usize) -> Self {
        self.settings.limits.batch_events = events;
        self.settings.limits.batch_bytes = bytes;
        self
    }

    /// Longest wait between reads of an idle outbox. Default 700 ms for each destination, so that
    /// an idle outbox costs less than two statements a second.
    #[must_use]
    pub fn poll_idle(mut self, wait: Duration) -> Self {
        self.poll_idle = Some(wait);
        self
    }

    /// Adds a destination.
    #[must_use]
    pub fn destination(mut self, destination: Destination) -> Self {
        self.destinations.push(destination);
        self
    }

    /// Which destination takes which event. Default: each takes all.
    #[must_use]
    pub fn routes(mut self, routes: Routes) -> Self {
        self.routes = routes;
        self
    }

    /// Another clock; for tests.
    #[must_use]
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// Where the spread of waits is drawn from: numbers from 0 to below 1; for tests that replay.
    #[must_use]
    pub fn jitter(mut self, source: impl Fn() -> f64 + Send + Sync + 'static) -> Self {
        self.settings.jitter = Jitter::of(source);
        self
    }

    /// Checks the set-up. Nothing is contacted yet.
    ///
    /// # Errors
    /// [`RelayError::Configuration`] that names what is wrong.
    pub fn build(mut self) -> Result<Relay, RelayError> {
        let wrong = |what: String| Err(RelayError::Configuration(what));
        if self.destinations.is_empty() {
            return wrong("a relay needs at least one destination".into());
        }
        let mut names: Vec<&str> = self.destinations.iter().map(|d| d.name.as_str()).collect();
        names.sort_unstable();
        if let Some(pair) = names.windows(2).find(|pair| pair[0] == pair[1]) {
            return wrong(format!("destination `{}` is named twice", pair[0]));
        }
        if names.contains(&"") {
            return wrong("a destination needs a name".into());
        }
        if self.settings.lease < Duration::from_secs(1) {
            return wrong(format!(
                "lease {:?} is too short: at least 1 s",
                self.settings.lease
            ));
        }
        // A renewal comes every third of the lease; behind it there must be room for a batch.
        let busy = self.settings.publish_timeout + self.settings.margin;
        if busy >= self.settings.lease * 2 / 3 {
            return wrong(format!(
                "publish time-out and margin ({busy:?} together) must be shorter than two thirds \
                 of the lease ({:?})",
                self.settings.lease
            ));
        }
        if self.settings.partitions_max == 0 {
            return wrong("partitions at most: 0 is too small: at least 1".into());
        }
        let limits = &mut self.settings.limits;
        for (name, value) in [
            ("window events", limits.window_events),
            ("window bytes", limits.window_bytes),
            ("batch events", limits.batch_events),
            ("batch bytes", limits.batch_bytes),
        ] {
            if value == 0 {
                return wrong(format!("{name}: 0 is too small: at least 1"));
            }
        }
        limits.batch_events = limits.batch_events.min(limits.window_events);
        // Each destination reads for itself; together they stay below two statements a second.
        let destinations = u32::try_from(self.destinations.len()).unwrap_or(u32::MAX);
        limits.poll_idle = self
            .poll_idle
            .unwrap_or_else(|| limits.poll_idle.saturating_mul(destinations));
        limits.due_every = limits.due_every.saturating_mul(destinations);
        Ok(Relay::new(
            self.store,
            self.clock,
            self.settings,
            self.destinations,
            self.routes,
        ))
    }
}

fn default_name() -> String {
    let name = rustix::system::uname()
        .nodename()
        .to_string_lossy()
        .into_owned();
    if name.is_empty() {
        "relay".into()
    } else {
        name
    }
}
