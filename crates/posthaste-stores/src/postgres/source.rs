//! What the owner of a claim holds: one connection that reads, one that changes.

use std::{
    any::Any,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use posthaste_engine::{
    AdvanceOutcome, Budget, Claimed, Cursor, Due, Marker, Page, Parking, Settlement, SideRead,
    StoreError, StoredEvent,
};
use tokio::{sync::OnceCell, task::JoinHandle};
use tokio_postgres::types::Type;
use uuid::Uuid;

use super::{
    Grant,
    advance::{ADVANCE, ADVANCE_TYPES},
    claim::{none_of, number},
    client::{Client, Prepared, Typed, Work},
    connection::Connector,
    converge::{Group, Row},
    course::Course,
    error::classify,
    hints::{Heard, Hints},
    parking,
    read::{Read, Reader, Scope},
    side_read::PostgresSideRead,
    slots::Slots,
    sweep::{Answer, Floors, Place, Position, Request, Step, Unsound},
    types::Snapshot,
};

const OPEN: &str = include_str!("sql/open.sql");
const GUARD: &str = include_str!("sql/guard.sql");
const REFUSED: &str = include_str!("sql/refused.sql");
const REPORT: &str = include_str!("sql/report.sql");
const FENCES_TAKEN: &str = include_str!("sql/fences_taken.sql");

const READ: &str = "read";

/// Segments without a row to deliver that one call walks through before it lets its caller look up.
const EMPTY_PAGES_MAX: u32 = 16;

/// A statement whose text has its `{guard}` filled in.
pub(super) fn guarded(sql: &str) -> String {
    sql.replace("{guard}", GUARD)
}

/// The owner's view of one destination.
#[derive(Debug)]
pub(super) struct PostgresClaimed {
    pub(super) inner: Arc<Inner>,
    course: Mutex<Course>,
    ahead: Mutex<Option<Ahead>>,
    /// None: nobody hints.
    hints: Option<tokio::sync::Mutex<Heard>>,
}

/// The next page of a difference, read while its caller handles the one before.
#[derive(Debug)]
struct Ahead {
    request: (Request, Option<Arc<Slots>>),
    page: ReadAhead,
}

type ReadAhead = JoinHandle<Result<Read, StoreError>>;

/// What the main group and its side reads share.
#[derive(Debug)]
pub(super) struct Inner {
    pub(super) grant: Grant,
    pub(super) leaf_bits: u8,
    /// Of all that the claim owns.
    slots: Option<Slots>,
    reader: Arc<Reader>,
    pub(super) writer: Client,
    pub(super) advance: Prepared,
    pub(super) due: Prepared,
    connector: Arc<Connector>,
    /// One key's side read may look through whole segments; the main group is not to wait for that.
    side_reader: OnceCell<Arc<Reader>>,
}

/// Reads the cursor under a claim. Only a connection of its own may use what it finds: an error on it
/// ends this value, and the engine claims anew.
pub(super) async fn open(
    connector: &Arc<Connector>,
    hints: &Hints,
    grant: Grant,
) -> Result<PostgresClaimed, StoreError> {
    const OPERATION: &str = "open";
    let failed = |error| classify(OPERATION, error);
    let (reads, writer) = tokio::try_join!(
        connector.connect(Work::Read),
        connector.connect(Work::Change)
    )?;
    let rows = reads
        .query_typed(
            OPEN,
            &[
                (&grant.destination_id, Type::INT8),
                (&grant.epoch, Type::INT8),
                (&grant.registration, Type::UUID),
            ],
        )
        .await
        .map_err(failed)?;
    let row = rows.first().ok_or(StoreError::Fenced {
        operation: OPERATION,
    })?;
    let mut groups = rows.iter().map(group).collect::<Result<Vec<_>, _>>()?;
    let mut owned = none_of(row.get("count"))?;
    for partition in groups.iter().flat_map(|group| group.partitions.iter()) {
        owned.insert(partition);
    }
    if row.get::<_, Option<Uuid>>("token") != Some(grant.token) {
        return Err(StoreError::IncarnationChanged {
            operation: OPERATION,
        });
    }
    let sequence: i64 = row.get("sequence");
    let floors = groups.iter().map(|group| group.row.position.floors.floor);
    if let Some(floor) = floors.max().filter(|&floor| sequence < floor) {
        return Err(set_back(OPERATION, sequence, floor));
    }
    let leaf_bits = row
        .get::<_, Option<i16>>("leaf_bits")
        .and_then(|bits| u8::try_from(bits).ok())
        .filter(|bits| *bits < 63)
        .ok_or_else(|| StoreError::Schema {
            operation: OPERATION,
            reason: "posthaste.settings lacks leaf_bits: run `posthaste init --store URL`".into(),
        })?;
    let slots = Slots::of(&owned);
    let hints = match row.get::<_, Option<bool>>("notify") {
        Some(true) => Some(tokio::sync::Mutex::new(hints.listen(connector))),
        _ => None,
    };
    let advance = writer.prepare(ADVANCE.to_owned(), &ADVANCE_TYPES).await;
    let due = writer
        .prepare(parking::DUE.to_owned(), &parking::DUE_TYPES)
        .await;
    let (advance, due) = (advance.map_err(failed)?, due.map_err(failed)?);
    Ok(PostgresClaimed {
        course: Mutex::new(Course::restore(
            leaf_bits,
            slots.clone(),
            groups.swap_remove(0),
            groups,
            grant.proven,
        )),
        ahead: Mutex::default(),
        hints,
        inner: Arc::new(Inner {
            reader: Arc::new(Reader::new(reads, grant.destination_id, grant.token)),
            slots,
            grant,
            leaf_bits,
            writer,
            advance,
            due,
            connector: Arc::clone(connector),
            side_reader: OnceCell::new(),
        }),
    })
}

fn group(row: &tokio_postgres::Row) -> Result<Group, StoreError> {
    let mut partitions = none_of(row.get("count"))?;
    for partition in row.get::<_, Vec<i32>>("partitions") {
        partitions.insert(number(partition)?);
    }
    Ok(Group {
        row: Row {
            ids: vec![row.get("id")],
            position: position(row).map_err(|error| classify("open", error))?,
        },
        partitions,
    })
}

/// Reads `low, high, seq, floor, floor_min`.
pub(super) fn position(row: &tokio_postgres::Row) -> Result<Position, tokio_postgres::Error> {
    let high: Option<Snapshot> = row.try_get("high")?;
    let seq: Option<i64> = row.try_get("seq")?;
    Ok(Position {
        low: Arc::new(row.try_get("low")?),
        within: high.map(Arc::new).zip(seq),
        floors: Floors {
            floor: row.try_get("floor")?,
            floor_min: row.try_get("floor_min")?,
        },
    })
}

/// The refusal of a sequence below what was seen of it.
pub(super) fn set_back(operation: &'static str, sequence: i64, floor: i64) -> StoreError {
    StoreError::Misconfigured {
        operation,
        reason: format!(
            "posthaste.outbox_seq_seq stands at {sequence}, below {floor} that was seen of it: it was \
             set back, which hides new events; set it forward: select \
             setval('posthaste.outbox_seq_seq', {floor})"
        ),
    }
}

/// The place that a cursor of ours points into.
pub(super) fn place_of<'a>(
    operation: &'static str,
    at: &'a Cursor,
) -> Result<&'a Place, StoreError> {
    at.base::<Place>().ok_or_else(|| StoreError::Bug {
        operation,
        reason: "the cursor is another store's".to_owned(),
    })
}

