//! The lease of one registration: renewed every third of it, with a local deadline that was taken
//! before the renewal was sent.

use std::{collections::HashMap, sync::Arc, time::Duration};

use posthaste_engine::{
    DestinationReport, Leases, Moment, Registered, RelayReport, Shares, Store, StoreError, Wanted,
    rule::{Rule, left_out},
};

use crate::{
    Clock, Destination, jitter::Jitter, said_once::SaidOnce, shared_moment::SharedMoment, watch,
};

/// A relay's right to live, as its tasks know it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Lease {
    /// Nothing may be in flight after this.
    pub(crate) deadline: Moment,
    /// This registration was fenced, and never comes back.
    pub(crate) fenced: bool,
    /// The operators' wishes for each destination, and how it is shared out.
    pub(crate) destinations: HashMap<String, (Wanted, Shares)>,
    /// When that was asked for.
    pub(crate) renewed: Moment,
    /// The last report to operators.
    pub(crate) told: RelayReport,
    /// The deadline, for whoever watches.
    watched: Arc<SharedMoment>,
}

impl Lease {
    /// A lease that was just granted.
    pub(crate) fn new(deadline: Moment, watched: Arc<SharedMoment>) -> Self {
        watched.set(deadline);
        Self {
            deadline,
            watched,
            ..Self::default()
        }
    }

    fn extend(&mut self, deadline: Moment) {
        self.deadline = self.deadline.max(deadline);
        self.watched.set(self.deadline);
    }

    fn fence(&mut self) {
        self.fenced = true;
        self.watched.set(Moment::default());
    }
}

/// Renews until the registration is fenced.
pub(crate) async fn keep(
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    relay: Registered,
    lease: Duration,
    jitter: Jitter,
    lease_state: watch::Sender<Lease>,
    destinations: Vec<Arc<Destination>>,
) {
    let mut speed = Speed::new(destinations, clock.now());
    let mut said = SaidOnce::default();
    let mut said_over = SaidOnce::default();
    let mut wait = jitter.spread(lease / 3);
    let mut ran_out = false;
    loop {
        tokio::time::sleep(wait).await;
        let report = speed.report(clock.now());
        wait = match renew(&*store, &*clock, relay, (lease, report), &lease_state).await {
            Ok(()) => {
                ran_out = false;
                jitter.spread(lease / 3)
            }
            Err(StoreError::Fenced { .. }) => return,
            Err(error) => {
                said.warn(clock.now(), || {
                    format!("the lease was not renewed: {error}")
                });
                let is_over = lease_state.borrow().deadline <= by_its_clock(&*clock, clock.now());
                // Once: a server that comes back is met by new connections.
                if is_over && !std::mem::replace(&mut ran_out, true) {
                    said_over.warn(clock.now(), || {
                        "the lease ran out; all connections to the store are made anew".to_owned()
                    });
                    store.disconnect();
                }
                lease / 15
            }
        };
    }
}

/// The report to operators: how fast destinations accept events, between one look and the next, and
/// which places are held back.
struct Speed {
    /// Each with what it had accepted when it was looked at.
    destinations: Vec<(Arc<Destination>, u64)>,
    looked: Moment,
}

impl Speed {
    fn new(destinations: Vec<Arc<Destination>>, now: Moment) -> Self {
        let destinations = destinations.into_iter().map(|destination| {
            let accepted = destination.counters.accepted();
            (destination, accepted)
        });
        Self {
            destinations: destinations.collect(),
            looked: now,
        }
    }

    fn report(&mut self, now: Moment) -> RelayReport {
        // Never nothing: what is divided by it would be no number.
        let seconds = self.looked.until(now).as_secs_f64().max(1e-3);
        self.looked = now;
        let report = |(destination, before): &mut (Arc<Destination>, u64)| {
            let accepted = destination.counters.accepted();
            let since = accepted - std::mem::replace(before, accepted);
            let since = u32::try_from(since).map_or(f64::from(u32::MAX), f64::from);
            let (places_held, places) = destination.counters.held_places();
            let report = DestinationReport {
                accepted_per_second: since / seconds,
                places_held,
                places,
            };
            (destination.name.clone(), report)
        };
        self.destinations.iter_mut().map(report).collect()
    }
}

/// By which clock the deadline is measured: that of all moments, which nobody sets.
pub(crate) fn by_its_clock(clock: &dyn Clock, now: Moment) -> Moment {
    if left_out(Rule::DeadlineByBootClock) {
        let micros = u64::try_from(clock.wall_micros());
        return Moment(Duration::from_micros(micros.unwrap_or_default()));
    }
    now
}

/// Renews once. A lane that was just opened asks for it too: a fence that compares no number (a
/// file's lock) is taken first, then the lease is confirmed in the database, then sending begins.
pub(crate) async fn renew(
    store: &dyn Leases,
    clock: &dyn Clock,
    relay: Registered,
    (lease, report): (Duration, RelayReport),
    lease_state: &watch::Sender<Lease>,
) -> Result<(), StoreError> {
    let sent = clock.now();
    let by_its_clock = by_its_clock(clock, sent);
    match store.renew(relay, lease, &report).await {
        Ok(renewal) => {
            lease_state.send_modify(|state| {
                state.extend(by_its_clock.after(lease));
                state.renewed = sent;
                state.told = report;
                let destinations = renewal.destinations.into_iter();
                state.destinations = destinations
                    .map(|(name, wanted, shares)| (name, (wanted, shares)))
                    .collect();
            });
            Ok(())
        }
        Err(error) => {
            if matches!(error, StoreError::Fenced { .. }) {
                lease_state.send_modify(Lease::fence);
            }
            Err(error)
        }
    }
}

#[cfg(test)]
mod tests {
    use posthaste_engine::{HostIdentity, Registration};

    use super::*;
    use crate::{
        BootClock,
        memory::{MemoryMode, MemoryStore},
    };

    /// The keeper may be the first of a relay's tasks that runs: nobody looks at the lease yet.
    #[tokio::test(start_paused = true)]
    async fn a_lease_is_renewed_although_nobody_looks() {
        let lease = Duration::from_secs(3);
        let store = MemoryStore::new(MemoryMode::Log);
        let registration = Registration {
            name: "relay".to_owned(),
            version: String::new(),
            host: HostIdentity::default(),
            lease,
        };
        let registered = store.register(&registration).await.unwrap();
        let state = watch::Sender::new(Lease::default());
        let keeper = tokio::spawn(keep(
            Arc::new(store.clone()),
            Arc::new(BootClock),
            registered,
            lease,
            Jitter::default(),
            state,
            Vec::new(),
        ));
        tokio::time::sleep(lease * 10).await;
        assert!(store.registration_of("relay").is_some(), "it is live");
        keeper.abort();
    }
}
