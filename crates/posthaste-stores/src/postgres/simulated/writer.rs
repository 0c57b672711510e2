//! Applications that write events.

use posthaste_engine::{StoreError, memory_tables::NewEvent};
use uuid::Uuid;

use super::{Commit, server::Connection};

const OPERATION: &str = "write";
/// An open transaction of a writer; dropped without [`commit`](Self::commit) it rolls back. No call
/// waits: the caller decides what happens between them.
#[derive(Debug)]
pub struct Transaction {
    connection: Connection,
    xid: Option<u64>,
    /// The events that it wrote: `seq` and id.
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
        let stored = event.stored(seq, id, now, posthaste::slot)?;
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
