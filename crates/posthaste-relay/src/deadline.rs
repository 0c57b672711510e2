//! A deadline for every call to a store: a connection may stay open and never answer again.
//!
//! A pooler, a load balancer or a firewall between us and the database may keep a connection open
//! after what stood behind it is gone, and answer even the keepalives. Only the missing answer
//! tells. So each call ends within a limit, as one that failed: its effect is unknown, its
//! connection is not used again (a store's promise, see [`Store`]), and its claim ends.
//!
//! All limits follow the lease, which is what a call is good for. Reads alone may need longer,
//! since a poll that finds an hours-long transaction finished reads everything since, from a cold
//! disk. Nothing tells such a read from one that will never be answered, so the first is given up
//! at the end of a lease and each one after it is given twice as long, up to what the server itself
//! would allow: a silent connection costs one lease, and a slow read comes to its end.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use posthaste_engine::{
    Admin, AdvanceOutcome, AuditLine, Budget, Claim, ClaimMarkers, ClaimOutcome, ClaimParking,
    ClaimProgress, ClaimReader, ClaimReports, ClaimRequest, Claimed, Cursor, DeadAction,
    DestinationState, Due, DueAt, Housekeeping, Leases, Marker, Ownership, Page, ParkedEvent,
    ParkedFilter, Parking, PutOff, Registered, Registration, RelayReport, Renewal, Retained,
    Retention, SetAside, Settlement, Shares, SideRead, Status, Store, StoreError, StoreInfo,
    rule::{Rule, left_out},
};
use tokio::time::Instant;
use uuid::Uuid;

use crate::settings::LEASE;

/// Operators' questions and housekeeping: a few statements, each of which the server ends after
/// half a minute.
const OPERATION_MAX: Duration = Duration::from_secs(60);
/// The server ends a read after ten minutes.
const READ_MAX: Duration = Duration::from_secs(11 * 60);
/// The limit of a read is doubled at most so often; that is far beyond [`READ_MAX`].
const DOUBLINGS_MAX: u32 = 12;

/// A store whose every call ends: with the store's answer, or as [`StoreError::Unavailable`] once
/// its time is over. [`Relay`](crate::Relay) puts one around the store that it is given; commands
/// that ask a store by themselves need one too.
pub struct BoundedStore {
    inner: Arc<dyn Store>,
    limits: Limits,
    /// The limits of reads, by destination: they outlive a claim.
    reads: Mutex<HashMap<String, Doublings>>,
}

/// How often the limit of each kind of read is doubled. The quick ones, which every claim begins
/// with, tell nothing about a slow one.
type Doublings = Arc<Mutex<HashMap<&'static str, u32>>>;

#[derive(Debug, Clone, Copy)]
struct Limits {
    /// Short calls beside the renewal: when one fails there is time for another try.
    renewal: Duration,
    /// Claims and progress: over before the lease is.
    change: Duration,
    /// The first read.
    read: Duration,
}

impl BoundedStore {
    /// For calls that no lease depends on.
    #[must_use]
    pub fn new(store: Arc<dyn Store>) -> Self {
        Self::for_lease(store, LEASE)
    }

    pub(crate) fn for_lease(store: Arc<dyn Store>, lease: Duration) -> Self {
        Self {
            inner: store,
            limits: Limits {
                renewal: lease / 3,
                change: lease * 2 / 3,
                read: lease,
            },
            reads: Mutex::default(),
        }
    }
}

async fn within<T>(
    limit: Duration,
    operation: &'static str,
    call: impl Future<Output = Result<T, StoreError>>,
) -> Result<T, StoreError> {
    if left_out(Rule::StoreCallHasDeadline) {
        return call.await;
    }
    let answer = tokio::time::timeout(limit, call).await;
    answer.unwrap_or_else(|_| {
        Err(StoreError::Unavailable {
            operation,
            reason: format!("no answer within {limit:?}; the connection is given up"),
            source: None,
        })
    })
}

#[async_trait]
impl Leases for BoundedStore {
    async fn register(&self, registration: &Registration) -> Result<Registered, StoreError> {
        let call = self.inner.register(registration);
        within(self.limits.change, "register", call).await
    }

    async fn renew(
        &self,
        relay: Registered,
        lease: Duration,
        report: &RelayReport,
    ) -> Result<Renewal, StoreError> {
        let call = self.inner.renew(relay, lease, report);
        within(self.limits.renewal, "renew the lease", call).await
    }