impl Grant {
    /// The parameters of a guarded statement: the guard's own come first.
    pub(super) fn guard<'a>(&'a self, params: &[Typed<'a>]) -> Vec<Typed<'a>> {
        let guard: [Typed<'_>; 5] = [
            (&self.destination_id, Type::INT8),
            (&self.cursor_id, Type::INT8),
            (&self.epoch, Type::INT8),
            (&self.registration, Type::UUID),
            (&self.token, Type::UUID),
        ];
        guard.into_iter().chain(params.iter().cloned()).collect()
    }
}

impl Inner {
    pub(super) async fn side_reader(&self) -> Result<Arc<Reader>, StoreError> {
        let connect = || async {
            let client = self.connector.connect(Work::Read).await?;
            Ok(Arc::new(Reader::new(
                client,
                self.grant.destination_id,
                self.grant.token,
            )))
        };
        self.side_reader.get_or_try_init(connect).await.cloned()
    }

    /// Why a guarded statement changed nothing.
    pub(super) async fn refused(&self, operation: &'static str) -> StoreError {
        let same = self
            .writer
            .query_typed_one(REFUSED, &[(&self.grant.token, Type::UUID)])
            .await
            .map(|row| row.get::<_, bool>(0));
        match same {
            Ok(true) => StoreError::Fenced { operation },
            Ok(false) => StoreError::IncarnationChanged { operation },
            Err(error) => classify(operation, error),
        }
    }

    pub(super) fn page(place: Arc<Place>, events: Vec<StoredEvent>) -> Page {
        let joinable = place.is_joinable();
        let base: Arc<dyn Any + Send + Sync> = place;
        Page {
            events,
            end: Cursor::whole(Arc::clone(&base)),
            base,
            joinable,
            caught_up: false,
            wants_advance: false,
            shares_version: 0,
        }
    }

