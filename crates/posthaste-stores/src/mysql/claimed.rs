//! Reading the outbox and moving the cursor, under a claim.
//!
//! The connection that reads lives as long as the claim: what was read and proven on it is true of
//! the server that it was opened to, and of this life of that server. Nothing of it is kept when it
//! is lost; the next claim begins with the places that are stored.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};

use async_trait::async_trait;
use mysql_async::params;
use posthaste_engine::{
    AdvanceOutcome, Budget, Claim, ClaimProgress, ClaimReader, Cursor, Page, Partitions, StoreError,
};
use tokio::sync::OnceCell;

use super::{
    MysqlStore, bits, check,
    config::MysqlConfig,
    connection::{Link, Work},
    error::unexpected,
    guard::{Guard, Guarded},
    place::Place,
    plan::{self, Group, Plan, Stored},
    read::Reader,
    shares::{former, former_text},
    slots::Slots,
};

/// The connections of a claim's owner: one for pages, one for changes, and one, opened when it is
/// first needed, for everything about parked events.
pub(super) struct MysqlClaimed {
    config: Arc<MysqlConfig>,
    guard: Guard,
    slots: Slots,
    pub(super) writer: Link,
    reader: Reader,
    parking: OnceCell<Arc<Link>>,
    plan: Arc<Mutex<Plan>>,
}

impl MysqlClaimed {
    pub(super) async fn open(store: &MysqlStore, claim: &Claim) -> Result<Self, StoreError> {
        const OPERATION: &str = "open a claim";
        let config = Arc::clone(&store.config);
        let guard = Guard::new(OPERATION, claim)?;
        let reader = Link::once(OPERATION, &config).await?;
        let writer = Link::once(OPERATION, &config).await?;
        let mut work = guard.read(&reader, OPERATION).await?;
        let rows = rows_of(&mut work, &guard, &claim.partitions).await;
        let groups = work.end(rows).await?;
        let plan = Arc::new(Mutex::new(Plan::restore(groups)));
        let slots = Slots::new(&claim.partitions);
        let (of, shared) = (guard.clone(), Arc::clone(&plan));
        Ok(Self {
            reader: Reader::open(store, reader, of, slots.clone(), shared).await?,
            config,
            guard,
            slots,
            writer,
            parking: OnceCell::new(),
            plan,
        })
    }

    pub(super) fn guard(&self) -> &Guard {
        &self.guard
    }

    pub(super) fn slots(&self) -> &Slots {
        &self.slots
    }

    pub(super) fn plan(&self) -> std::sync::MutexGuard<'_, Plan> {
        self.plan.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The connection for everything about parked events.
    pub(super) async fn parking(&self, operation: &'static str) -> Result<Arc<Link>, StoreError> {
        self.parking
            .get_or_try_init(|| async {
                let link = Link::once(operation, &self.config).await?;
                Ok(Arc::new(link))
            })
            .await
            .map(Arc::clone)
    }

    /// Begins to change something under this claim.
    pub(super) async fn write(&self, operation: &'static str) -> Result<Guarded, StoreError> {
        self.guard.write(&self.writer, operation).await
    }
}

/// The rows of the claim. An outbox whose counter was set back hides new events: it is refused.
async fn rows_of(
    work: &mut Work,
    guard: &Guard,
    partitions: &Partitions,
) -> Result<Vec<Group>, StoreError> {
    let of = params! {
        "destination_id" => guard.destination_id(),
        "epoch" => guard.epoch(),
        "registration" => guard.registration().to_string(),
    };
    let rows = work.rows(include_str!("sql/cursors.sql"), of).await?;
    let operation = work.operation();
    let mut groups = Vec::new();
    for row in &rows {
        let high = row.get(2)?;
        let place = Place::stored(high, &row.get::<Vec<u8>>(3)?);
        let place = place.map_err(|_| unexpected(operation, "a cursor whose holes are none"))?;
        let bytes: Vec<u8> = row.get(1)?;
        groups.push(Group {
            id: row.get(0)?,
            partitions: Arc::new(bits::partitions(operation, &bytes, partitions.count())?),
            place,
        });
        check::refuse_drawn_again(work, high, row.get(4)?).await?;
    }
    if groups.is_empty() {
        return Err(StoreError::Fenced { operation });
    }
    let high = groups.iter().map(|group| group.place.high()).max();
    check::refuse_set_back(work, high.unwrap_or(0)).await?;
    Ok(groups)
}

