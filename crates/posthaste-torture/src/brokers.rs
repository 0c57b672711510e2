//! Where relays deliver to: brokers and a file, which can fail.

pub mod kafka;
pub mod rabbitmq;

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering::Relaxed},
};

use posthaste_testkit::{lines, proxy::Proxy};

use crate::{judge::Delivery, relay::Delivered};

/// A broker of the torture's own, with a destination on it, behind a proxy.
pub trait Broker: Send + Sync {
    /// As `--to` takes it; through the proxy.
    fn url(&self) -> String;
    /// What [`Self::url`] goes through.
    fn proxy(&self) -> &Proxy;
    /// The same for one of several relays, through a proxy of its own.
    fn way(&self, relay: usize) -> (String, &Proxy);
    /// In order.
    fn stop(&self);
    /// `kill -9`.
    fn kill9(&self);
    /// After one of both; returns when it serves.
    fn start_again(&self);
    /// SIGSTOP: it stands still, its connections stay open.
    fn pause(&self);
    /// SIGCONT.
    fn resume(&self);
    /// One message by a bare client, through the proxy, to another place than the relay's; whether it
    /// was acknowledged within half a second.
    fn probe(&self) -> bool;
    /// Events that arrived; past the proxy.
    fn arrived(&self) -> u64;
    /// All of them, in order for each key.
    fn deliveries(&self) -> Vec<Delivery>;
}

/// Where a fleet delivers to.
pub trait Target: Send + Sync {
    /// As `--to` of one of the relays takes it.
    fn url(&self, relay: usize) -> String;
    /// What all of that goes through; none: it cannot be cut off.
    fn proxy(&self, relay: usize) -> Option<&Proxy>;
    /// Whether several relays deliver at once.
    fn is_shared_out(&self) -> bool;
    /// The broker, if it is one.
    fn broker(&self) -> Option<&dyn Broker>;
    /// The file, if it is one.
    fn file(&self) -> Option<&Delivered>;
    /// From the next start of a relay on nothing is refused.
    fn accept_all(&self);
    /// Events that arrived.
    fn arrived(&self) -> u64;
    /// All of them, in order for each key.
    fn deliveries(&self) -> Vec<Delivery>;
}

/// Events with a larger payload are refused by a [`Shared`] file, until it is told to accept them.
pub const REFUSED_BYTES_MIN: usize = 2_000;

/// A broker with a way for each relay.
pub struct Brokered<B>(pub Arc<B>);

impl<B: Broker> Target for Brokered<B> {
    fn url(&self, relay: usize) -> String {
        self.0.way(relay).0
    }

    fn proxy(&self, relay: usize) -> Option<&Proxy> {
        Some(self.0.way(relay).1)
    }

    fn is_shared_out(&self) -> bool {
        true
    }

    fn broker(&self) -> Option<&dyn Broker> {
        Some(&*self.0)
    }

    fn file(&self) -> Option<&Delivered> {
        None
    }

    fn accept_all(&self) {}

    fn arrived(&self) -> u64 {
        self.0.arrived()
    }

    fn deliveries(&self) -> Vec<Delivery> {
        self.0.deliveries()
    }
}

/// One file for all relays.
pub struct Shared {
    file: Delivered,
    refuses: AtomicBool,
}

impl Default for Shared {
    fn default() -> Self {
        Self::new()
    }
}

impl Shared {
    /// One that refuses large events.
    #[must_use]
    pub fn new() -> Self {
        Self {
            file: Delivered::new(),
            refuses: AtomicBool::new(true),
        }
    }
}

impl Target for Shared {
    fn url(&self, _relay: usize) -> String {
        let file = self.file.path().display();
        if self.refuses.load(Relaxed) {
            format!("file://{file}?max_event_bytes={REFUSED_BYTES_MIN}")
        } else {
            format!("file://{file}")
        }
    }

    fn proxy(&self, _relay: usize) -> Option<&Proxy> {
        None
    }

    fn is_shared_out(&self) -> bool {
        false
    }

    fn broker(&self) -> Option<&dyn Broker> {
        None
    }

    fn file(&self) -> Option<&Delivered> {
        Some(&self.file)
    }

    fn accept_all(&self) {
        self.refuses.store(false, Relaxed);
    }

    fn arrived(&self) -> u64 {
        self.file.lines()
    }

    fn deliveries(&self) -> Vec<Delivery> {
        let lines = lines::read(self.file.path()).unwrap();
        lines
            .map(|line| Delivery::of_line(&line.unwrap()))
            .collect()
    }
}
