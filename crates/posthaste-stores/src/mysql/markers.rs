//! The markers of blocked keys, and the way back into the main group.

use async_trait::async_trait;
use mysql_async::params;
use posthaste_engine::{ClaimMarkers, Cursor, Marker, SideRead, StoreError, audit as words};
use uuid::Uuid;

use super::{
    audit::{self, About},
    claimed::MysqlClaimed,
    connection::{Fields, Link, Work, limit_of},
    destination,
    error::unexpected,
    guard::Guard,
    holds_key::with_holds_key,
    place::Place,
    plan::{self, PagePlaces},
    ranges::Ranges,
    side_read::MysqlSideRead,
};

/// A place as a row has it: the greatest number that was seen, and holes.
pub(super) fn place(row: &Fields, high: usize, holes: usize) -> Result<Place, StoreError> {
    let place = Place::stored(row.get(high)?, &row.get::<Vec<u8>>(holes)?);
    place.map_err(|_| unexpected("read a place", "a place whose holes are none"))
}

/// Where a key's marker stands; none: it has none.
pub(super) async fn marker(
    work: &mut Work,
    destination_id: i64,
    key: &str,
) -> Result<Option<Place>, StoreError> {
    let of = params! { "destination_id" => destination_id, "key" => key.as_bytes() };
    let sql = "select high, holes from posthaste_markers \
               where destination_id = :destination_id and `key` = :key";
    let row = work.at_most_one(sql, of).await?;
    row.map(|row| place(&row, 0, 1)).transpose()
}

/// Moves a marker up; answers whether there is one.
pub(super) async fn move_up(
    work: &mut Work,
    destination_id: i64,
    key: &str,
    to: &Place,
) -> Result<bool, StoreError> {
    let Some(stands) = marker(work, destination_id, key).await? else {
        return Ok(false);
    };
    let place = stands.union(to);
    let of = params! {
        "destination_id" => destination_id,
        "key" => key.as_bytes(),
        "high" => place.high(),
        "holes" => place.encoded_holes(),
        "floor" => place.floor(),
    };
    let sql = "update posthaste_markers set high = :high, holes = :holes, floor = :floor \
               where destination_id = :destination_id and `key` = :key";
    work.execute(sql, of).await?;
    Ok(true)
}

/// Sets a key's marker, or moves the one that stands.
pub(super) async fn set(
    work: &mut Work,
    destination_id: i64,
    (key, slot): (&str, u16),
    to: &Place,
    now: i64,
) -> Result<(), StoreError> {
    if move_up(work, destination_id, key, to).await? {
        return Ok(());
    }
    let of = params! {
        "destination_id" => destination_id,
        "key" => key.as_bytes(),
        "slot" => slot,
        "high" => to.high(),
        "holes" => to.encoded_holes(),
        "floor" => to.floor(),
        "now" => now,
    };
    work.execute(include_str!("sql/marker_insert.sql"), of)
        .await
        .map(drop)
}

#[async_trait]
impl ClaimMarkers for MysqlClaimed {
    async fn markers(&self, after: Option<&str>, limit: usize) -> Result<Vec<Marker>, StoreError> {
        const OPERATION: &str = "read the markers";
        let link = self.parking(OPERATION).await?;
        let mut work = self.guard().read(&link, OPERATION).await?;
        let result = self.read_markers(&mut work, after, limit).await;
        work.end(result).await
    }

    async fn marked(&self, keys: &[String]) -> Result<Vec<String>, StoreError> {
        const OPERATION: &str = "ask for markers";
        let link = self.parking(OPERATION).await?;
        let mut work = self.guard().read(&link, OPERATION).await?;
        let result = async {
            let mut marked = Vec::new();
            for key in keys {
                let stands = marker(&mut work, self.guard().destination_id(), key).await?;
                marked.extend(stands.map(|_| key.clone()));
            }
            Ok(marked)
        };
        let result = result.await;
        work.end(result).await
    }

    async fn side_read(&self, keys: &[String]) -> Result<Box<dyn SideRead>, StoreError> {
        Ok(Box::new(MysqlSideRead::begin(self, keys).await?))
    }

    async fn join(&self, keys: &[String], at: &Cursor) -> Result<(), StoreError> {
        const OPERATION: &str = "join released keys";
        let (places, seq) = plan::of_cursor(OPERATION, at)?;
        let mut guarded = self.write(OPERATION).await?;
        // I1: further on, the main group has passed over events of these keys that only their
        // markers still stand for.
        let stands = self.plan().stored().cloned();
        let at = places.whole(seq).filter(|at| Some(at) == stands.as_ref());
        let result = match at {
            Some(at) => join(&mut guarded.work, self.guard(), keys, &at).await,
            None => Err(unexpected(
                OPERATION,
                "the side read ends at another place than the main group stands at",
            )),
        };
        guarded.end(result).await
    }
}

impl MysqlClaimed {
    async fn read_markers(
        &self,
        work: &mut Work,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<Marker>, StoreError> {
        let all = self.slots();
        let of = params! {
            "destination_id" => self.guard().destination_id(),
            "after" => after.map(str::as_bytes),
            "limit" => limit_of(limit),
            "mask" => all.mask(),
            "count" => all.count(),
        };
        let sql = with_holds_key(include_str!("sql/markers.sql"));
        let rows = work.rows(&sql, of).await?;
        let marker = |row: &Fields| {
            let place = place(row, 1, 2)?;
            let places = PagePlaces::one(all.shared(), place, Ranges::default());
            Ok(Marker {
                key: row.text(0)?,
                at: Cursor::whole(places.shared()),
                released: row.flag(3)?,
            })
        };
        rows.iter().map(marker).collect()
    }
}

async fn join(
    work: &mut Work,
    guard: &Guard,
    keys: &[String],
    at: &Place,
) -> Result<(), StoreError> {
    let (destination_id, by): (i64, Uuid) = guard.of();
    let sql = with_holds_key(include_str!("sql/marker_delete.sql"));
    for key in keys {
        let stands = marker(work, destination_id, key).await?;
        let is_reached = stands.is_some_and(|stands| at.covers(&stands));
        let of = params! { "destination_id" => destination_id, "key" => key.as_bytes() };
        if !is_reached || work.execute(&sql, of).await? == 0 {
            return Err(unexpected(
                work.operation(),
                "a key has no marker before the place, or a parked event still holds it",
            ));
        }
    }
    let name = destination::name(work, destination_id).await?;
    let about = About::relay(by, &name);
    audit::write(work, words::JOIN, about, &[&keys.len()]).await
}

/// For side reads: where each key's marker stands.
pub(super) async fn starts(
    claimed: &MysqlClaimed,
    link: &Link,
    operation: &'static str,
    keys: &[String],
) -> Result<Vec<(String, Place)>, StoreError> {
    let mut work = claimed.guard().read(link, operation).await?;
    let result = async {
        let mut starts = Vec::new();
        for key in keys {
            let stands = marker(&mut work, claimed.guard().destination_id(), key).await?;
            let is_ours = claimed.slots().contain(posthaste::slot(key));
            let stands = stands.filter(|_| is_ours);
            let stands = stands.ok_or_else(|| unexpected(operation, "a key has no marker"))?;
            starts.push((key.clone(), stands));
        }
        Ok(starts)
    };
    let result = result.await;
    work.end(result).await
}
