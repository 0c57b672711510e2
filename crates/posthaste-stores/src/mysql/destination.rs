//! Destinations: created by the first claim of their name, removed by an operator.

use mysql_async::params;
use posthaste_engine::{Start, StoreError, Wanted, audit as words};
use uuid::Uuid;

use super::{
    audit, bits,
    connection::{Work, clock, limit_of},
    place::Place,
    ranges::Ranges,
    settings,
};
use crate::{about::About, wanted::wanted};

/// Copies that one transaction closes: there may be millions.
pub(super) const COPIES_A_TRANSACTION: usize = 1_000;

/// A destination as it is stored.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) id: i64,
    pub(super) wanted: Wanted,
    pub(super) address: String,
    pub(super) partitions: u16,
    pub(super) epoch: i64,
}

/// The destination of this name that is not removed.
pub(super) async fn find(work: &mut Work, name: &str) -> Result<Option<Found>, StoreError> {
    let of = params! { "name" => name.as_bytes() };
    let sql = "select id, state, paused_places, address, partitions, epoch \
               from posthaste_destinations where kept_name = :name";
    let row = work.at_most_one(sql, of).await?;
    let operation = work.operation();
    row.map(|row| {
        Ok(Found {
            id: row.get(0)?,
            wanted: wanted(operation, &row.text(1)?, &row.text(2)?)?,
            address: row.text(3)?,
            partitions: row.get(4)?,
            epoch: row.get(5)?,
        })
    })
    .transpose()
}

/// Waits until nobody else changes who owns what of the destination. False: it is gone.
pub(super) async fn lock(work: &mut Work, id: i64) -> Result<bool, StoreError> {
    let of = params! { "id" => id };
    let sql = "select destination_id from posthaste_destination_locks \
               where destination_id = :id for update";
    Ok(work.at_most_one(sql, of).await?.is_some())
}

/// Waits for changes of relays under their epochs.
pub(super) async fn lock_cursors(work: &mut Work, id: i64) -> Result<(), StoreError> {
    let of = params! { "id" => id };
    let sql = "select id from posthaste_cursors where destination_id = :id order by id for update";
    work.rows(sql, of).await.map(drop)
}

/// Another look at who owns what is worth its while.
pub(super) async fn notice(work: &mut Work, id: i64) -> Result<(), StoreError> {
    let of = params! { "id" => id };
    let sql =
        "update posthaste_destinations set shares_version = shares_version + 1 where id = :id";
    work.execute(sql, of).await.map(drop)
}

/// The name of a destination.
pub(super) async fn name(work: &mut Work, id: i64) -> Result<String, StoreError> {
    let sql = "select name from posthaste_destinations where id = :id";
    work.one(sql, params! { "id" => id }).await?.text(0)
}

/// Whether its breaker is open, as its members say.
pub(super) async fn breaker_open(work: &mut Work, id: i64) -> Result<bool, StoreError> {
    let sql = with_breaker("select {breaker} from posthaste_destinations as d where d.id = :id");
    let row = work.one(&sql, params! { "id" => id }).await?;
    Ok(row.text(0)? == "open")
}

/// A statement whose text has its `{breaker}` filled in: that of the destination `d`.
pub(super) fn with_breaker(sql: &str) -> String {
    sql.replace("{breaker}", include_str!("sql/breaker.sql"))
}

/// Stores to which cluster the events go; answers the former one where that was another.
pub(super) async fn found_cluster(
    work: &mut Work,
    id: i64,
    cluster: &str,
    by: Uuid,
) -> Result<Option<String>, StoreError> {
    let sql = "select name, cluster from posthaste_destinations where id = :id for update";
    let row = work.one(sql, params! { "id" => id }).await?;
    let (name, former) = (row.text(0)?, row.text_opt(1)?);
    if former.as_deref() == Some(cluster) {
        return Ok(None);
    }
    let sql = "update posthaste_destinations set cluster = :cluster where id = :id";
    work.execute(sql, params! { "id" => id, "cluster" => cluster })
        .await?;
    if let Some(former) = &former {
        let about = About::relay(by, &name);
        audit::write(work, words::CLUSTER_CHANGED, about, &[former, &cluster]).await?;
    }
    Ok(former)
}

