use std::{sync::Arc, time::Duration};

use posthaste_engine::{FenceKind, Registered, Router, Store};

use crate::{
    Clock, Destination, lease::Lease, order::Order, settings::Settings, share::Revocation, watch,
};

/// The task of one destination under one registration.
pub(crate) struct DestinationTask {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) settings: Arc<Settings>,
    pub(crate) destination: Arc<Destination>,
    pub(crate) router: Router,
    pub(crate) registered: Registered,
    pub(crate) lease_state: watch::Sender<Lease>,
    pub(crate) order: watch::Receiver<Order>,
    /// A refusal of the first claim ends the relay: somebody is looking, and nothing else is
    /// delivered.
    pub(crate) may_refuse: bool,
}

impl DestinationTask {
    /// How long bytes of another relay, or of our own aborted lane, may still arrive.
    pub(crate) fn settle(&self) -> Duration {
        match self.destination.sink.info().fence {
            FenceKind::Exact => Duration::ZERO,
            FenceKind::Timing => self.settings.settle,
        }
    }

    pub(crate) fn revocation(&self) -> Revocation {
        Revocation {
            by: self.registered,
            destination: self.destination.name.clone(),
            settle: self.settle(),
        }
    }
}
