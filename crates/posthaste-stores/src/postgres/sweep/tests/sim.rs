//! A deterministic multi-version database with one outbox, and a relay that sweeps it by the real
//! state machine, with rules that a test may leave out.

use super::*;
use crate::postgres::mvcc::{Mvcc, Row};
use std::collections::{HashMap, HashSet};

#[derive(Debug, Clone)]
pub(super) struct Event {
    key: u32,
    pub(super) id: u32,
    /// The row's own column, by which places compare it. A copied row, or one of an ended era, is
    /// of another server's transaction: here it is visible to all.
    xid: u64,
}

/// The number of a transaction that every snapshot sees.
const FROZEN: u64 = 0;

#[derive(Debug)]
pub(super) struct Db {
    mvcc: Mvcc<Event>,
    stored: Position,
    /// A crash goes back to this: the next transaction, the sequence's value, the stored place.
    flushed: (u64, i64, Position),
    pub(super) token: u32,
    next_id: u32,
    /// Events in the order of their commits, by key.
    pub(super) committed: Vec<(u32, u32)>,
    /// How much too high the sequence's value is read.
    pub(super) bias: i64,
}

impl Db {
    fn new() -> Self {
        let stored = Position {
            low: Arc::new(Snapshot::empty()),
            within: None,
            floors: Floors {
                floor: 0,
                floor_min: 0,
            },
        };
        Self {
            mvcc: Mvcc::default(),
            flushed: (1, 0, stored.clone()),
            stored,
            token: 0,
            next_id: 0,
            committed: Vec::new(),
            bias: 0,
        }
    }

    pub(super) fn begin(&mut self) -> u64 {
        self.mvcc.begin()
    }

    pub(super) fn draw(&mut self) -> i64 {
        self.mvcc.draw()
    }

    pub(super) fn insert_with(&mut self, xid: u64, seq: i64, key: u32) {
        let id = self.next_id;
        self.next_id += 1;
        self.mvcc.insert(xid, seq, Event { key, id, xid });
    }

    pub(super) fn insert(&mut self, xid: u64, key: u32) {
        let seq = self.draw();
        self.insert_with(xid, seq, key);
    }

    fn flush(&mut self) {
        let stored = self.stored.clone();
        self.flushed = (self.mvcc.next_xid(), self.mvcc.sequence, stored);
    }

    /// A commit flushes everything before it.
    pub(super) fn commit(&mut self, xid: u64) {
        let own = self.mvcc.rows.values().filter(|row| row.xid == xid);
        let own = own.map(|row| (row.event.key, row.event.id));
        self.committed.extend(own);
        self.mvcc.complete(xid);
        self.flush();
    }

    /// Visible, but lost in a crash; for statements of the relay only.
    pub(super) fn commit_unflushed(&mut self, xid: u64) {
        self.mvcc.complete(xid);
    }

    pub(super) fn abort(&mut self, xid: u64) {
        self.mvcc.abort(xid);
    }

    /// Back to what was flushed: numbers that only lost transactions used are issued again.
    pub(super) fn crash(&mut self) {
        let (next_xid, sequence, stored) = self.flushed.clone();
        self.mvcc.restart(next_xid, sequence);
        self.stored = stored;
        self.token += 1;
    }

    /// A copy, on a server whose counter of transactions stands elsewhere.
    pub(super) fn copy(&mut self, next_xid: u64) {
        self.mvcc.restart(next_xid, self.mvcc.sequence);
        self.end_era();
    }

    fn end_era(&mut self) {
        for row in self.mvcc.rows.values_mut() {
            row.xid = FROZEN;
        }
        self.flush();
        self.token += 1;
    }

