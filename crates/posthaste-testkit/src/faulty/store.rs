//! Faults around a store.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use posthaste_engine::{
    Admin, AdvanceOutcome, AuditLine, Budget, Claim, ClaimMarkers, ClaimOutcome, ClaimParking,
    ClaimProgress, ClaimReader, ClaimReports, ClaimRequest, Claimed, Cursor, DeadAction,
    DestinationState, Due, DueAt, Housekeeping, Leases, Marker, Ownership, Page, ParkedEvent,
    ParkedFilter, Parking, PutOff, Registered, Registration, RelayReport, Renewal, Retained,
    Retention, SetAside, Settlement, Shares, SideRead, Status, Store, StoreError, StoreInfo,
};
use uuid::Uuid;

use super::{
    Call, Faulty,
    watch::{Answered, ClaimWatch, SideWatch, StoreWatch},
};

fn unavailable(call: Call) -> StoreError {
    StoreError::Unavailable {
        operation: call.name(),
        reason: "a fault of the script".to_owned(),
        source: None,
    }
}

/// Tells the answer to who watches.
async fn watched<T>(
    answered: Answered<'_, T>,
    work: impl Future<Output = Result<T, StoreError>> + Send,
) -> Result<T, StoreError> {
    let answer = work.await;
    answered(&answer);
    answer
}

#[async_trait]
impl<S: Store + ?Sized, W: StoreWatch> Leases for Faulty<Arc<S>, W> {
    async fn register(&self, registration: &Registration) -> Result<Registered, StoreError> {
        let work = watched(self.watch.register(), self.inner.register(registration));
        self.script.run(Call::Register, unavailable, work).await
    }

    async fn renew(
        &self,
        relay: Registered,
        lease: Duration,
        report: &RelayReport,
    ) -> Result<Renewal, StoreError> {
        let work = self.inner.renew(relay, lease, report);
        self.script.run(Call::Renew, unavailable, work).await
    }

    async fn fence(&self, by: Registered, dead: Uuid, why: &str) -> Result<(), StoreError> {
        let work = self.inner.fence(by, dead, why);
        self.script.run(Call::Fence, unavailable, work).await
    }

    async fn announce_leaving(&self, relay: Registered) -> Result<(), StoreError> {
        let work = self.inner.announce_leaving(relay);
        self.script
            .run(Call::AnnounceLeaving, unavailable, work)
            .await
    }

    async fn leave(&self, relay: Registered, unsettled: Duration) -> Result<(), StoreError> {
        let work = self.inner.leave(relay, unsettled);
        self.script.run(Call::Leave, unavailable, work).await
    }
}

#[async_trait]
impl<S: Store + ?Sized, W: StoreWatch> Ownership for Faulty<Arc<S>, W> {
    async fn claim(
        &self,
        relay: Registered,
        request: &ClaimRequest<'_>,
    ) -> Result<ClaimOutcome, StoreError> {
        let work = async {
            let answered = self.watch.claim(relay);
            watched(answered, self.inner.claim(relay, request)).await
        };
        self.script.run(Call::Claim, unavailable, work).await
    }

    async fn revoke(
        &self,
        relay: Registered,
        destination: &str,
        settle: Duration,
    ) -> Result<(), StoreError> {
        let work = self.inner.revoke(relay, destination, settle);
        self.script.run(Call::Revoke, unavailable, work).await
    }

    async fn shares(&self, destination: &str) -> Result<Shares, StoreError> {
        let work = self.inner.shares(destination);
        self.script.run(Call::Shares, unavailable, work).await
    }

    async fn withdraw(
        &self,
        relay: Registered,
        destination: &str,
        unsettled: Duration,
    ) -> Result<(), StoreError> {
        let work = self.inner.withdraw(relay, destination, unsettled);
        self.script.run(Call::Withdraw, unavailable, work).await
    }
}

/// Operators' calls meet no faults.
#[async_trait]
impl<S: Store + ?Sized, W: StoreWatch> Admin for Faulty<Arc<S>, W> {
    async fn status(&self) -> Result<Status, StoreError> {
        self.inner.status().await
    }

    async fn hand_overs(&self, limit: usize) -> Result<Vec<AuditLine>, StoreError> {
        self.inner.hand_overs(limit).await
    }

    async fn parked(
        &self,
        filter: &ParkedFilter,
        limit: usize,
    ) -> Result<Vec<ParkedEvent>, StoreError> {
        self.inner.parked(filter, limit).await
    }

    async fn act(&self, filter: &ParkedFilter, action: DeadAction) -> Result<u64, StoreError> {
        self.inner.act(filter, action).await
    }

    async fn set_destination(
        &self,
        name: &str,
        state: DestinationState,
    ) -> Result<bool, StoreError> {
        self.inner.set_destination(name, state).await
    }

    async fn set_place(&self, name: &str, place: &str, paused: bool) -> Result<bool, StoreError> {
        self.inner.set_place(name, place, paused).await
    }
}

#[async_trait]
impl<S: Store + ?Sized, W: StoreWatch> Retention for Faulty<Arc<S>, W> {
    async fn housekeep(&self, by: Option<Registered>) -> Result<Housekeeping, StoreError> {
        let work = watched(self.watch.housekeep(), self.inner.housekeep(by));
        self.script.run(Call::Housekeep, unavailable, work).await
    }

    async fn retained(&self) -> Result<Retained, StoreError> {
        self.inner.retained().await
    }
}

#[async_trait]
impl<S: Store + ?Sized, W: StoreWatch> Store for Faulty<Arc<S>, W> {
    fn info(&self) -> StoreInfo {
        self.inner.info()
    }

