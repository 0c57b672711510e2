//! Storing where a claim stands.

use async_trait::async_trait;
use posthaste_engine::StoreError;
use tokio_postgres::{
    error::SqlState,
    types::{ToSql, Type},
};

use super::{
    claim_connection::ProgressStatements,
    error::classify,
    read_plan::Stored,
    server_connection::{ServerConnection, guarded},
    types::Snapshot,
};

const ADVANCE_MERGING: &str = include_str!("sql/advance_merging.sql");
const OPERATION: &str = "advance";

/// Each lost race means that somebody cut the partitions anew.
const RACES_MAX: u32 = 8;

/// Places of several rows, an element a row.
#[derive(Default)]
struct Places<'a> {
    ids: Vec<i64>,
    lows: Vec<&'a Snapshot>,
    highs: Vec<Option<&'a Snapshot>>,
    seqs: Vec<Option<i64>>,
    floors: Vec<i64>,
    floor_mins: Vec<i64>,
}

#[async_trait]
impl ProgressStatements for ServerConnection {
    async fn store_one(&self, stored: &Stored) -> Result<(), StoreError> {
        let (grant, position) = (&self.grant, &stored.advance.position);
        let (high, seq) = position.within.as_ref().map(|(h, s)| (&**h, *s)).unzip();
        let params: Vec<&(dyn ToSql + Sync)> = vec![
            &grant.destination_id,
            &grant.cursor_id,
            &grant.epoch,
            &grant.registration,
            &grant.token,
            &*position.low,
            &high,
            &seq,
            &position.floors.floor,
            &position.floors.floor_min,
        ];
        let failed = |error| classify(OPERATION, error);
        let mut place = self.advance.place.lock().await;
        if let Some(known) = place.take() {
            let mut there = params.clone();
            there.push(&known);
            let moved = self.writer.change(&self.advance.there, &there).await;
            *place = moved.map_err(failed)?.map(|row| row.get("place"));
        }
        if place.is_none() {
            let moved = self.writer.change(&self.advance.anywhere, &params).await;
            *place = moved.map_err(failed)?.map(|row| row.get("place"));
        }
        match *place {
            Some(_) => Ok(()),
            None => Err(self.refused(OPERATION).await),
        }
    }

    async fn store_several(&self, stored: &Stored) -> Result<(), StoreError> {
        let mut places = Places::default();
        for (id, position) in &stored.places {
            let (high, seq) = position.within.as_ref().map(|(h, s)| (&**h, *s)).unzip();
            places.ids.push(*id);
            places.lows.push(&position.low);
            places.highs.push(high);
            places.seqs.push(seq);
            places.floors.push(position.floors.floor);
            places.floor_mins.push(position.floors.floor_min);
        }
        let (gone, rest): (Vec<i64>, Vec<i64>) = stored.merged.iter().copied().unzip();
        let params = self.grant.guard(&[
            (&places.ids, Type::INT8_ARRAY),
            (&places.lows, Type::PG_SNAPSHOT_ARRAY),
            (&places.highs, Type::PG_SNAPSHOT_ARRAY),
            (&places.seqs, Type::INT8_ARRAY),
            (&places.floors, Type::INT8_ARRAY),
            (&places.floor_mins, Type::INT8_ARRAY),
            (&gone, Type::INT8_ARRAY),
            (&rest, Type::INT8_ARRAY),
        ]);
        let statement = guarded(ADVANCE_MERGING);
        for _ in 1..RACES_MAX {
            let row = self.writer.query_typed_one(&statement, &params).await;
            match row {
                Ok(row) if row.get("guarded") => return Ok(()),
                Ok(_) => return Err(self.refused(OPERATION).await),
                // Somebody cut the partitions anew while we waited for the row, and this statement
                // did not see the new ones: nothing was changed.
                Err(error) if error.code() == Some(&SqlState::FOREIGN_KEY_VIOLATION) => {}
                Err(error) => return Err(classify(OPERATION, error)),
            }
        }
        Err(StoreError::Unavailable {
            operation: OPERATION,
            reason: "the partitions are cut anew all the time".to_owned(),
            source: None,
        })
    }
}
