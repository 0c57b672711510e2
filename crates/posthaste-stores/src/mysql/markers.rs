//! The markers of blocked keys, and the way back into the main group.

use async_trait::async_trait;
use mysql_async::params;
use posthaste_engine::{ClaimMarkers, Cursor, Marker, SideRead, StoreError, audit as words};
use uuid::Uuid;

use super::{
    audit,
    claimed::MysqlClaimed,
    connection::{Fields, Work, limit_of},
    destination,
    error::unexpected,
    guard::Guard,
    holds_key::with_holds_key,
    marker_rows::{marker, place},
    place::Place,
    plan::{self, PagePlaces},
    ranges::Ranges,
    side_read::MysqlSideRead,
};
use crate::about::About;

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
        let is_reached = stands.is_some_and(|(_, stands)| at.covers(&stands));
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
