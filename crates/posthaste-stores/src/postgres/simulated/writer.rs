//! Applications that write events.

use posthaste_engine::{Field, PageBuilder, StoreError, StoredEvent, StoredFields};
use uuid::Uuid;

use super::{Commit, server::Connection};

const OPERATION: &str = "write";
/// In the order of [`StoredFields::texts`].
const FIELDS: [Field; 9] = [
    Field::Topic,
    Field::Key,
    Field::Type,
    Field::ContentType,
    Field::CorrelationId,
    Field::CausationId,
    Field::TenantId,
    Field::Traceparent,
    Field::Tracestate,
];

/// An event to be written.
#[derive(Debug, Clone, Default)]
pub struct NewEvent {
    /// Id; none: the database gives one.
    pub id: Option<Uuid>,
    /// Topic.
    pub topic: String,
    /// Key of order.
    pub key: Option<String>,
    /// Type.
    pub event_type: Option<String>,
    /// Media type of the payload.
    pub content_type: Option<String>,
    /// Payload; none is a tombstone.
    pub payload: Option<Vec<u8>>,
    /// Headers in order.
    pub headers: Vec<(String, Option<String>)>,
    /// Writer's clock, microseconds since 1970-01-01 UTC; none: the database's.
    pub occurred_at: Option<i64>,
    /// Correlation id.
    pub correlation_id: Option<String>,
    /// Causation id.
    pub causation_id: Option<String>,
    /// Tenant.
    pub tenant_id: Option<String>,
    /// W3C trace context.
    pub traceparent: Option<String>,
    /// W3C trace context, the vendors' part.
    pub tracestate: Option<String>,
}

/// An open transaction of a writer; dropped without [`commit`](Self::commit) it rolls back. No call
/// waits: the caller decides what happens between them.
#[derive(Debug)]
pub struct Transaction {
    connection: Connection,
    xid: Option<u64>,
    /// What it wrote: `seq` and id.
    written: Vec<(i64, Uuid)>,
}

impl Transaction {
    pub(super) fn begin(connection: Connection) -> Self {
        Self {
            connection,
            xid: None,
            written: Vec::new(),
        }
    }

    /// Draws the transaction's number, as the first change of any table does. Others may draw
    /// theirs, and values of the sequence, before [`emit`](Self::emit) draws one.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] when the connection broke: the transaction is lost.
    pub fn number(&mut self) -> Result<(), StoreError> {
        let mut database = self.connection.database(OPERATION)?;
        if self.xid.is_none() {
            self.xid = Some(database.assign_xid());
        }
        Ok(())
    }

    /// Writes an event; answers its id. Numbers the transaction first, then draws the event's
    /// `seq`.
    ///
    /// # Errors
    /// As [`number`](Self::number).
    pub fn emit(&mut self, event: &NewEvent) -> Result<Uuid, StoreError> {
        self.number()?;
        let mut database = self.connection.database(OPERATION)?;
        let Some(xid) = self.xid else {
            return Err(bug("the transaction has no number".to_owned()));
        };
        let (seq, now) = (database.draw(), database.clock());
        let id = event.id.unwrap_or_else(|| database.new_id());
        let stored = stored(event, seq, id, now)?;
        database.insert(xid, stored);
        self.written.push((seq, id));
        Ok(id)
    }

    /// How many events were written so far: what [`rollback_to`](Self::rollback_to) takes.
    #[must_use]
    pub fn savepoint(&self) -> usize {
        self.written.len()
    }

    /// Takes back what was written behind the savepoint. The values of the sequence stay drawn.
    ///
    /// # Errors
    /// As [`number`](Self::number).
    pub fn rollback_to(&mut self, savepoint: usize) -> Result<(), StoreError> {
        let mut database = self.connection.database(OPERATION)?;
        for (seq, _) in self.written.drain(savepoint.min(self.written.len())..) {
            database.take_back(seq);
        }
        Ok(())
    }

    /// Commits durably.
    ///
    /// # Errors
    /// As [`number`](Self::number): nothing was committed.
    pub fn commit(self) -> Result<(), StoreError> {
        self.end(true)
    }

    /// Commits as with `synchronous_commit = off`: a crash before the next durable commit of
    /// anybody takes it back.
    ///
    /// # Errors
    /// As [`number`](Self::number): nothing was committed.
    pub fn commit_unflushed(self) -> Result<(), StoreError> {
        self.end(false)
    }

    fn end(mut self, durably: bool) -> Result<(), StoreError> {
        let mut database = self.connection.database(OPERATION)?;
        let Some(xid) = self.xid.take() else {
            return Ok(());
        };
        if !durably {
            database.keep_what_is_on_disk();
        }
        if !self.written.is_empty() {
            let events = std::mem::take(&mut self.written);
            let events = events.into_iter().map(|(_, id)| id).collect();
            database.note_commit(Commit { xid, events });
        }
        match durably {
            true => database.commit(xid),
            false => database.commit_unflushed(xid),
        }
        Ok(())
    }
}

impl Drop for Transaction {
    fn drop(&mut self) {
        let Ok(mut database) = self.connection.database(OPERATION) else {
            return;
        };
        if let Some(xid) = self.xid.take() {
            database.abort(xid);
        }
    }
}

fn bug(reason: String) -> StoreError {
    StoreError::Bug {
        operation: OPERATION,
        reason,
    }
}

/// As `posthaste.outbox` has it.
fn stored(event: &NewEvent, seq: i64, id: Uuid, now: i64) -> Result<StoredEvent, StoreError> {
    let hashed = event.key.clone().unwrap_or_else(|| id.to_string());
    let text = |field| match field {
        Field::Topic => Some(event.topic.as_str()),
        Field::Key => event.key.as_deref(),
        Field::Type => event.event_type.as_deref(),
        Field::ContentType => event.content_type.as_deref(),
        Field::CorrelationId => event.correlation_id.as_deref(),
        Field::CausationId => event.causation_id.as_deref(),
        Field::TenantId => event.tenant_id.as_deref(),
        Field::Traceparent => event.traceparent.as_deref(),
        Field::Tracestate => event.tracestate.as_deref(),
    };
    let fields = StoredFields {
        seq,
        id,
        occurred_at: event.occurred_at.unwrap_or(now),
        inserted_at: now,
        slot: posthaste::slot(&hashed),
        texts: FIELDS.map(text),
        payload: event.payload.as_deref(),
    };
    let headers = event.headers.iter();
    let headers = headers.map(|(name, value)| (name.as_str(), value.as_deref()));
    one(&fields, headers)
}

/// An event with a buffer of its own.
fn one<'a>(
    fields: &StoredFields<'a>,
    headers: impl Iterator<Item = (&'a str, Option<&'a str>)>,
) -> Result<StoredEvent, StoreError> {
    let mut page = PageBuilder::default();
    page.push(fields, headers)
        .map_err(|error| bug(error.to_string()))?;
    page.finish()
        .pop()
        .ok_or_else(|| bug("the page lost its event".to_owned()))
}

/// The same event, its payload erased.
pub(super) fn without_payload(event: &StoredEvent) -> Result<StoredEvent, StoreError> {
    let fields = StoredFields {
        seq: event.seq(),
        id: event.id(),
        occurred_at: event.occurred_at(),
        inserted_at: event.inserted_at(),
        slot: event.slot(),
        texts: FIELDS.map(|field| event.text(field)),
        payload: None,
    };
    one(&fields, event.headers())
}
