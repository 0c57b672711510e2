use std::{ops::Range, sync::Arc};

use posthaste_engine::{Backoff, DeliveryPolicy, OrderBy, Sink, Start, Template};

use crate::Counters;

/// A named broker target with its own progress.
pub struct Destination {
    pub(crate) name: String,
    pub(crate) sink: Arc<dyn Sink>,
    pub(crate) address: String,
    pub(crate) order_by: OrderBy,
    pub(crate) retarget: bool,
    pub(crate) start: Start,
    pub(crate) inserted: Range<i64>,
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
            order_by: OrderBy::Key,
            retarget: false,
            sink,
            start: Start::Oldest,
            inserted: i64::MIN..i64::MAX,
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

    /// Of which events the order is kept. A destination keeps its order for good: a relay that is
    /// told another one is refused. Default: those of a key.
    #[must_use]
    pub fn order_by(mut self, order_by: OrderBy) -> Self {
        self.order_by = order_by;
        self
    }

    /// The address with the order before it, as the store keeps it.
    pub(crate) fn target(&self) -> String {
        self.order_by.target(&self.address)
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

    /// Only events that were inserted in this time, by the database's clock in microseconds since
    /// 1970-01-01 UTC, are delivered; all others are passed over. Default: all events.
    #[must_use]
    pub fn inserted(mut self, time: Range<i64>) -> Self {
        self.inserted = time;
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