/// Discards copies behind `after` of events that the destination reads itself; answers the last
/// one's id if there may be more. They are discarded after its creation, since from then on it
/// keeps the events in the outbox, and before the first of its claims is granted, since it passes
/// them then.
pub(super) async fn discard_read_again(
    work: &mut Work,
    (id, name): (i64, &str),
    after: i64,
    by: Uuid,
) -> Result<Option<i64>, StoreError> {
    let passed = "select 1 from posthaste_cursors where destination_id = :id and high > 0 limit 1";
    if work
        .at_most_one(passed, params! { "id" => id })
        .await?
        .is_some()
    {
        return Ok(None);
    }
    let of = params! {
        "name" => name.as_bytes(),
        "after" => after,
        "limit" => limit_of(COPIES_A_TRANSACTION),
    };
    let rows = work
        .rows(include_str!("sql/copies_read_again.sql"), of)
        .await?;
    let now = clock(work).await?;
    let mut last = None;
    for row in &rows {
        let copy: i64 = row.get(0)?;
        let sql = "update posthaste_parked set state = 'discarded', closed_at = :now, \
                   payload = null where id = :id";
        work.execute(sql, params! { "id" => copy, "now" => now })
            .await?;
        last = Some(copy);
    }
    if !rows.is_empty() {
        let about = About::relay(by, name);
        audit::write(work, words::READ_AGAIN, about, &[&rows.len()]).await?;
    }
    Ok(last.filter(|_| rows.len() == COPIES_A_TRANSACTION))
}

/// Makes a destination that nobody has claimed yet.
pub(super) async fn create(
    work: &mut Work,
    name: &str,
    start: Start,
    by: Uuid,
) -> Result<(), StoreError> {
    // Nothing is removed meanwhile that it is to read.
    let sql = "select value from posthaste_settings where name = 'retention_seconds' for update";
    work.rows(sql, ()).await?;
    let now = clock(work).await?;
    let partitions = settings::partitions(work).await?;
    let of = params! { "name" => name.as_bytes(), "partitions" => partitions, "now" => now };
    // Epochs and versions go on above those of a removed one of this name: sinks and relays compare
    // them.
    let inserted = work.numbered(include_str!("sql/destination_insert.sql"), of);
    let Some(id) = inserted.await? else {
        // Another relay has made it meanwhile.
        return Ok(());
    };
    let sql = "insert into posthaste_destination_locks (destination_id) values (:id)";
    work.execute(sql, params! { "id" => id }).await?;
    let place = match start {
        Start::Oldest => Place::start(),
        Start::Now => now_visible(work).await?,
    };
    let of = params! {
        "destination_id" => id,
        "partitions" => bits::encode(0..partitions, partitions),
        "high" => place.high(),
        "holes" => place.encoded_holes(),
        "floor" => place.floor(),
    };
    work.execute(include_str!("sql/cursor_insert.sql"), of)
        .await?;
    let about = About::relay(by, name);
    let start = words::start(start);
    audit::write(work, words::DESTINATION_CREATED, about, &[&start]).await
}

/// The place behind everything that is visible now. A number that was drawn and is not there may
/// be committed yet: it is a hole.
async fn now_visible(work: &mut Work) -> Result<Place, StoreError> {
    let rows = work.rows(include_str!("sql/gaps.sql"), ()).await?;
    let Some((behind_last, gaps)) = rows.split_last() else {
        return Ok(Place::start());
    };
    let mut holes = Ranges::default();
    for row in gaps {
        holes.push((row.get(0)?, row.get(1)?));
    }
    let high: u64 = behind_last.get(1)?;
    Ok(Place::start().and_seen(&Ranges::of(1, high).minus(&holes)))
}

/// Closes parked events of a destination that is to be removed, which no live relay may serve;
/// `before` of them are closed already. Answers how many: fewer than [`COPIES_A_TRANSACTION`] are
/// the last ones.
pub(super) async fn close_parked(
    work: &mut Work,
    (id, name): (i64, &str),
    before: u64,
) -> Result<u64, StoreError> {
    let now = clock(work).await?;
    let of = params! { "destination_id" => id, "now" => now };
    let sql = include_str!("sql/live_member.sql");
    if let Some(holder) = work.at_most_one(sql, of).await? {
        let holder = holder.text(0)?;
        return Err(StoreError::is_held(work.operation(), name, &holder, before));
    }
    let of = params! { "id" => id, "now" => now, "limit" => limit_of(COPIES_A_TRANSACTION) };
    work.execute(include_str!("sql/destination_close_parked.sql"), of)
        .await
}

/// Ends a destination's progress. A relay that still believes to own some of it finds nothing.
pub(super) async fn end_progress(work: &mut Work, id: i64) -> Result<(), StoreError> {
    for sql in [
        "update posthaste_destinations set epoch = epoch + 1 where id = :id",
        "delete from posthaste_cursors where destination_id = :id",
        "delete from posthaste_markers where destination_id = :id",
        "delete from posthaste_members where destination_id = :id",
        "delete from posthaste_destination_locks where destination_id = :id",
    ] {
        work.execute(sql, params! { "id" => id }).await?;
    }
    Ok(())
}
