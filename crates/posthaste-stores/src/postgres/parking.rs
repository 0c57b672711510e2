//! Parked events and their attempts.

use std::sync::LazyLock;

use async_trait::async_trait;
use posthaste_engine::{
    ClaimParking, Due, DueAt, EventRef, OrderBy, PageBuilder, ParkedCopy, Parking, PutOff,
    SetAside, Settlement, StoreError, StoredEvent,
};
use tokio_postgres::{Row, types::Type};

use super::{
    claimed::PostgresClaimed,
    client::{Rows, Typed},
    error::classify,
    markers::Places,
    micros::{from_micros, micros},
    ordering::with_order,
    prepared::{PUT_OFF, PUT_OFF_TYPES},
    read::push,
    server_connection::ServerConnection,
    side_read::marker_at,
};

/// Parked events that one statement goes through: there may be millions, and it has its time.
pub(super) const PARKED_AT_ONCE: i64 = 10_000;

const SET_ASIDE: &str = include_str!("sql/set_aside.sql");
static PARK: LazyLock<String> = LazyLock::new(|| with_order(include_str!("sql/park.sql")));
const SETTLE: &str = include_str!("sql/settle.sql");

/// Parked events that are held in memory at once; one comes whatever its size.
const DUE_BYTES_MAX: usize = 8 * 1024 * 1024;

/// The arrays of one park statement, an element an event.
#[derive(Default)]
struct Columns<'a> {
    seqs: Vec<i64>,
    ids: Vec<uuid::Uuid>,
    attempts: Vec<i32>,
    kinds: Vec<&'a str>,
    reasons: Vec<&'a str>,
    retries: Vec<Option<i64>>,
    states: Vec<&'static str>,
    places: Places,
}

fn whole(number: u32) -> i32 {
    i32::try_from(number).unwrap_or(i32::MAX)
}

#[async_trait]
impl ClaimParking for PostgresClaimed<ServerConnection> {
    async fn set_aside(&self) -> Result<SetAside, StoreError> {
        let grant = &self.connection.grant;
        let (mask, shift) = self.connection.slots();
        let rows = self
            .connection
            .writer
            .query_typed(
                SET_ASIDE,
                &[
                    (&grant.destination_id, Type::INT8),
                    (&mask, Type::BYTEA),
                    (&shift, Type::INT4),
                    (&grant.epoch, Type::INT8),
                    (&grant.registration, Type::UUID),
                ],
            )
            .await
            .map_err(|error| classify("read what is set aside", error))?;
        let mut set_aside = SetAside::default();
        for row in &rows {
            match row.get::<_, Option<i64>>("put_off_alone") {
                Some(count) => {
                    set_aside.put_off_alone = usize::try_from(count).unwrap_or(usize::MAX)
                }
                None => set_aside.again.push(EventRef {
                    seq: row.get("seq"),
                    id: row.get("event_id"),
                }),
            }
        }
        Ok(set_aside)
    }