    /// As `sql/era_cursors.sql` and `sql/era_begin.sql`.
    pub(super) fn begin_era(&mut self) {
        let Position {
            low,
            within,
            floors,
        } = &self.stored;
        let passed = |row: &Row<Event>| {
            let xid = row.event.xid;
            let in_high = |(high, seq): &(Arc<Snapshot>, i64)| row.seq <= *seq && high.sees(xid);
            row.seq <= floors.floor_min || low.sees(xid) || within.as_ref().is_some_and(in_high)
        };
        let known = floors.floor.max(within.as_ref().map_or(0, |(_, seq)| *seq));
        let rows = self.mvcc.rows.values();
        let unfinished = rows.filter(|row| row.seq <= known && !passed(row));
        let start = unfinished.map(|row| row.seq - 1).min().unwrap_or(known);
        let everything = Arc::new(Snapshot::everything());
        self.stored = Position {
            low: Arc::new(Snapshot::empty()),
            within: Some((everything, start)),
            floors: Floors {
                floor: self.mvcc.sequence,
                floor_min: start,
            },
        };
        self.end_era();
    }

    pub(super) fn snapshot(&self) -> Snapshot {
        self.mvcc.visible()
    }

    pub(super) fn sequence(&self) -> i64 {
        self.mvcc.sequence + self.bias
    }

    pub(super) fn store(&mut self, position: &Position) {
        self.stored = position.clone();
    }

    pub(super) fn stored(&self) -> Position {
        self.stored.clone()
    }

    /// Removes the rows that retention may take away.
    pub(super) fn truncate(&mut self) {
        let floor = self.stored.floors.floor_min;
        self.mvcc.rows.retain(|seq, _| *seq > floor);
    }

    /// The rows of a read whose snapshot was taken earlier, in the order in which they are sent.
    fn rows(&self, request: &Request, snapshot: &Snapshot, apart: bool) -> Vec<Row<Event>> {
        let taken = |row: &&Row<Event>| match request {
            Request::Poll { low, .. } => {
                let is_new = !low.sees(row.event.xid) && snapshot.sees(row.xid);
                is_new && row.seq > request.start(snapshot)
            }
            Request::Page { .. } => request.takes(snapshot, row.event.xid, row.seq),
        };
        let mut rows: Vec<_> = self.mvcc.committed().filter(taken).cloned().collect();
        if let (true, Request::Poll { stragglers, .. }) = (apart, request) {
            rows.sort_by_key(|row| stragglers.0.contains(&Xid8(row.xid)));
        }
        rows
    }
}

/// The rule that is left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Naive {
    UnprovenFloor,
    StragglerTakesNewFloor,
    PageWithItsOwnSnapshot,
    ProofAtTheAnswer,
    ProofAtTheEnd,
    SequenceReadByTheAdvance,
    ProofWithoutTransaction,
    RestartGivesStragglersTheFloor,
    FloorMinWithoutStragglers,
    StoresFloorOfHigh,
    StoresFloorMinOfHigh,
    FinishedStragglerOnePollLate,
    StragglersApart,
    EndOfAnEarlierPoll,
    ShortPageIsTheEnd,
    NoToken,
    TokenReadLater,
    ClaimProvesWhatItReads,
    CopyWithoutEra,
}

#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Rules(pub(super) Option<Naive>);

impl Rules {
    fn without(self, naive: Naive) -> bool {
        self.0 == Some(naive)
    }
}

#[derive(Debug)]
pub(super) struct Sent {
    request: Request,
    snapshot: Snapshot,
    token: u32,
}

/// A relay on a database.
#[derive(Debug)]
pub(super) struct Trial {
    pub(super) db: Db,
    pub(super) sweep: Sweep,
    pub(super) place: Option<Arc<Place>>,
    pub(super) page_size: usize,
    pub(super) bits: u8,
    rules: Rules,
    token: u32,
    earlier_sequence: i64,
    /// First deliveries in their order.
    delivered: Vec<(u32, u32)>,
    seen: HashSet<u32>,
}

impl Trial {
    pub(super) fn new(rules: Rules) -> Self {
        let db = Db::new();
        let sweep = Sweep::restore(10, &db.stored(), 0);
        Self {
            db,
            sweep,
            place: None,
            page_size: 100,
            bits: 10,
            rules,
            token: 0,
            earlier_sequence: 0,
            delivered: Vec::new(),
            seen: HashSet::new(),
        }
    }