    /// The slots of the claim, as statements take them; none: all.
    pub(super) fn slots(&self) -> (Option<&[u8]>, i32) {
        let slots = self.slots.as_ref();
        (
            slots.map(|slots| &slots.mask[..]),
            slots.map_or(0, |slots| slots.shift),
        )
    }
}

impl PostgresClaimed {
    fn course(&self) -> std::sync::MutexGuard<'_, Course> {
        // Its steps do not panic; whatever it holds may be dropped at any moment anyway.
        self.course.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends the next read of the difference. Only pages: a poll is to see what is there when it is
    /// asked for.
    fn read_ahead(&self, budget: Budget) {
        let request = self.course().request();
        let (inner, (of, slots)) = (Arc::clone(&self.inner), request.clone());
        let page = tokio::spawn(async move {
            let scope = Scope::Main(slots.as_deref());
            inner.reader.read(READ, &of, scope, budget).await
        });
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
        let request = self.course().request();
        let mut read = match self.take_ahead(&request) {
            Some(page) => page.await.map_err(|error| StoreError::Bug {
                operation: READ,
                reason: error.to_string(),
            })??,
            None => {
                let scope = Scope::Main(request.1.as_deref());
                let read = self.inner.reader.read(READ, &request.0, scope, budget);
                read.await?
            }
        };
        cut(&mut read.answer, &mut read.events, budget);
        let step =
            self.course()
                .answer(request.0, read.answer)
                .map_err(|unsound| match unsound {
                    Unsound::WentBack { sequence, before } => {
                        tracing::warn!(sequence, before, "the outbox's sequence went back");
                        StoreError::IncarnationChanged { operation: READ }
                    }
                    Unsound::BelowRow { sequence, row } => StoreError::Bug {
                        operation: READ,
                        reason: format!("the sequence says {sequence}, and an event has {row}"),
                    },
                })?;
        if step.unfinished {
            self.read_ahead(budget);
        }
        let page = Page {
            caught_up: step.caught_up,
            wants_advance: step.wants_advance,
            shares_version: read.shares_version,
            ..Inner::page(Arc::clone(&step.place), read.events)
        };
        Ok((step, page))
    }
}

/// A page that was read ahead may be larger than what is wanted now; what is cut off is read again.
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
impl Claimed for PostgresClaimed {
    async fn markers(&self, limit: usize) -> Result<Vec<Marker>, StoreError> {
        parking::markers(&self.inner, limit).await
    }

    async fn set_aside(&self) -> Result<Vec<Uuid>, StoreError> {
        parking::set_aside(&self.inner).await
    }

    async fn next(&self, budget: Budget) -> Result<Page, StoreError> {
        for _ in 1..EMPTY_PAGES_MAX {
            let (step, page) = self.read_once(budget).await?;
            if !page.events.is_empty() || !step.unfinished {
                return Ok(page);
            }
        }
        self.read_once(budget).await.map(|(_, page)| page)
    }

    async fn advance(
        &self,
        up_to: &Cursor,
        _finished: &[i64],
    ) -> Result<AdvanceOutcome, StoreError> {
        const OPERATION: &str = "advance";
        let place = place_of(OPERATION, up_to)?;
        let (stored, split) = {
            let course = self.course();
            (course.advance(place, up_to.seq()), course.is_split())
        };
        if let Some(stored) = stored {
            if split {
                self.inner.store_several(&stored).await?;
            } else {
                self.inner.store_one(&stored).await?;
            }
            self.course().advanced(stored);
        }
        Ok(AdvanceOutcome {
            wants_advance: self.course().wants_advance(),
        })
    }

    async fn park(&self, events: &[Parking]) -> Result<(), StoreError> {
        parking::park(&self.inner, events).await
    }

    async fn due(&self, limit: usize) -> Result<Due, StoreError> {
        parking::due(&self.inner, limit).await
    }

    async fn settle(&self, id: i64, settlement: &Settlement) -> Result<(), StoreError> {
        parking::settle(&self.inner, id, settlement).await
    }

    async fn side_read(&self, key: &str) -> Result<Box<dyn SideRead>, StoreError> {
        let side_read = PostgresSideRead::open(Arc::clone(&self.inner), key).await?;
        Ok(Box::new(side_read))
    }

    async fn join(&self, key: &str, at: &Cursor) -> Result<(), StoreError> {
        parking::join(&self.inner, key, at).await
    }

    async fn report(&self, breaker: &str, last_error: Option<&str>) -> Result<(), StoreError> {
        let grant = &self.inner.grant;
        self.inner
            .writer
            .execute_typed(
                &guarded(REPORT),
                &grant.guard(&[(&breaker, Type::TEXT), (&last_error, Type::TEXT)]),
            )
            .await
            .map(drop)
            .map_err(|error| classify("report", error))
    }

    async fn fences_taken(&self, former: &[Uuid]) -> Result<(), StoreError> {
        self.inner
            .change(
                "note taken fences",
                FENCES_TAKEN,
                &[(&former, Type::UUID_ARRAY)],
            )
            .await
            .map(drop)
    }

    async fn hinted(&self) {
        match &self.hints {
            Some(heard) => heard.lock().await.hint().await,
            None => std::future::pending().await,
        }
    }

    fn registration(&self) -> Uuid {
        self.inner.grant.registration
    }
}

/// A wait that the caller counted from now, for the database to count.
pub(super) fn wait_micros(wait: Option<Duration>) -> Option<i64> {
    wait.map(super::ownership::micros)
}
