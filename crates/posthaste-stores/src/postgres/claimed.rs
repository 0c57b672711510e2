//! The owner's view of one destination: it converges, sweeps and joins by the rules of
//! `read_plan.rs`, whatever answers its statements.

use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use posthaste_engine::{
    AdvanceOutcome, Budget, ClaimMarkers, ClaimProgress, ClaimReader, Cursor, Marker, Page,
    Partitions, SideRead, StoreError, StoredEvent,
    rule::{Rule, left_out},
};
use tokio::task::JoinHandle;
use uuid::Uuid;

use super::{
    Grant,
    claim_connection::{MarkerStatements, PageStatements, ProgressStatements},
    converge::Group,
    read::{Read, Scope},
    read_plan::ReadPlan,
    side_read::PostgresSideRead,
    slots::Slots,
    sweep::{Answer, Place, Request, Step, Unsound},
};

const READ: &str = "read";

/// Segments without a row to deliver that one call walks through before it lets its caller look up.
const EMPTY_PAGES_MAX: u32 = 16;

/// A claim as one statement finds it: its rows, ascending, and the values that they have to fit.
#[derive(Debug)]
pub(super) struct OpenedRows {
    pub(super) groups: Vec<Group>,
    /// None of the destination's partitions.
    pub(super) none: Partitions,
    pub(super) token: Option<Uuid>,
    pub(super) sequence: i64,
    pub(super) leaf_bits: u8,
}

impl OpenedRows {
    /// The slots of all that the claim owns; none: everything.
    pub(super) fn slots(&self) -> Option<Slots> {
        let mut owned = self.none.clone();
        for partition in self.groups.iter().flat_map(|group| group.partitions.iter()) {
            owned.insert(partition);
        }
        Slots::of(&owned)
    }

    /// Whether this is what was claimed.
    fn check(&self, grant: &Grant) -> Result<(), StoreError> {
        const OPERATION: &str = "open";
        if self.token != Some(grant.token) && !left_out(Rule::IncarnationIsChecked) {
            return Err(StoreError::IncarnationChanged {
                operation: OPERATION,
            });
        }
        let groups = self.groups.iter();
        let floors = groups.map(|group| group.row.position.floors.floor);
        match floors.max().filter(|&floor| self.sequence < floor) {
            Some(floor) => Err(set_back(OPERATION, self.sequence, floor)),
            None => Ok(()),
        }
    }
}

/// The refusal of a sequence below what was seen of it.
pub(super) fn set_back(operation: &'static str, sequence: i64, floor: i64) -> StoreError {
    StoreError::Misconfigured {
        operation,
        reason: format!(
            "posthaste.outbox_seq_seq stands at {sequence}, below {floor} that was seen of it: it \
             was set back, which hides new events. Run `posthaste init --store URL`, which sets it \
             forward and has the hidden events delivered; nothing is lost"
        ),
    }
}

/// The owner's view of one destination.
#[derive(Debug)]
pub(super) struct PostgresClaimed<C> {
    pub(super) connection: Arc<C>,
    plan: Mutex<ReadPlan>,
    ahead: Mutex<Option<Ahead>>,
}

/// The next page of a difference, read while its caller handles the one before.
#[derive(Debug)]
struct Ahead {
    request: (Request, Option<Arc<Slots>>),
    page: ReadAhead,
}

/// A read that goes on beside its caller. Dropping it ends it: it may be waiting for an answer that
/// never comes.
#[derive(Debug)]
struct ReadAhead(JoinHandle<Result<Read, StoreError>>);

impl ReadAhead {
    async fn answer(mut self) -> Result<Read, StoreError> {
        let answer = (&mut self.0).await;
        answer.map_err(|error| StoreError::Bug {
            operation: READ,
            reason: error.to_string(),
        })?
    }
}

impl Drop for ReadAhead {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// The page that a read brought, up to this place.
pub(super) fn page_of(place: Arc<Place>, events: Vec<StoredEvent>) -> Page {
    Page {
        joinable: place.is_joinable(),
        ..Page::up_to(place, events)
    }
}

impl<C> PostgresClaimed<C> {
    fn plan(&self) -> std::sync::MutexGuard<'_, ReadPlan> {
        // Its steps do not panic; whatever it holds may be dropped at any moment anyway.
        self.plan.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<C: PageStatements + 'static> PostgresClaimed<C> {
    /// Goes on from what was found under the grant.
    pub(super) fn new(
        grant: &Grant,
        mut found: OpenedRows,
        connection: impl FnOnce(Option<Slots>) -> C,
    ) -> Result<Self, StoreError> {
        found.check(grant)?;
        let slots = found.slots();
        let connection = Arc::new(connection(slots.clone()));
        let first = found.groups.swap_remove(0);
        let plan = ReadPlan::restore(found.leaf_bits, slots, first, found.groups, grant.proven);
        Ok(Self {
            connection,
            plan: Mutex::new(plan),
            ahead: Mutex::default(),
        })
    }