    async fn check(&self) -> Result<(), StoreError> {
        let work = self.inner.check();
        self.script.run(Call::CheckStore, unavailable, work).await
    }

    async fn open(&self, claim: &Claim) -> Result<Arc<dyn Claimed>, StoreError> {
        let work = async {
            let watch = self.watch.open(claim);
            let claimed = self.inner.open(claim).await;
            claimed.map(|claimed| (claimed, watch))
        };
        let (claimed, watch) = self.script.run(Call::Open, unavailable, work).await?;
        Ok(Arc::new(Faulty::watched(
            claimed,
            self.script.clone(),
            watch,
        )))
    }

    fn disconnect(&self) {
        self.inner.disconnect();
    }
}

#[async_trait]
impl<W: ClaimWatch> ClaimReader for Faulty<Arc<dyn Claimed>, W> {
    async fn next(&self, budget: Budget) -> Result<Page, StoreError> {
        let work = watched(self.watch.next(), self.inner.next(budget));
        self.script.run(Call::Next, unavailable, work).await
    }

    async fn hinted(&self) {
        self.inner.hinted().await;
    }
}

#[async_trait]
impl<W: ClaimWatch> ClaimProgress for Faulty<Arc<dyn Claimed>, W> {
    async fn advance(
        &self,
        up_to: &Cursor,
        finished: &[i64],
    ) -> Result<AdvanceOutcome, StoreError> {
        let work = async {
            let answered = self.watch.advance(up_to, finished);
            watched(answered, self.inner.advance(up_to, finished)).await
        };
        self.script.run(Call::Advance, unavailable, work).await
    }
}

#[async_trait]
impl<W: ClaimWatch> ClaimParking for Faulty<Arc<dyn Claimed>, W> {
    async fn set_aside(&self) -> Result<SetAside, StoreError> {
        let work = self.inner.set_aside();
        self.script.run(Call::SetAside, unavailable, work).await
    }

    async fn park(&self, events: &[Parking]) -> Result<(), StoreError> {
        let work = async {
            let answered = self.watch.park(events);
            watched(answered, self.inner.park(events)).await
        };
        self.script.run(Call::Park, unavailable, work).await
    }

    async fn due(&self, limit: usize) -> Result<Due, StoreError> {
        let work = watched(self.watch.due(), self.inner.due(limit));
        self.script.run(Call::Due, unavailable, work).await
    }

    async fn put_off(&self, after: Option<DueAt>, limit: usize) -> Result<Vec<PutOff>, StoreError> {
        let work = watched(self.watch.put_off(), self.inner.put_off(after, limit));
        self.script.run(Call::PutOff, unavailable, work).await
    }

    async fn settle(&self, id: i64, settlement: &Settlement) -> Result<(), StoreError> {
        let work = async {
            let answered = self.watch.settle(id, settlement);
            watched(answered, self.inner.settle(id, settlement)).await
        };
        self.script.run(Call::Settle, unavailable, work).await
    }
}

#[async_trait]
impl<W: ClaimWatch> ClaimMarkers for Faulty<Arc<dyn Claimed>, W> {
    async fn markers(&self, after: Option<&str>, limit: usize) -> Result<Vec<Marker>, StoreError> {
        let work = self.inner.markers(after, limit);
        self.script.run(Call::Markers, unavailable, work).await
    }

    async fn marked(&self, keys: &[String]) -> Result<Vec<String>, StoreError> {
        let work = self.inner.marked(keys);
        self.script.run(Call::Marked, unavailable, work).await
    }

    async fn side_read(&self, keys: &[String]) -> Result<Box<dyn SideRead>, StoreError> {
        let work = self.inner.side_read(keys);
        let side = self.script.run(Call::SideRead, unavailable, work).await?;
        let watch = self.watch.side_read();
        Ok(Box::new(Faulty::watched(side, self.script.clone(), watch)))
    }

    async fn join(&self, keys: &[String], at: &Cursor) -> Result<(), StoreError> {
        let work = async {
            let answered = self.watch.join();
            watched(answered, self.inner.join(keys, at)).await
        };
        self.script.run(Call::Join, unavailable, work).await
    }
}

#[async_trait]
impl<W: ClaimWatch> ClaimReports for Faulty<Arc<dyn Claimed>, W> {
    async fn report(&self, breaker: &str, last_error: Option<&str>) -> Result<(), StoreError> {
        let work = self.inner.report(breaker, last_error);
        self.script.run(Call::Report, unavailable, work).await
    }

    async fn reached(&self, cluster: &str) -> Result<Option<String>, StoreError> {
        let work = self.inner.reached(cluster);
        self.script.run(Call::Reached, unavailable, work).await
    }

    async fn fences_taken(&self, former: &[Uuid]) -> Result<(), StoreError> {
        let work = self.inner.fences_taken(former);
        self.script.run(Call::FencesTaken, unavailable, work).await
    }
}

#[async_trait]
impl<W: SideWatch> SideRead for Faulty<Box<dyn SideRead>, W> {
    fn leave(&mut self, keys: &[String]) {
        self.inner.leave(keys);
    }

    async fn next(&mut self, budget: Budget, until: &Cursor) -> Result<Page, StoreError> {
        let work = async {
            let page = self.inner.next(budget, until).await;
            if let Ok(page) = &page {
                self.watch.page(page);
            }
            page
        };
        self.script.run(Call::SideNext, unavailable, work).await
    }

    async fn advance(&mut self, at: &Cursor, finished: &[i64]) -> Result<(), StoreError> {
        let work = async {
            let answered = self.watch.advance(finished);
            watched(answered, self.inner.advance(at, finished)).await
        };
        self.script.run(Call::SideAdvance, unavailable, work).await
    }
}
