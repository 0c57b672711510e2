//! Reads: the snapshot comes first, then F, then the rows.

use async_trait::async_trait;
use posthaste_engine::{
    Budget, StoreError, StoredEvent,
    rule::{Rule, left_out},
};

use super::{
    database::Database,
    owner::Owner,
    server::{Connection, Server},
    tables::{OutboxRow, within},
};
use crate::postgres::{
    Grant,
    claim_connection::PageStatements,
    read::{Read, Scope},
    side_read::brings,
    sweep::{Answer, Request},
    types::Snapshot,
};

/// One read.
pub(super) struct Reading<'a> {
    pub(super) connection: &'a Connection,
    pub(super) grant: &'a Grant,
    pub(super) operation: &'static str,
    pub(super) request: &'a Request,
    pub(super) scope: Scope<'a>,
    pub(super) budget: Budget,
}

/// Holds the outbox: nothing is truncated.
struct Holding<'a>(&'a Server);

impl<'a> Holding<'a> {
    fn new(server: &'a Server, database: &mut Database) -> Self {
        database.reading += 1;
        Self(server)
    }
}

impl Drop for Holding<'_> {
    fn drop(&mut self) {
        self.0.lock().reading -= 1;
    }
}

/// `sql/poll.sql`, `sql/page.sql` or `sql/side_page.sql`, behind `sql/header.sql`.
pub(super) async fn read(reading: Reading<'_>) -> Result<Read, StoreError> {
    let Reading {
        connection,
        grant,
        operation,
        request,
        ..
    } = reading;
    let connection = &connection.pooled();
    let server = &*connection.server;
    server.step().await;
    let (snapshot, token, shares_version, holding) = {
        let mut database = connection.database(operation)?;
        let tables = &database.now.tables;
        let destination = tables.destinations.get(&grant.destination_id);
        let version = destination.map_or(0, |row| row.shares_version);
        let (token, snapshot) = (database.now.token, database.snapshot());
        let holding = Holding::new(server, &mut database);
        (snapshot, token, version, holding)
    };
    server.step().await;
    let sequence = connection.database(operation)?.sequence();
    server.step().await;
    let page = {
        let mut database = connection.database(operation)?;
        let page = page(&reading, &database, &snapshot, server.page_events);
        if let Request::Poll { floor, .. } = request {
            let late = request.start(&snapshot) < *floor;
            database.counters.stragglers += u64::from(late);
            database.counters.cut_differences += u64::from(page.more);
        }
        page
    };
    drop(holding);
    server.step().await;
    connection.live(operation)?;
    if token != Some(grant.token) && !left_out(Rule::IncarnationIsChecked) {
        return Err(StoreError::IncarnationChanged { operation });
    }
    let answer = Answer {
        snapshot,
        sequence,
        last_row: page.events.last().map(StoredEvent::seq),
        more: page.more,
    };
    Ok(Read {
        answer,
        events: page.events,
        shares_version,
    })
}

struct RowsRead {
    events: Vec<StoredEvent>,
    more: bool,
}

fn page(
    reading: &Reading<'_>,
    database: &Database,
    snapshot: &Snapshot,
    page_events: usize,
) -> RowsRead {
    let is_in_scope = |event: &StoredEvent| match &reading.scope {
        Scope::Main(slots) => within(*slots, event.slot()),
        Scope::Keys { keys, .. } => {
            let key = event.order_key();
            key.is_some_and(|key| keys.iter().any(|k| k == key))
        }
    };
    let (low, high) = match reading.request {
        Request::Poll { low, .. } => (low, None),
        Request::Page { low, high, .. } => (low, Some(high)),
    };
    let rests = matches!(reading.scope, Scope::Keys { rests: true, .. });
    let is_behind_its_marker = |row: &OutboxRow, event: &StoredEvent| {
        let (Scope::Keys { .. }, Some(key)) = (&reading.scope, event.order_key()) else {
            return true;
        };
        let of = (reading.grant.destination_id, key.to_owned());
        let marker = database.now.tables.markers.get(&of);
        let to = high.filter(|_| !rests).map(|high| &**high);
        marker.is_some_and(|marker| brings(&marker.position, to, row.xid, row.seq))
    };
    let is_meant = |row: &OutboxRow, event: &StoredEvent| {
        let xid = row.xid;
        snapshot.sees(xid)
            && !low.sees(xid)
            && high.is_none_or(|high| rests || high.sees(xid))
            && is_in_scope(event)
            && is_behind_its_marker(row, event)
    };
    let (first, last) = (reading.request.start(snapshot) + 1, reading.request.end());
    let mut found = RowsRead {
        events: Vec::new(),
        more: false,
    };
    if first > last {
        return found;
    }
    let events_max = reading.budget.events.clamp(1, page_events.max(1));
    let mut bytes = 0;
    for (_, row) in database.now.mvcc.rows.range(first..=last) {
        let event = row.event.clone().ordered_by(reading.grant.order_by);
        if !is_meant(row, &event) {
            continue;
        }
        bytes += event.footprint();
        let is_full = found.events.len() >= events_max || bytes > reading.budget.bytes;
        if is_full && !found.events.is_empty() {
            found.more = true;
            break;
        }
        found.events.push(event);
    }
    found
}

#[async_trait]
impl PageStatements for Owner {
    fn leaf_bits(&self) -> u8 {
        self.connection.server.leaf_bits
    }

    async fn read(
        &self,
        operation: &'static str,
        request: &Request,
        scope: Scope<'_>,
        budget: Budget,
    ) -> Result<Read, StoreError> {
        let reading = Reading {
            connection: &self.connection,
            grant: &self.grant,
            operation,
            request,
            scope,
            budget,
        };
        read(reading).await
    }

    /// Nobody hints.
    async fn hinted(&self) {
        std::future::pending().await
    }
}
