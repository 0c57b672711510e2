use std::{sync::Arc, time::Duration};

use posthaste_engine::{
    Backoff, DeliveryPolicy, PipelineLimits, Routes, Sink, Start, Store, Template,
};

use crate::{BootClock, Clock, Counters, Relay, RelayError, jitter::Jitter};

/// A named broker target with its own progress.
pub struct Destination {
    pub(crate) name: String,
    pub(crate) sink: Arc<dyn Sink>,
    pub(crate) address: String,
    pub(crate) retarget: bool,
    pub(crate) start: Start,
    pub(crate) policy: DeliveryPolicy,
    pub(crate) topic: Option<Template>,
    pub(crate) key: Option<Template>,
    pub(crate) retry: Backoff,
    pub(crate) counters: Arc<Counters>,
}

impl Destination {
    /// A destination of this name over `sink`. Progress belongs to the name: another sink under the
    /// same name goes on where the last one stood.
    #[must_use]
    pub fn new(name: impl Into<String>, sink: Arc<dyn Sink>) -> Self {
        Self {
            name: name.into(),
            address: format!("{}:", sink.info().kind),
            retarget: false,
            sink,
            start: Start::Oldest,
            policy: DeliveryPolicy::default(),
            topic: None,
            key: None,
            retry: Backoff::default(),
            counters: Arc::default(),
        }
    }

    /// The sink's URL without secrets, as operators will see it. Events go to one address at a
    /// time: a relay with another one stands by while live relays serve the old one, and a relay
    /// with another scheme is refused ([`Destination::retarget`]). Default: the kind of sink alone,
    /// which tells no two brokers of a kind apart.
    #[must_use]
    pub fn address(mut self, address: impl Into<String>) -> Self {
        self.address = address.into();
        self
    }

    /// Goes on at an address of another kind of broker, too, where the name stood.
    #[must_use]
    pub fn retarget(mut self) -> Self {
        self.retarget = true;
        self
    }

    /// Where a destination that is new to the outbox starts. Default: oldest.
    #[must_use]
    pub fn start(mut self, start: Start) -> Self {
        self.start = start;
        self
    }

    /// Attempts with an event, and what becomes of its key then. Default: 5, block.
    #[must_use]
    pub fn policy(mut self, policy: DeliveryPolicy) -> Self {
        self.policy = policy;
        self
    }

    /// The record's topic. Default: the event's own.
    #[must_use]
    pub fn topic(mut self, topic: Template) -> Self {
        self.topic = Some(topic);
        self
    }

    /// The record's key. Default: the event's own.
    #[must_use]
    pub fn key(mut self, key: Template) -> Self {
        self.key = Some(key);
        self
    }

    /// Waits between attempts with a parked event. Default: 1 s doubling to 5 min, +-25 %.
    #[must_use]
    pub fn retry(mut self, retry: Backoff) -> Self {
        self.retry = retry;
        self
    }

    /// Counters of this destination; keep the `Arc` to watch them while the relay runs.
    #[must_use]
    pub fn counters(&self) -> Arc<Counters> {
        Arc::clone(&self.counters)
    }
}

/// Numbers of a running relay.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    pub(crate) name: String,
    pub(crate) lease: Duration,
    pub(crate) publish_timeout: Duration,
    pub(crate) margin: Duration,
    pub(crate) settle: Duration,
    pub(crate) shutdown_timeout: Duration,
    pub(crate) partitions_max: u16,
    pub(crate) until_drained: bool,
    pub(crate) limits: PipelineLimits,
    pub(crate) jitter: Jitter,
}

/// Sets up a [`Relay`].
pub struct RelayBuilder {
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    settings: Settings,
    destinations: Vec<Destination>,
    routes: Routes,
    poll_idle: Option<Duration>,
}

/// The lease: a take-over waits at most 1.1 times this long. Shorter adds take-overs, not safety.
pub(crate) const LEASE: Duration = Duration::from_secs(15);

impl RelayBuilder {
    pub(crate) fn new(store: Arc<dyn Store>) -> Self {
        let limits = PipelineLimits {
            // What a crash may repeat: a second's worth for a fast broker, a few MiB of memory.
            window_events: 10_000,
            window_bytes: 8 << 20,
            // Larger pages gain nothing on PostgreSQL once plans are generic, and double the memory.
            batch_events: 1_000,
            batch_bytes: 1 << 20,
            retry: Backoff::default(),
            // Delivery resumes within five seconds of the destination's return: the longest wait with its
            // jitter, and a connection.
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

    /// The lease; publish time-out, margin and settle follow it (a third, a sixth, a sixth). Default
    /// 15 s, at least 1 s.
    #[must_use]
    pub fn lease(mut self, lease: Duration) -> Self {
        self.settings.lease = lease;
        self.settings.publish_timeout = lease / 3;
        self.settings.margin = lease / 6;
        self.settings.settle = lease / 6;
        self.settings.limits.settle = lease / 6;
        self
    }

    /// How long one batch may take to be accepted. Default: a third of the lease; set it after that.
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

    /// Partitions of each destination that this relay owns at the most, so that a small machine takes a small
    /// share. Default: no bound. What no relay takes is not delivered.
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

    /// Longest wait between reads of an idle outbox. Default 700 ms for each destination, so that an
    /// idle outbox costs less than two statements a second.
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
                "publish time-out and margin ({busy:?} together) must be shorter than two thirds of the \
                 lease ({:?})",
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
