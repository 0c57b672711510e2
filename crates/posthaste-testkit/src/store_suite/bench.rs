//! The tools of the cases: a fresh outbox and the moves that most of them make.

use std::{fmt::Debug, sync::Arc, time::Duration};

use posthaste_engine::{
    AfterFailure, Budget, Claim, ClaimOutcome, ClaimRequest, Claimed, Cursor, HostIdentity, Page,
    Parking, Progress, Registered, Registration, RelayReport, Renewal, Settlement, SideRead, Start,
    Store, StoreError, StoredEvent,
};
use uuid::Uuid;

use super::{NewEvent, Outbox};

/// A lease that no case outlives.
pub(super) const LONG: Duration = Duration::from_secs(600);
/// A lease whose end a case waits for.
pub(super) const SHORT: Duration = Duration::from_millis(200);
/// A settle time long enough to be seen whole.
pub(super) const SETTLE: Duration = Duration::from_secs(300);
/// More than any case's events.
pub(super) const PLENTY: Budget = Budget {
    events: 10_000,
    bytes: 64 << 20,
};
/// The destination of the cases that need only one.
pub(super) const DESTINATION: &str = "default";
pub(super) const ADDRESS: &str = "null:";
/// No events.
pub(super) const NOTHING: [Uuid; 0] = [];

/// Reads that a store may need to get through what is there.
const READS_MAX: usize = 10_000;

pub(super) struct Bench {
    pub(super) outbox: Box<dyn Outbox>,
    pub(super) store: Arc<dyn Store>,
}

impl Bench {
    pub(super) async fn new(outbox: Box<dyn Outbox>) -> Self {
        let store = outbox.store().await;
        Self { outbox, store }
    }

    /// Commits these events in one transaction; answers their ids.
    pub(super) async fn commit(&self, events: &[NewEvent]) -> Vec<Uuid> {
        let mut writer = self.outbox.writer().await;
        writer.begin().await;
        let mut ids = Vec::new();
        for event in events {
            ids.push(writer.emit(event).await);
        }
        writer.commit().await;
        ids
    }

    /// Commits `count` events of one key, in one transaction.
    pub(super) async fn commit_numbered(&self, key: &str, count: usize) -> Vec<Uuid> {
        let events: Vec<_> = (0..count)
            .map(|number| NewEvent::keyed(key, number.to_string()))
            .collect();
        self.commit(&events).await
    }

    /// Those of a blocked key's events that a page brings: a log passes them over, a mark store
    /// leaves them out.
    pub(super) fn brought_of_blocked<'a>(&self, events: &'a [Uuid]) -> &'a [Uuid] {
        match self.store.info().progress {
            Progress::Cursor => events,
            Progress::Mark => &[],
        }
    }

    pub(super) async fn register(&self, name: &str, lease: Duration) -> Registered {
        self.store
            .register(&registration(name, lease))
            .await
            .unwrap()
    }

    /// Renews the relay's lease, with nothing to report.
    pub(super) async fn renew(
        &self,
        relay: Registered,
        lease: Duration,
    ) -> Result<Renewal, StoreError> {
        self.store.renew(relay, lease, &RelayReport::new()).await
    }

    /// Lets the relay's lease end soon.
    pub(super) async fn let_expire(&self, relay: Registered) {
        self.renew(relay, SHORT).await.unwrap();
    }

    /// A relay that owns [`DESTINATION`] from the oldest event on.
    pub(super) async fn own(&self) -> Owner {
        let relay = self.register("relay-a", LONG).await;
        self.own_as(relay).await
    }

    pub(super) async fn own_as(&self, relay: Registered) -> Owner {
        let claim = owned(self.claim(relay, DESTINATION, Start::Oldest).await);
        self.open(relay, claim).await
    }

    pub(super) async fn claim(
        &self,
        relay: Registered,
        destination: &str,
        start: Start,
    ) -> ClaimOutcome {
        let request = ClaimRequest {
            start,
            ..whole(destination)
        };
        self.store.claim(relay, &request).await.unwrap()
    }

    pub(super) async fn open(&self, relay: Registered, claim: Claim) -> Owner {
        let claimed = self.store.open(&claim).await.unwrap();
        Owner {
            relay,
            claim,
            claimed,
        }
    }

    /// Waits until no live relay holds the destination, as long as the store itself says, and
    /// claims it.
    pub(super) async fn take_over(&self, relay: Registered, destination: &str) -> Claim {
        loop {
            match self.claim(relay, destination, Start::Oldest).await {
                ClaimOutcome::Owned(claim) => return claim,
                ClaimOutcome::Held(shares) => {
                    let others = shares.members.iter();
                    let owners =
                        others.filter(|m| m.owned > 0 && m.registration != relay.registration);
                    let left = owners.map(|owner| owner.lease_left).max();
                    let left = left.unwrap_or_default();
                    assert!(left <= SHORT, "{left:?}");
                    tokio::time::sleep(left.max(Duration::from_millis(1))).await;
                }
                other => panic!("{other:?}"),
            }
        }
    }
}

/// A relay and what it holds.
pub(super) struct Owner {
    pub(super) relay: Registered,
    pub(super) claim: Claim,
    pub(super) claimed: Arc<dyn Claimed>,
}

impl Owner {
    pub(super) async fn page(&self, budget: Budget) -> Page {
        self.claimed.next(budget).await.unwrap()
    }

