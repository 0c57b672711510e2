//! A relay's life: check, register, run its destinations, leave.

use std::{collections::HashMap, pin::Pin, sync::Arc, time::Duration};

use posthaste_engine::{Registered, Registration, Router, Routes, Store, StoreError};
use tokio::{task::JoinSet, time::Instant};
use tracing::{info, warn};

use crate::{
    BoundedStore, Clock, Counters, Destination, Health, RelayError, host, housekeeping,
    lease::{self, Lease},
    order::Order,
    said_once::SaidOnce,
    settings::Settings,
    shared_moment::SharedMoment,
    task::DestinationTask,
    watch,
};

/// Of the time that a planned stop may take, one part of so many is for leaving; the rest is for
/// what is in flight.
const LEAVE_SHARE: u32 = 5;

/// How a run ended.
#[derive(Debug, Clone, Default)]
pub struct Summary {
    /// Whether every destination was drained (only with
    /// [`RelayBuilder::until_drained`](crate::RelayBuilder::until_drained)).
    pub drained: bool,
    /// Whether nothing was in flight in the end, of what this relay owned by then: everything that
    /// was accepted is behind the stored cursor, and will not be repeated.
    pub clean: bool,
}

/// A relay, ready to run.
pub struct Relay {
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    settings: Arc<Settings>,
    destinations: Vec<Arc<Destination>>,
    routes: Routes,
    lease_end: Arc<SharedMoment>,
}

type BoxFuture<'a> = Pin<Box<dyn Future<Output = ()> + Send + 'a>>;

impl Relay {
    pub(crate) fn new(
        store: Arc<dyn Store>,
        clock: Arc<dyn Clock>,
        settings: Settings,
        destinations: Vec<Destination>,
        routes: Routes,
    ) -> Self {
        let destinations: Vec<_> = destinations.into_iter().map(Arc::new).collect();
        for destination in &destinations {
            destination.counters.progressed(clock.now());
        }
        Self {
            store: Arc::new(BoundedStore::for_lease(store, settings.lease)),
            clock,
            settings: Arc::new(settings),
            destinations,
            routes,
            lease_end: Arc::default(),
        }
    }

    /// The counters of each destination, by name.
    #[must_use]
    pub fn counters(&self) -> HashMap<String, Arc<Counters>> {
        self.destinations
            .iter()
            .map(|d| (d.name.clone(), d.counters()))
            .collect()
    }

    /// Answers questions about this relay, before, while and after it runs.
    #[must_use]
    pub fn health(&self) -> Health {
        let destinations = self.destinations.iter();
        Health {
            clock: Arc::clone(&self.clock),
            destinations: destinations
                .map(|d| (d.name.clone(), d.counters()))
                .collect(),
            lease_end: Arc::clone(&self.lease_end),
        }
    }

    /// Runs until `shutdown` completes, or until drained if that was asked for. A store that is
    /// away is retried, at the start and later; nothing that happens while running ends it.
    ///
    /// # Errors
    /// [`RelayError::Store`] when the store refuses us at the start for a reason that waiting does
    /// not mend (credentials, rights, schema, a read replica); the first claim of a relay's only
    /// destination as well (it delivers to another kind of broker).
    pub async fn run(
        self,
        shutdown: impl Future<Output = ()> + Send,
    ) -> Result<Summary, RelayError> {
        let ended = self.run_until(shutdown).await;
        self.store.close().await;
        ended
    }

    async fn run_until(
        &self,
        shutdown: impl Future<Output = ()> + Send,
    ) -> Result<Summary, RelayError> {
        tokio::pin!(shutdown);
        tokio::select! {
            biased;
            checked = self.check() => checked?,
            () = &mut shutdown => return Ok(Summary { drained: false, clean: true }),
        }
        let mut is_start = true;
        loop {
            let registered = tokio::select! {
                biased;
                registered = self.register() => registered?,
                () = &mut shutdown => return Ok(Summary { drained: false, clean: true }),
            };
            let may_refuse = std::mem::take(&mut is_start) && self.destinations.len() == 1;
            match self.live(registered, may_refuse, &mut shutdown).await? {
                Some(summary) => return Ok(summary),
                None => warn!("this relay was fenced; it registers anew"),
            }
        }
    }

    async fn check(&self) -> Result<(), RelayError> {
        let mut said = SaidOnce::default();
        loop {
            match self.store.check().await {
                Ok(()) => return Ok(()),
                Err(error) if error.is_retryable() => {
                    self.wait_for_the_store(&error, &mut said).await
                }
                Err(error) => return Err(RelayError::Store(error)),
            }
        }
    }