    async fn park(&self, events: &[Parking]) -> Result<(), StoreError> {
        const OPERATION: &str = "park";
        let mut columns = Columns::default();
        for parking in events {
            let at = marker_at(OPERATION, &parking.at, parking.event.order_key())?;
            columns.seqs.push(parking.event.seq());
            columns.ids.push(parking.event.id());
            columns.attempts.push(whole(parking.attempts));
            columns.kinds.push(parking.kind);
            columns.reasons.push(&parking.reason);
            columns.retries.push(parking.next.retry_in().map(micros));
            columns.states.push(parking.next.state().as_str());
            columns.places.push(&at);
        }
        let by_topic = self.connection.grant.order_by == OrderBy::KeyAndTopic;
        let mut params: Vec<Typed<'_>> = vec![
            (&by_topic, Type::BOOL),
            (&columns.seqs, Type::INT8_ARRAY),
            (&columns.ids, Type::UUID_ARRAY),
            (&columns.attempts, Type::INT4_ARRAY),
            (&columns.kinds, Type::TEXT_ARRAY),
            (&columns.reasons, Type::TEXT_ARRAY),
            (&columns.retries, Type::INT8_ARRAY),
            (&columns.states, Type::TEXT_ARRAY),
        ];
        params.extend(columns.places.params());
        let row = self.connection.change(OPERATION, &PARK, &params).await?;
        if row.get::<_, bool>("complete") {
            return Ok(());
        }
        Err(StoreError::Bug {
            operation: OPERATION,
            reason: "an event that the cursor has not passed is gone from posthaste.outbox"
                .to_owned(),
        })
    }

    async fn due(&self, limit: usize) -> Result<Due, StoreError> {
        const OPERATION: &str = "read what is due";
        let failed = |error| classify(OPERATION, error);
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let (mask, shift) = self.connection.slots();
        let rows = self
            .connection
            .writer
            .read(
                &self.connection.due,
                &[&self.connection.grant.destination_id, &limit, &mask, &shift],
            )
            .await;
        let mut rows = rows.map_err(failed)?;
        let header = rows.next().await.map_err(failed)?;
        let header = header.ok_or_else(|| bug(OPERATION, "the answer has no header".to_owned()))?;
        let next_in: Option<i64> = header.try_get("seq").map_err(failed)?;
        let order_by = self.connection.grant.order_by;
        let copies = copies(OPERATION, order_by, rows, |_| Ok(())).await?;
        Ok(Due {
            released: header.try_get("headers").map_err(failed)?,
            next_in: next_in.map(from_micros),
            events: copies.into_iter().map(|((), copy)| copy).collect(),
        })
    }

    async fn put_off(&self, after: Option<DueAt>, limit: usize) -> Result<Vec<PutOff>, StoreError> {
        const OPERATION: &str = "read what was put off";
        let failed = |error| classify(OPERATION, error);
        let at_most = i64::try_from(limit).unwrap_or(i64::MAX);
        let (mask, shift) = self.connection.slots();
        let (due_at, id) = after.map(|DueAt(due_at, id)| (due_at, id)).unzip();
        let writer = &self.connection.writer;
        let statement = writer.prepare(PUT_OFF.to_owned(), &PUT_OFF_TYPES).await;
        let of = &self.connection.grant.destination_id;
        let rows = writer
            .read(
                &statement.map_err(failed)?,
                &[of, &at_most, &mask, &shift, &due_at, &id],
            )
            .await;
        let due_at = |row: &Row| row.try_get::<_, i64>("due_at");
        let order_by = self.connection.grant.order_by;
        let copies = copies(OPERATION, order_by, rows.map_err(failed)?, due_at).await?;
        let put_off = |(due_at, copy): (i64, ParkedCopy)| PutOff {
            at: DueAt(due_at, copy.id),
            copy,
        };
        Ok(copies.into_iter().map(put_off).collect())
    }

    async fn settle(&self, id: i64, settlement: &Settlement) -> Result<(), StoreError> {
        let attempted = settlement.attempted();
        self.connection
            .change(
                "settle",
                SETTLE,
                &[
                    (&id, Type::INT8),
                    (&attempted.state.as_str(), Type::TEXT),
                    (&attempted.kind, Type::TEXT),
                    (&attempted.reason, Type::TEXT),
                    (&attempted.retry_in.map(micros), Type::INT8),
                    (&attempted.counts, Type::BOOL),
                ],
            )
            .await
            .map(drop)
    }
}

/// The copies in these rows, as many as fit, with what else of their rows is asked for.
async fn copies<T>(
    operation: &'static str,
    order_by: OrderBy,
    mut rows: Rows<'_>,
    also: impl Fn(&Row) -> Result<T, tokio_postgres::Error>,
) -> Result<Vec<(T, ParkedCopy)>, StoreError> {
    let failed = |error| classify(operation, error);
    let mut page = PageBuilder::default().ordered_by(order_by).of_copies();
    let mut copies = Vec::new();
    while let Some(row) = rows.next().await.map_err(failed)? {
        if !page.is_empty() && page.bytes() + row.raw_size_bytes() > DUE_BYTES_MAX {
            break;
        }
        push(&mut page, &row).map_err(|reason| {
            bug(
                operation,
                format!("a parked event cannot be read: {reason}"),
            )
        })?;
        let attempts: i32 = row.get("attempts");
        let (id, holds_key, never_tried): (i64, bool, bool) =
            (row.get("id"), row.get("holds_key"), row.get("never_tried"));
        let also = also(&row).map_err(failed)?;
        copies.push(move |event: StoredEvent| {
            let copy = ParkedCopy {
                id,
                event,
                attempts: u32::try_from(attempts).unwrap_or(0),
                holds_key,
                never_tried,
            };
            (also, copy)
        });
    }
    let copies = copies.into_iter().zip(page.finish());
    Ok(copies.map(|(copy, event)| copy(event)).collect())
}

fn bug(operation: &'static str, reason: String) -> StoreError {
    StoreError::Bug { operation, reason }
}