    /// Reads until everything that is there was read.
    pub(super) async fn pages(&self, budget: Budget) -> Vec<Page> {
        let mut pages = Vec::new();
        for _ in 0..READS_MAX {
            let page = self.page(budget).await;
            let caught_up = page.caught_up;
            pages.push(page);
            if caught_up {
                return pages;
            }
        }
        panic!("not caught up after {READS_MAX} reads");
    }

    /// Everything that is there and was not read yet.
    pub(super) async fn events(&self) -> Vec<StoredEvent> {
        let pages = self.pages(PLENTY).await;
        pages.into_iter().flat_map(|page| page.events).collect()
    }

    /// Reads everything and advances behind it.
    pub(super) async fn deliver_all(&self) -> Vec<StoredEvent> {
        let mut events = Vec::new();
        for page in self.pages(PLENTY).await {
            self.finish(&page).await;
            events.extend(page.events);
        }
        events
    }

    /// Advances behind what was read, all of it finished.
    pub(super) async fn finish_all(&self, read: &Read) {
        let seqs = seqs(&read.events);
        self.claimed.advance(read.end(), &seqs).await.unwrap();
    }

    /// Advances behind the page, all its events finished.
    pub(super) async fn finish(&self, page: &Page) {
        self.claimed
            .advance(&page.end, &seqs(&page.events))
            .await
            .unwrap();
    }

    /// Everything that is there and was not read yet, with the cursor behind each event. How many
    /// pages it takes is the store's business.
    pub(super) async fn whole(&self) -> Read {
        let mut read = Read::default();
        for page in self.pages(PLENTY).await {
            read.push(page);
        }
        read
    }

    /// Reads everything that is there, up to a place where a side read can join.
    pub(super) async fn up_to_joinable(&self) -> (Vec<StoredEvent>, Cursor) {
        let mut events = Vec::new();
        for _ in 0..READS_MAX {
            let page = self.page(PLENTY).await;
            events.extend(page.events);
            if page.caught_up && page.joinable {
                return (events, page.end);
            }
        }
        panic!("no joinable place after {READS_MAX} reads");
    }

    /// The relay's own claim anew, as after a lost answer.
    pub(super) async fn again(&self, bench: &Bench) -> Self {
        bench.own_as(self.relay).await
    }
}

/// The events of one or more pages.
#[derive(Default)]
pub(super) struct Read {
    pub(super) events: Vec<StoredEvent>,
    places: Vec<Cursor>,
    end: Option<Cursor>,
}

impl Read {
    pub(super) fn push(&mut self, page: Page) {
        let places = page.events.iter().map(|event| page.cursor_at(event));
        self.places.extend(places);
        self.events.extend(page.events);
        self.end = Some(page.end);
    }

    /// The cursor that has passed everything up to and including the event at `index`.
    pub(super) fn cursor_at(&self, index: usize) -> Cursor {
        self.places[index].clone()
    }

    /// The cursor that has passed everything.
    pub(super) fn end(&self) -> &Cursor {
        self.end.as_ref().expect("at least one page was read")
    }
}

/// Everything of the key up to `until`, nothing of it delivered yet.
pub(super) async fn side_read_whole(side: &mut dyn SideRead, until: &Cursor) -> Read {
    let mut read = Read::default();
    loop {
        let page = side.next(PLENTY, until).await.unwrap();
        let caught_up = page.caught_up;
        read.push(page);
        if caught_up {
            return read;
        }
    }
}

/// A claim of all of a destination, with the settle time of the cases.
pub(super) fn whole(destination: &str) -> ClaimRequest<'_> {
    ClaimRequest {
        settle: SETTLE,
        ..ClaimRequest::all(destination, ADDRESS)
    }
}

pub(super) fn owned(outcome: ClaimOutcome) -> Claim {
    match outcome {
        ClaimOutcome::Owned(claim) => claim,
        other => panic!("not owned: {other:?}"),
    }
}

pub(super) fn registration(name: &str, lease: Duration) -> Registration {
    Registration {
        name: name.to_owned(),
        version: "1.2.3".to_owned(),
        host: HostIdentity {
            boot_id: format!("boot of {name}"),
            pid_namespace: "pid:[4026531836]".to_owned(),
            pid: 4_242,
            process_started: 77_777_777,
        },
        lease,
    }
}

pub(super) fn seqs(events: &[StoredEvent]) -> Vec<i64> {
    events.iter().map(StoredEvent::seq).collect()
}

pub(super) fn ids<'a>(events: impl IntoIterator<Item = &'a StoredEvent>) -> Vec<Uuid> {
    events.into_iter().map(StoredEvent::id).collect()
}

/// The next state of an event that is due again so long from now; none: its attempts are used up.
pub(super) fn next_of(retry_in: Option<Duration>) -> AfterFailure {
    retry_in.map_or(AfterFailure::Dead, AfterFailure::RetryIn)
}

pub(super) fn refused(retry_in: Option<Duration>) -> Settlement {
    Settlement::Failed {
        kind: "unroutable",
        reason: "nowhere to put it".to_owned(),
        next: next_of(retry_in),
    }
}

/// The event at `index`, to be parked with one attempt made.
pub(super) fn parking(read: &Read, index: usize, retry_in: Option<Duration>) -> Parking {
    Parking {
        at: read.cursor_at(index),
        event: read.events[index].clone(),
        attempts: 1,
        kind: "invalid",
        reason: "refused by the schema".to_owned(),
        next: next_of(retry_in),
    }
}

pub(super) fn assert_fenced<T: Debug>(answer: Result<T, StoreError>) {
    assert!(
        matches!(answer, Err(StoreError::Fenced { .. })),
        "expected Fenced, got {answer:?}"
    );
}