    async fn fence(&self, by: Registered, dead: Uuid, why: &str) -> Result<(), StoreError> {
        let call = self.inner.fence(by, dead, why);
        within(self.limits.renewal, "fence", call).await
    }

    async fn announce_leaving(&self, relay: Registered) -> Result<(), StoreError> {
        let call = self.inner.announce_leaving(relay);
        within(self.limits.renewal, "announce leaving", call).await
    }

    async fn leave(&self, relay: Registered, unsettled: Duration) -> Result<(), StoreError> {
        let call = self.inner.leave(relay, unsettled);
        within(self.limits.change, "leave", call).await
    }
}

#[async_trait]
impl Ownership for BoundedStore {
    async fn claim(
        &self,
        relay: Registered,
        request: &ClaimRequest<'_>,
    ) -> Result<ClaimOutcome, StoreError> {
        let call = self.inner.claim(relay, request);
        within(self.limits.change, "claim", call).await
    }

    async fn revoke(
        &self,
        relay: Registered,
        destination: &str,
        settle: Duration,
    ) -> Result<(), StoreError> {
        let call = self.inner.revoke(relay, destination, settle);
        within(self.limits.change, "revoke", call).await
    }

    async fn shares(&self, destination: &str) -> Result<Shares, StoreError> {
        let call = self.inner.shares(destination);
        within(self.limits.renewal, "read the shares", call).await
    }

    async fn withdraw(
        &self,
        relay: Registered,
        destination: &str,
        unsettled: Duration,
    ) -> Result<(), StoreError> {
        let call = self.inner.withdraw(relay, destination, unsettled);
        within(self.limits.change, "withdraw", call).await
    }
}

#[async_trait]
impl Admin for BoundedStore {
    async fn status(&self) -> Result<Status, StoreError> {
        within(OPERATION_MAX, "status", self.inner.status()).await
    }

    async fn hand_overs(&self, limit: usize) -> Result<Vec<AuditLine>, StoreError> {
        let call = self.inner.hand_overs(limit);
        within(OPERATION_MAX, "list hand-overs", call).await
    }

    async fn parked(
        &self,
        filter: &ParkedFilter,
        limit: usize,
    ) -> Result<Vec<ParkedEvent>, StoreError> {
        let call = self.inner.parked(filter, limit);
        within(OPERATION_MAX, "list parked events", call).await
    }

    async fn act(&self, filter: &ParkedFilter, action: DeadAction) -> Result<u64, StoreError> {
        // One statement after another, for as many events as there are.
        let call = self.inner.act(filter, action);
        within(READ_MAX, action.as_str(), call).await
    }

    async fn set_destination(
        &self,
        name: &str,
        state: DestinationState,
    ) -> Result<bool, StoreError> {
        let call = self.inner.set_destination(name, state);
        within(OPERATION_MAX, "set the destination", call).await
    }

    async fn set_place(&self, name: &str, place: &str, paused: bool) -> Result<bool, StoreError> {
        let call = self.inner.set_place(name, place, paused);
        within(OPERATION_MAX, "pause a place", call).await
    }
}

#[async_trait]
impl Retention for BoundedStore {
    async fn housekeep(&self, by: Option<Registered>) -> Result<Housekeeping, StoreError> {
        within(OPERATION_MAX, "keep house", self.inner.housekeep(by)).await
    }

    async fn retained(&self) -> Result<Retained, StoreError> {
        let call = self.inner.retained();
        within(OPERATION_MAX, "look at what is retained", call).await
    }
}

#[async_trait]
impl Store for BoundedStore {
    fn info(&self) -> StoreInfo {
        self.inner.info()
    }

    async fn check(&self) -> Result<(), StoreError> {
        within(self.limits.change, "check", self.inner.check()).await
    }

    async fn open(&self, claim: &Claim) -> Result<Arc<dyn Claimed>, StoreError> {
        let call = self.inner.open(claim);
        let inner = within(self.limits.change, "open", call).await?;
        let doublings = {
            let mut reads = self.reads.lock().unwrap_or_else(PoisonError::into_inner);
            Arc::clone(reads.entry(claim.destination.clone()).or_default())
        };
        let limit = ReadLimit {
            first: self.limits.read,
            doublings,
        };
        Ok(Arc::new(Bounded {
            inner,
            change: self.limits.change,
            read: limit,
        }))
    }

    fn disconnect(&self) {
        self.inner.disconnect();
    }