    /// Sends the next read of the difference. Only pages: a poll is to see what is there when it is
    /// asked for.
    fn read_ahead(&self, budget: Budget) {
        let request = self.plan().request();
        let (connection, (of, slots)) = (Arc::clone(&self.connection), request.clone());
        let page = ReadAhead(tokio::spawn(async move {
            let scope = Scope::Main(slots.as_deref());
            connection.read(READ, &of, scope, budget).await
        }));
        *self.ahead.lock().unwrap_or_else(PoisonError::into_inner) = Some(Ahead { request, page });
    }

    fn take_ahead(&self, request: &(Request, Option<Arc<Slots>>)) -> Option<ReadAhead> {
        let ahead = self
            .ahead
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take()?;
        (ahead.request == *request).then_some(ahead.page)
    }

    async fn read_once(&self, budget: Budget) -> Result<(Step, Page), StoreError> {
        let request = self.plan().request();
        let mut read = match self.take_ahead(&request) {
            Some(page) => page.answer().await?,
            None => {
                let scope = Scope::Main(request.1.as_deref());
                let read = self.connection.read(READ, &request.0, scope, budget);
                read.await?
            }
        };
        cut(&mut read.answer, &mut read.events, budget);
        let step = self
            .plan()
            .answer(request.0, read.answer)
            .map_err(|unsound| match unsound {
                Unsound::WentBack { sequence, before } => {
                    tracing::warn!(sequence, before, "the outbox's sequence went back");
                    StoreError::IncarnationChanged { operation: READ }
                }
                Unsound::BelowRow { sequence, row } => set_back(READ, sequence, row),
            })?;
        if step.unfinished {
            self.read_ahead(budget);
        }
        let page = Page {
            caught_up: step.caught_up,
            store_end: step.wants_advance,
            shares_version: read.shares_version,
            ..page_of(Arc::clone(&step.place), read.events)
        };
        Ok((step, page))
    }
}

/// A page that was read ahead may be larger than is wanted now; the part cut off is read again.
fn cut(answer: &mut Answer, events: &mut Vec<StoredEvent>, budget: Budget) {
    let mut bytes = 0;
    let fits = events
        .iter()
        .take(budget.events.max(1))
        .take_while(|event| {
            bytes += event.footprint();
            bytes <= budget.bytes
        });
    let kept = fits.count().max(1);
    if kept < events.len() {
        events.truncate(kept);
        answer.last_row = events.last().map(StoredEvent::seq);
        answer.more = true;
    }
}

#[async_trait]
impl<C: PageStatements + 'static> ClaimReader for PostgresClaimed<C> {
    async fn next(&self, budget: Budget) -> Result<Page, StoreError> {
        for _ in 1..EMPTY_PAGES_MAX {
            let (step, page) = self.read_once(budget).await?;
            if !page.events.is_empty() || !step.unfinished {
                return Ok(page);
            }
        }
        self.read_once(budget).await.map(|(_, page)| page)
    }

    async fn hinted(&self) {
        self.connection.hinted().await
    }
}

#[async_trait]
impl<C: ProgressStatements> ClaimProgress for PostgresClaimed<C> {
    async fn advance(
        &self,
        up_to: &Cursor,
        _finished: &[i64],
    ) -> Result<AdvanceOutcome, StoreError> {
        const OPERATION: &str = "advance";
        let place = Place::of(OPERATION, up_to)?;
        let (stored, split) = {
            let plan = self.plan();
            (plan.advance(place, up_to.seq()), plan.is_split())
        };
        if let Some(stored) = stored {
            if split {
                self.connection.store_several(&stored).await?;
            } else {
                self.connection.store_one(&stored).await?;
            }
            self.plan().advanced(stored);
        }
        Ok(AdvanceOutcome {
            read_at_once: self.plan().wants_advance(),
        })
    }
}

#[async_trait]
impl<C: PageStatements + MarkerStatements + 'static> ClaimMarkers for PostgresClaimed<C> {
    async fn markers(&self, after: Option<&str>, limit: usize) -> Result<Vec<Marker>, StoreError> {
        self.connection.markers(after, limit).await
    }

    async fn marked(&self, keys: &[String]) -> Result<Vec<String>, StoreError> {
        self.connection.marked(keys).await
    }

    async fn side_read(&self, keys: &[String]) -> Result<Box<dyn SideRead>, StoreError> {
        let side_read = PostgresSideRead::open(Arc::clone(&self.connection), keys).await?;
        Ok(Box::new(side_read))
    }

    async fn join(&self, keys: &[String], at: &Cursor) -> Result<(), StoreError> {
        const OPERATION: &str = "join";
        let bug = |reason: &str| StoreError::Bug {
            operation: OPERATION,
            reason: reason.to_owned(),
        };
        if at.seq().is_some() || !Place::of(OPERATION, at)?.is_joinable() {
            return Err(bug("keys can only join at a whole snapshot"));
        }
        if self.connection.remove_markers(keys).await? {
            return Ok(());
        }
        Err(bug("a key has no marker, or a parked event still holds it"))
    }
}
