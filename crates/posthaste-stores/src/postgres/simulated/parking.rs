//! Parked events and their attempts.

use async_trait::async_trait;
use posthaste_engine::{
    ClaimParking, Due, DueAt, EventRef, Parking, PutOff, SetAside, Settlement, StoreError,
};

use super::owner::Owner;
use crate::postgres::{claimed::PostgresClaimed, side_read::marker_at};

#[async_trait]
impl ClaimParking for PostgresClaimed<Owner> {
    async fn set_aside(&self) -> Result<SetAside, StoreError> {
        let owner = &self.connection;
        let look = owner.connection.look("read what is set aside", |database| {
            let (tables, claim) = (&database.now.tables, owner.grant.row());
            let ours = tables.cursors_of_claim(&claim);
            let passed = ours.map(|(_, row)| row.position.floors.floor_min).min();
            tables.set_aside(claim.destination_id, passed, |slot| owner.owns(slot))
        });
        look.await
    }

    /// `sql/park.sql`.
    async fn park(&self, events: &[Parking]) -> Result<(), StoreError> {
        const OPERATION: &str = "park";
        let mut parked = Vec::new();
        for parking in events {
            let at = marker_at(OPERATION, &parking.at, parking.event.order_key())?;
            parked.push((parking.clone(), at));
        }
        let change = self.connection.change(OPERATION, move |database, grant| {
            // The copy is made from the row itself: all or none.
            let is_there = |event: EventRef| {
                let row = database.now.mvcc.rows.get(&event.seq);
                row.is_some_and(|row| row.event.id() == event.id)
            };
            if !parked
                .iter()
                .all(|(parking, _)| is_there(parking.event.reference()))
            {
                return Err(StoreError::Bug {
                    operation: OPERATION,
                    reason: "an event that the cursor has not passed is gone from posthaste.outbox"
                        .to_owned(),
                });
            }
            let now = database.clock();
            for (parking, at) in parked {
                database.now.tables.park(grant.of(), parking, at, now);
            }
            Ok(())
        });
        change.await
    }

    async fn due(&self, limit: usize) -> Result<Due, StoreError> {
        let owner = &self.connection;
        let look = owner.connection.look("read what is due", |database| {
            let (id, now) = (owner.grant.destination_id, database.clock());
            let tables = &database.now.tables;
            tables.due(id, |slot| owner.owns(slot), limit, now)
        });
        look.await
    }

    async fn put_off(&self, after: Option<DueAt>, limit: usize) -> Result<Vec<PutOff>, StoreError> {
        let owner = &self.connection;
        let look = owner.connection.look("read what was put off", |database| {
            let (id, now) = (owner.grant.destination_id, database.clock());
            let tables = &database.now.tables;
            tables.put_off(id, |slot| owner.owns(slot), after, limit, now)
        });
        look.await
    }

    async fn settle(&self, copy: i64, settlement: &Settlement) -> Result<(), StoreError> {
        let settlement = settlement.clone();
        let change = self.connection.change("settle", move |database, grant| {
            let now = database.clock();
            let tables = &mut database.now.tables;
            tables.settle(grant.of(), copy, &settlement, now);
            Ok(())
        });
        change.await
    }
}