#[async_trait]
impl ClaimReader for MysqlClaimed {
    async fn next(&self, budget: Budget) -> Result<Page, StoreError> {
        self.reader.next(budget).await
    }
}

#[async_trait]
impl ClaimProgress for MysqlClaimed {
    async fn advance(
        &self,
        up_to: &Cursor,
        // The cursor says it all.
        _finished: &[i64],
    ) -> Result<AdvanceOutcome, StoreError> {
        const OPERATION: &str = "advance the cursor";
        let (places, seq) = plan::of_cursor(OPERATION, up_to)?;
        let advance = self.plan().advance(places, seq);
        let mut guarded = self.write(OPERATION).await?;
        let Some(advance) = advance else {
            guarded.end_unchanged(()).await?;
            return Ok(AdvanceOutcome::default());
        };
        let result = store(&mut guarded.work, &advance).await;
        guarded.end(result).await?;
        self.plan().advanced(&advance);
        Ok(AdvanceOutcome::default())
    }
}

async fn store(work: &mut Work, advance: &Stored) -> Result<(), StoreError> {
    for (id, place) in &advance.places {
        let sql = "select id from posthaste_outbox where seq = :high";
        let row = work.at_most_one(sql, params! { "high" => place.high() });
        let high_id: Option<Vec<u8>> = row.await?.map(|row| row.get(0)).transpose()?;
        let of = params! {
            "id" => id,
            "high" => place.high(),
            "high_id" => high_id,
            "holes" => place.encoded_holes(),
            "floor" => place.floor(),
        };
        work.execute(include_str!("sql/advance.sql"), of).await?;
    }
    let mut merges: BTreeMap<i64, Vec<i64>> = BTreeMap::new();
    for &(gone, rest) in &advance.merged {
        merges.entry(rest).or_default().push(gone);
    }
    for (rest, gone) in merges {
        merge(work, rest, &gone).await?;
    }
    Ok(())
}

/// Rows at one place become one, which takes over their partitions and whatever settles or has to
/// be fenced.
async fn merge(work: &mut Work, rest: i64, gone: &[i64]) -> Result<(), StoreError> {
    let (mut bytes, mut not_before, mut owners) = (Vec::<u8>::new(), 0, Vec::new());
    for &id in std::iter::once(&rest).chain(gone) {
        let sql = "select partitions, not_before, former from posthaste_cursors where id = :id";
        let row = work.one(sql, params! { "id" => id }).await?;
        let own: Vec<u8> = row.get(0)?;
        bytes.resize(bytes.len().max(own.len()), 0);
        bytes.iter_mut().zip(own).for_each(|(all, own)| *all |= own);
        not_before = not_before.max(row.get::<i64>(1)?);
        owners.extend(former(work.operation(), &row.text(2)?)?);
    }
    owners.sort_unstable();
    owners.dedup();
    let of = params! {
        "id" => rest,
        "partitions" => bytes,
        "not_before" => not_before,
        "former" => former_text(&owners),
    };
    let sql = "update posthaste_cursors set partitions = :partitions, not_before = :not_before, \
               former = :former where id = :id";
    work.execute(sql, of).await?;
    for &id in gone {
        let sql = "delete from posthaste_cursors where id = :id";
        work.execute(sql, params! { "id" => id }).await?;
    }
    Ok(())
}
