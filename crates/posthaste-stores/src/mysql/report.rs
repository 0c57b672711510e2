//! Telling operators and other relays how the destination is.

use async_trait::async_trait;
use mysql_async::params;
use posthaste_engine::{ClaimReports, StoreError};
use uuid::Uuid;

use super::{
    claimed::MysqlClaimed,
    connection::Work,
    destination::found_cluster,
    shares::{former, former_text},
};

#[async_trait]
impl ClaimReports for MysqlClaimed {
    async fn report(&self, breaker: &str, last_error: Option<&str>) -> Result<(), StoreError> {
        let (id, by) = self.guard().of();
        let mut guarded = self.write("report the destination's health").await?;
        let result = report(&mut guarded.work, (id, by), breaker, last_error).await;
        guarded.end(result).await
    }

    async fn reached(&self, cluster: &str) -> Result<Option<String>, StoreError> {
        let (id, by) = self.guard().of();
        let mut guarded = self.write("store the destination's cluster").await?;
        let result = found_cluster(&mut guarded.work, id, cluster, by).await;
        guarded.end(result).await
    }

    async fn fences_taken(&self, taken: &[Uuid]) -> Result<(), StoreError> {
        let (id, by) = self.guard().of();
        let epoch = self.guard().epoch();
        let mut guarded = self.write("record fences that were taken").await?;
        let result = fences_taken(&mut guarded.work, (id, by, epoch), taken).await;
        guarded.end(result).await
    }
}

async fn report(
    work: &mut Work,
    (id, by): (i64, Uuid),
    breaker: &str,
    last_error: Option<&str>,
) -> Result<(), StoreError> {
    // On trial it is not reached.
    let reaches = breaker == "closed";
    let registration = by.to_string();
    let of = params! { "id" => id, "registration" => &registration, "reaches" => reaches };
    let sql = "select 1 from posthaste_members where destination_id = :id \
               and registration = :registration and not (reaches <=> :reaches)";
    let changes = work.at_most_one(sql, of).await?.is_some();
    let of = params! {
        "id" => id,
        "registration" => &registration,
        "reaches" => reaches,
        "last_error" => last_error,
    };
    let sql = "update posthaste_members set reaches = :reaches, last_error = :last_error \
               where destination_id = :id and registration = :registration";
    work.execute(sql, of).await?;
    let of = params! {
        "id" => id,
        "breaker" => breaker,
        "last_error" => last_error,
        "raised" => i64::from(changes),
    };
    let sql = "update posthaste_destinations set breaker = :breaker, last_error = :last_error, \
               shares_version = shares_version + :raised where id = :id";
    work.execute(sql, of).await.map(drop)
}

async fn fences_taken(
    work: &mut Work,
    (id, by, epoch): (i64, Uuid, i64),
    taken: &[Uuid],
) -> Result<(), StoreError> {
    let of = params! { "id" => id, "registration" => by.to_string(), "epoch" => epoch };
    let sql = "select id, former from posthaste_cursors where destination_id = :id \
               and relay = :registration and epoch = :epoch and former <> '[]' order by id";
    let rows = work.rows(sql, of).await?;
    for row in rows {
        let mut left = former(work.operation(), &row.text(1)?)?;
        // Our own is taken too: that is how a lane is opened.
        left.retain(|registration| *registration != by && !taken.contains(registration));
        let of = params! { "id" => row.get::<i64>(0)?, "former" => former_text(&left) };
        let sql = "update posthaste_cursors set former = :former where id = :id";
        work.execute(sql, of).await?;
    }
    Ok(())
}