    pub(super) fn send(&mut self) -> Sent {
        let snapshot = self.db.snapshot();
        if self.rules.without(Naive::PageWithItsOwnSnapshot)
            && let Some(difference) = &mut self.sweep.difference
        {
            difference.high = Arc::new(snapshot.clone());
        }
        let mut request = self.sweep.request();
        if let Request::Poll { stragglers, .. } = &mut request
            && self.rules.without(Naive::FinishedStragglerOnePollLate)
        {
            *stragglers = (Vec::new(), Vec::new());
        }
        Sent {
            request,
            snapshot,
            token: self.db.token,
        }
    }

    /// The answer comes: F and the rows are read now.
    pub(super) fn take(&mut self, sent: Sent) {
        let Sent {
            mut request,
            snapshot,
            token,
        } = sent;
        if token != self.db.token {
            // The connection broke in the crash.
            self.drop_memory();
            return;
        }
        if token != self.token && !self.rules.without(Naive::NoToken) {
            self.drop_memory();
            return;
        }
        let apart = self.rules.without(Naive::StragglersApart);
        let mut rows = self.db.rows(&request, &snapshot, apart);
        let more = rows.len() > self.page_size;
        rows.truncate(self.page_size);
        let sequence = self.db.sequence();
        self.leave_out_before(&mut request, sequence, more);
        let before: HashMap<u64, i64> = self.sweep.stragglers.clone().into_iter().collect();
        let answer = Answer {
            snapshot,
            sequence,
            last_row: rows.iter().map(|row| row.seq).max(),
            more,
        };
        let was_poll = matches!(request, Request::Poll { .. });
        let Ok(step) = self.sweep.answer(request, answer) else {
            // A naive variant that read too high a value before may see it fall.
            return;
        };
        if self.rules.without(Naive::StragglerTakesNewFloor) && self.sweep.difference.is_none() {
            let floor = self.sweep.floor;
            for (xid, own) in &mut self.sweep.stragglers {
                if !before.contains_key(xid) {
                    *own = floor;
                }
            }
        }
        if was_poll
            && self.rules.without(Naive::EndOfAnEarlierPoll)
            && let Some(difference) = &mut self.sweep.difference
        {
            difference.end = Some(self.earlier_sequence);
        }
        self.earlier_sequence = sequence;
        self.place = Some(step.place);
        for row in rows {
            let Event { key, id, .. } = row.event;
            if self.seen.insert(id) {
                self.delivered.push((key, id));
            }
        }
    }

    fn leave_out_before(&mut self, request: &mut Request, sequence: i64, more: bool) {
        let proven = self.sweep.proven;
        match (request, self.rules.0) {
            (Request::Poll { owned, .. }, Some(Naive::UnprovenFloor)) => *owned = sequence,
            (Request::Poll { owned, .. }, Some(Naive::ProofAtTheAnswer)) => *owned = proven,
            (Request::Page { .. }, Some(Naive::ProofAtTheEnd)) => {
                if let Some(difference) = &mut self.sweep.difference {
                    difference.owned = proven;
                }
            }
            (Request::Page { until, .. }, Some(Naive::ShortPageIsTheEnd)) if !more => {
                if let Some(difference) = &mut self.sweep.difference {
                    difference.end = Some(*until);
                }
            }
            _ => {}
        }
    }

    pub(super) fn poll(&mut self) {
        let sent = self.send();
        self.take(sent);
    }

    pub(super) fn advance_send(&self) -> Option<Advance> {
        let mut advance = self.sweep.advance(self.place.as_ref()?, None)?;
        let floors = &mut advance.position.floors;
        if let (Some(difference), true) =
            (&self.sweep.difference, advance.position.within.is_some())
        {
            if self.rules.without(Naive::StoresFloorOfHigh) {
                floors.floor = difference.owned;
            }
            if self.rules.without(Naive::StoresFloorMinOfHigh) {
                floors.floor_min = difference.owned;
            }
        }
        if self.rules.without(Naive::FloorMinWithoutStragglers) {
            floors.floor_min = floors.floor;
        }
        Some(advance)
    }

    /// The statement gets its transaction number. None: the guard refuses it.
    pub(super) fn advance_begin(&mut self) -> Option<u64> {
        let ours = self.token == self.db.token || self.rules.without(Naive::NoToken);
        let without = self.rules.without(Naive::ProofWithoutTransaction);
        (ours && !without).then(|| self.db.begin())
    }