    async fn close(&self) {
        let closed = async {
            self.inner.close().await;
            Ok(())
        };
        if let Err(error) = within(self.limits.change, "close the store", closed).await {
            tracing::warn!("{error}");
        }
    }
}

/// How long a read of one destination may take.
#[derive(Debug, Clone)]
struct ReadLimit {
    first: Duration,
    doublings: Doublings,
}

impl ReadLimit {
    fn doublings(&self) -> MutexGuard<'_, HashMap<&'static str, u32>> {
        self.doublings
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self, operation: &'static str) -> Duration {
        let doublings = self.doublings().get(operation).copied().unwrap_or(0);
        let doubled = self.first.saturating_mul(1 << doublings);
        doubled.min(READ_MAX.max(self.first))
    }

    async fn bound<T>(
        &self,
        operation: &'static str,
        call: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        let (limit, began) = (self.now(operation), Instant::now());
        let answer = within(limit, operation, call).await;
        let took = began.elapsed();
        let mut all = self.doublings();
        let doublings = all.entry(operation).or_default();
        if took >= limit {
            *doublings = (*doublings + 1).min(DOUBLINGS_MAX);
        } else if answer.is_ok() && took < limit / 4 {
            // A step at a time: reads that are slow once are slow again soon.
            *doublings = doublings.saturating_sub(1);
        }
        answer
    }
}

/// The calls of a claim or of a side read, each within its time.
struct Bounded<T> {
    inner: T,
    change: Duration,
    read: ReadLimit,
}

#[async_trait]
impl ClaimReader for Bounded<Arc<dyn Claimed>> {
    async fn next(&self, budget: Budget) -> Result<Page, StoreError> {
        self.read.bound("read", self.inner.next(budget)).await
    }

    /// Without a deadline: none may come, and nothing waits for it.
    async fn hinted(&self) {
        self.inner.hinted().await;
    }
}

#[async_trait]
impl ClaimProgress for Bounded<Arc<dyn Claimed>> {
    async fn advance(
        &self,
        up_to: &Cursor,
        finished: &[i64],
    ) -> Result<AdvanceOutcome, StoreError> {
        let call = self.inner.advance(up_to, finished);
        within(self.change, "advance", call).await
    }
}

#[async_trait]
impl ClaimParking for Bounded<Arc<dyn Claimed>> {
    async fn set_aside(&self) -> Result<SetAside, StoreError> {
        let call = self.inner.set_aside();
        self.read.bound("read what is set aside", call).await
    }

    async fn park(&self, events: &[Parking]) -> Result<(), StoreError> {
        within(self.change, "park", self.inner.park(events)).await
    }

    async fn due(&self, limit: usize) -> Result<Due, StoreError> {
        let call = self.inner.due(limit);
        self.read.bound("look for due events", call).await
    }

    async fn put_off(&self, after: Option<DueAt>, limit: usize) -> Result<Vec<PutOff>, StoreError> {
        let call = self.inner.put_off(after, limit);
        self.read.bound("look for what was put off", call).await
    }

    async fn settle(&self, id: i64, settlement: &Settlement) -> Result<(), StoreError> {
        let call = self.inner.settle(id, settlement);
        within(self.change, "settle", call).await
    }
}

#[async_trait]
impl ClaimMarkers for Bounded<Arc<dyn Claimed>> {
    async fn markers(&self, after: Option<&str>, limit: usize) -> Result<Vec<Marker>, StoreError> {
        let call = self.inner.markers(after, limit);
        self.read.bound("read block markers", call).await
    }

    async fn marked(&self, keys: &[String]) -> Result<Vec<String>, StoreError> {
        let call = self.inner.marked(keys);
        self.read.bound("look for block markers", call).await
    }

    async fn side_read(&self, keys: &[String]) -> Result<Box<dyn SideRead>, StoreError> {
        let call = self.inner.side_read(keys);
        let inner = within(self.change, "begin a side read", call).await?;
        Ok(Box::new(Bounded {
            inner,
            change: self.change,
            read: self.read.clone(),
        }))
    }

    async fn join(&self, keys: &[String], at: &Cursor) -> Result<(), StoreError> {
        within(self.change, "join", self.inner.join(keys, at)).await
    }
}

#[async_trait]
impl ClaimReports for Bounded<Arc<dyn Claimed>> {
    async fn report(&self, breaker: &str, last_error: Option<&str>) -> Result<(), StoreError> {
        let call = self.inner.report(breaker, last_error);
        within(self.change, "report", call).await
    }