    async fn register(&self) -> Result<(Registered, Lease), RelayError> {
        let registration = Registration {
            name: self.settings.name.clone(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            host: host::this_process().clone(),
            lease: self.settings.lease,
        };
        let mut said = SaidOnce::default();
        loop {
            let by_its_clock = lease::by_its_clock(&*self.clock, self.clock.now());
            match self.store.register(&registration).await {
                Ok(registered) => {
                    let deadline = by_its_clock.after(self.settings.lease);
                    let watched = Arc::clone(&self.lease_end);
                    return Ok((registered, Lease::new(deadline, watched)));
                }
                Err(error) if error.is_retryable() => {
                    self.wait_for_the_store(&error, &mut said).await
                }
                Err(error) => return Err(RelayError::Store(error)),
            }
        }
    }

    async fn wait_for_the_store(&self, error: &StoreError, said: &mut SaidOnce) {
        said.warn(self.clock.now(), || {
            format!("waiting for the store: {error}")
        });
        for destination in &self.destinations {
            destination.counters.let_go(Some(&error.to_string()));
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
    }

    /// One registration's life; none when it was fenced.
    async fn live(
        &self,
        (registered, lease): (Registered, Lease),
        may_refuse: bool,
        shutdown: &mut (impl Future<Output = ()> + Unpin),
    ) -> Result<Option<Summary>, RelayError> {
        let lease_state = watch::Sender::new(lease);
        let order = watch::Sender::new(Order::Run);
        let mut tasks = JoinSet::new();
        for destination in &self.destinations {
            tasks.spawn(
                self.task(destination, registered, &lease_state, &order, may_refuse)
                    .run(),
            );
        }
        // Ends with this life, however that ends.
        let mut aside = JoinSet::new();
        aside.spawn(lease::keep(
            Arc::clone(&self.store),
            Arc::clone(&self.clock),
            registered,
            self.settings.lease,
            self.settings.jitter.clone(),
            lease_state.clone(),
            self.destinations.clone(),
        ));
        aside.spawn(housekeeping::keep(
            self.store.clone(),
            Arc::clone(&self.clock),
            registered,
            self.settings.jitter.clone(),
        ));
        let mut lease_watch = lease_state.subscribe();
        let (mut drained, mut clean, mut fenced, mut stopping) = (0, true, false, false);
        let mut asked = false;
        let mut refused = None;
        let mut unsettled = Duration::ZERO;
        let limit = tokio::time::sleep(Duration::MAX);
        tokio::pin!(limit);
        let mut stop_by = None;
        let mut notice: BoxFuture<'_> = Box::pin(std::future::pending());
        loop {
            tokio::select! {
                biased;
                () = lease_watch.wait_for(|lease| lease.fenced), if !fenced => {
                    // The tasks see it too, abort their lanes and end.
                    fenced = true;
                    if !asked {
                        limit.as_mut().reset(Instant::now() + self.settings.shutdown_timeout);
                    }
                }
                () = &mut *shutdown, if !asked => {
                    asked = true;
                    let end = Instant::now() + self.settings.shutdown_timeout;
                    stop_by = Some(end);
                    limit.as_mut().reset(end - self.settings.shutdown_timeout / LEAVE_SHARE);
                    notice = Box::pin(self.give_notice(registered, lease_state.clone()));
                }
                () = &mut notice, if asked && !stopping => {
                    stopping = true;
                    info!("stopping: finishing what is in flight");
                    order.send_replace(Order::Stop);
                }
                () = &mut limit, if asked || fenced => {
                    let limit = self.settings.shutdown_timeout;
                    warn!(?limit, "stopped in mid-flight; some events may be repeated");
                    clean = false;
                    break;
                }
                Some(Err(error)) = aside.join_next() => {
                    return Err(RelayError::Bug(error.to_string()));
                }
                ended = tasks.join_next() => match ended {
                    None => break,
                    Some(Ok(ended)) => {
                        drained += usize::from(ended.drained);
                        clean &= ended.clean;
                        unsettled = unsettled.max(ended.unsettled);
                        refused = ended.refused;
                    }
                    Some(Err(error)) => return Err(RelayError::Bug(error.to_string())),
                },
            }
        }
        tasks.shutdown().await;
        aside.shutdown().await;
        if fenced && !asked {
            return Ok(None);
        }
        if !clean {
            unsettled = self.settings.settle;
        }
        let stop_by = stop_by.unwrap_or_else(|| Instant::now() + self.settings.shutdown_timeout);
        self.leave(registered, unsettled, stop_by).await;
        if let Some(error) = refused {
            return Err(RelayError::Store(error));
        }
        Ok(Some(Summary {
            drained: drained == self.destinations.len(),
            clean,
        }))
    }

    /// Tells the other relays that this one is about to leave, so that they look out for what
    /// becomes free. Ends when all of them should have seen it; delivery goes on meanwhile, so that
    /// it pauses for a key only while that changes hands.
    async fn give_notice(&self, relay: Registered, lease: watch::Sender<Lease>) {
        let shared = {
            let mut destinations = lease.borrow().destinations.clone().into_values();
            destinations.any(|(_, shares)| shares.members.len() > 1)
        };
        if !shared {
            return;
        }
        let notice = self
            .settings
            .limits
            .poll_idle
            .min(self.settings.shutdown_timeout / 4);
        let told = tokio::time::timeout(notice, self.store.announce_leaving(relay));
        // A relay that was not told sees in the end which partitions are free.
        if let Ok(Ok(())) = told.await {
            tokio::time::sleep(notice).await;
        }
    }

    fn task(
        &self,
        destination: &Arc<Destination>,
        registered: Registered,
        lease_state: &watch::Sender<Lease>,
        order: &watch::Sender<Order>,
        may_refuse: bool,
    ) -> DestinationTask {
        let routes = self
            .routes
            .for_destination(&destination.name, destination.policy)
            .inserted(destination.inserted.clone());
        let (topic, key) = (destination.topic.clone(), destination.key.clone());
        DestinationTask {
            store: Arc::clone(&self.store),
            clock: Arc::clone(&self.clock),
            settings: Arc::clone(&self.settings),
            destination: Arc::clone(destination),
            router: Router { routes, topic, key },
            registered,
            lease_state: lease_state.clone(),
            order: order.subscribe(),
            may_refuse,
        }
    }

    /// Leaves; a store that is away is not waited for, since the lease ends by itself.
    async fn leave(&self, registered: Registered, unsettled: Duration, stop_by: Instant) {
        let leave = self.store.leave(registered, unsettled);
        match tokio::time::timeout_at(stop_by, leave).await {
            Ok(Ok(())) => {}
            Ok(Err(StoreError::Fenced { .. })) => {}
            Ok(Err(error)) => warn!("the relay could not leave; its lease will run out: {error}"),
            Err(_) => warn!("the relay could not leave in time; its lease will run out"),
        }
    }
}