    pub(super) fn advance_commit(&mut self, advance: &mut Advance, xid: u64) {
        if self.rules.without(Naive::SequenceReadByTheAdvance) {
            advance.proves = self.db.sequence();
        }
        self.db.store(&advance.position);
        self.db.commit(xid);
    }

    pub(super) fn advance(&mut self) {
        let Some(mut advance) = self.advance_send() else {
            return;
        };
        match self.advance_begin() {
            Some(xid) => self.advance_commit(&mut advance, xid),
            None if self.rules.without(Naive::ProofWithoutTransaction) => {}
            None => return self.drop_memory(),
        }
        self.sweep.advanced(&advance);
    }

    /// An advance that is visible but not flushed.
    pub(super) fn advance_unflushed(&mut self) {
        let advance = self.advance_send().unwrap();
        let xid = self.db.begin();
        self.db.store(&advance.position);
        self.db.commit_unflushed(xid);
        self.sweep.advanced(&advance);
    }

    /// Begins anew from the stored row, without the proof that a claim gives.
    pub(super) fn restart(&mut self, proven: i64) {
        let stored = self.db.stored();
        self.sweep = Sweep::restore(self.bits, &stored, proven);
        if self.rules.without(Naive::RestartGivesStragglersTheFloor) {
            for own in self.sweep.stragglers.values_mut() {
                *own = stored.floors.floor;
            }
        }
        self.place = None;
        self.token = self.db.token;
    }

    /// Goes on with a copy of the database.
    pub(super) fn begin_era(&mut self) {
        if !self.rules.without(Naive::CopyWithoutEra) {
            self.db.begin_era();
        }
    }

    fn drop_memory(&mut self) {
        self.restart(0);
    }

    /// A claim: F is received, then the claim's own transaction commits and is answered.
    pub(super) fn claim(&mut self) {
        let received = self.db.sequence();
        let xid = self.claim_begin();
        self.claim_end(xid, received);
    }

    pub(super) fn claim_begin(&mut self) -> u64 {
        self.db.begin()
    }

    pub(super) fn claim_end(&mut self, xid: u64, received: i64) {
        let own = self.db.sequence();
        self.db.commit(xid);
        let naive = self.rules.without(Naive::ClaimProvesWhatItReads);
        self.restart(if naive { own } else { received });
    }

    /// Loads the cursor; the token is adopted by [`Self::adopt`], later.
    pub(super) fn load(&mut self) {
        let token = self.token;
        self.restart(0);
        if self.rules.without(Naive::TokenReadLater) {
            self.token = token;
        }
    }

    pub(super) fn adopt(&mut self) {
        if self.rules.without(Naive::TokenReadLater) {
            self.token = self.db.token;
        }
    }

    /// Polls and advances until nothing comes any more.
    pub(super) fn drain(&mut self) {
        let mut quiet = 0;
        while quiet < 4 {
            let before = self.delivered.len();
            let in_difference = self.sweep.difference.is_some();
            self.poll();
            self.advance();
            let idle = self.delivered.len() == before && !in_difference;
            quiet = if idle { quiet + 1 } else { 0 };
        }
    }

    /// The promises: nothing lost, nothing invented, each key in the order of its commits.
    pub(super) fn verdict(&mut self) -> Result<(), String> {
        self.drain();
        let delivered: HashSet<u32> = self.delivered.iter().map(|(_, id)| *id).collect();
        let committed: HashSet<u32> = self.db.committed.iter().map(|(_, id)| *id).collect();
        if let Some(lost) = committed.difference(&delivered).next() {
            return Err(format!("event {lost} is lost"));
        }
        if let Some(phantom) = delivered.difference(&committed).next() {
            return Err(format!("event {phantom} never committed"));
        }
        let of_key = |log: &[(u32, u32)], key| -> Vec<u32> {
            log.iter()
                .filter(|(k, _)| *k == key)
                .map(|(_, id)| *id)
                .collect()
        };
        let keys: HashSet<u32> = self.delivered.iter().map(|(key, _)| *key).collect();
        for key in keys {
            if of_key(&self.delivered, key) != of_key(&self.db.committed, key) {
                return Err(format!("key {key} is inverted"));
            }
        }
        Ok(())
    }
}