    async fn reached(&self, cluster: &str) -> Result<Option<String>, StoreError> {
        let call = self.inner.reached(cluster);
        within(self.change, "store the cluster", call).await
    }

    async fn fences_taken(&self, former: &[Uuid]) -> Result<(), StoreError> {
        let call = self.inner.fences_taken(former);
        within(self.change, "note taken fences", call).await
    }
}

#[async_trait]
impl SideRead for Bounded<Box<dyn SideRead>> {
    fn leave(&mut self, keys: &[String]) {
        self.inner.leave(keys);
    }

    async fn next(&mut self, budget: Budget, until: &Cursor) -> Result<Page, StoreError> {
        let call = self.inner.next(budget, until);
        self.read.bound("side read", call).await
    }

    async fn advance(&mut self, at: &Cursor, finished: &[i64]) -> Result<(), StoreError> {
        let call = self.inner.advance(at, finished);
        within(self.change, "advance a side read", call).await
    }
}

#[cfg(test)]
mod tests {
    use posthaste_engine::{ClaimOutcome, HostIdentity};
    use posthaste_testkit::faulty::{Call, Fault, Faulty, Script};

    use super::*;
    use crate::memory::{MemoryMode, MemoryStore};

    const LEASE: Duration = Duration::from_secs(15);

    async fn gives_up<T>(call: impl Future<Output = Result<T, StoreError>>) -> Duration {
        let began = Instant::now();
        match call.await {
            Err(StoreError::Unavailable { .. }) => began.elapsed(),
            Err(error) => panic!("{error}"),
            Ok(_) => panic!("it was answered"),
        }
    }

    /// A store of which these calls are never answered, and a claim of it.
    async fn silent(calls: &[Call]) -> (Script, BoundedStore, Registered, Arc<dyn Claimed>) {
        let script = Script::default();
        let memory = Arc::new(MemoryStore::new(MemoryMode::Log));
        let store = Arc::new(Faulty::new(memory, script.clone()));
        let store = BoundedStore::for_lease(store, LEASE);
        let registration = Registration {
            name: "relay".to_owned(),
            version: String::new(),
            host: HostIdentity::default(),
            lease: LEASE,
        };
        let relay = store.register(&registration).await.unwrap();
        let request = ClaimRequest::all("default", "");
        let ClaimOutcome::Owned(claim) = store.claim(relay, &request).await.unwrap() else {
            panic!("it is held");
        };
        let claimed = store.open(&claim).await.unwrap();
        for call in calls {
            script.always(*call, Fault::Silent);
        }
        (script, store, relay, claimed)
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_that_is_never_answered_ends_within_the_lease() {
        let calls = [
            Call::Renew,
            Call::Claim,
            Call::Settle,
            Call::Report,
            Call::Leave,
        ];
        let (_, store, relay, claimed) = silent(&calls).await;
        let request = ClaimRequest::all("default", "");
        let renewal = gives_up(store.renew(relay, LEASE, &RelayReport::new())).await;
        assert!(renewal * 2 < LEASE, "{renewal:?} leaves no other try");
        for took in [
            gives_up(store.claim(relay, &request)).await,
            gives_up(claimed.settle(1, &Settlement::Delivered)).await,
            gives_up(claimed.report("closed", None)).await,
            gives_up(store.leave(relay, Duration::ZERO)).await,
        ] {
            assert!(took < LEASE, "{took:?}");
        }
    }

    /// A cold disk may need longer than a lease, and the renewal tells nothing about it.
    #[tokio::test(start_paused = true)]
    async fn a_slow_read_comes_to_its_end_and_a_silent_one_costs_a_lease() {
        let (script, _, _, claimed) = silent(&[Call::Next]).await;
        let budget = Budget {
            events: 10,
            bytes: 1_000,
        };
        let mut waits = Vec::new();
        for _ in 0..8 {
            waits.push(gives_up(claimed.next(budget)).await.as_secs());
            // As each claim does.
            claimed.set_aside().await.unwrap();
            claimed.markers(None, 10).await.unwrap();
            claimed.due(10).await.unwrap();
        }
        assert_eq!(waits, [15, 30, 60, 120, 240, 480, 660, 660]);
        script.always(Call::Next, Fault::Slow(Duration::from_secs(599)));
        claimed.next(budget).await.unwrap();
        script.heal();
        for _ in 0..10 {
            claimed.next(budget).await.unwrap();
        }
        script.always(Call::Next, Fault::Silent);
        assert_eq!(gives_up(claimed.next(budget)).await, LEASE);
    }
}
