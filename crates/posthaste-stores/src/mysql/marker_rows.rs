//! The rows of markers: where the keys of a destination stand.

use mysql_async::params;
use posthaste_engine::StoreError;

use super::{
    claimed::MysqlClaimed,
    connection::{Fields, Link, Work},
    error::unexpected,
    place::Place,
};

/// A place as a row has it: the greatest number that was seen, and holes.
pub(super) fn place(row: &Fields, high: usize, holes: usize) -> Result<Place, StoreError> {
    let place = Place::stored(row.get(high)?, &row.get::<Vec<u8>>(holes)?);
    place.map_err(|_| unexpected("read a place", "a place whose holes are none"))
}

/// The slot of a key, and where its marker stands; none: it has none.
pub(super) async fn marker(
    work: &mut Work,
    destination_id: i64,
    key: &str,
) -> Result<Option<(u16, Place)>, StoreError> {
    let of = params! { "destination_id" => destination_id, "key" => key.as_bytes() };
    let sql = "select slot, high, holes from posthaste_markers \
               where destination_id = :destination_id and `key` = :key";
    let row = work.at_most_one(sql, of).await?;
    row.map(|row| Ok((row.get(0)?, place(&row, 1, 2)?)))
        .transpose()
}

/// Moves a marker up; answers whether there is one.
pub(super) async fn move_up(
    work: &mut Work,
    destination_id: i64,
    key: &str,
    to: &Place,
) -> Result<bool, StoreError> {
    let Some((_, stands)) = marker(work, destination_id, key).await? else {
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
            let id = claimed.guard().destination_id();
            let stands = marker(&mut work, id, key).await?;
            let stands = stands.filter(|(slot, _)| claimed.slots().contain(*slot));
            let stands = stands.ok_or_else(|| unexpected(operation, "a key has no marker"))?;
            starts.push((key.clone(), stands.1));
        }
        Ok(starts)
    };
    let result = result.await;
    work.end(result).await
}
