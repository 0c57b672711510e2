//! One destination under load in virtual time, with the default limits: writers that go on, a store
//! that answers at once, and a broker that answers each event after a while.
//!
//! Checked at each delivery: events of a key come in order, and none comes twice.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet, BinaryHeap, HashMap, HashSet, VecDeque},
};

use posthaste_engine::{Budget, DueAt, FailedKeys, PutOff, StoredEvent, was_put_off};

use super::*;

/// The relay's default limits.
pub(super) const LIMITS: PipelineLimits = PipelineLimits {
    window_events: 10_000,
    window_bytes: 8 << 20,
    batch_events: 1_000,
    batch_bytes: 1 << 20,
    retry: Backoff {
        first: Duration::from_secs(1),
        max: Duration::from_secs(300),
        jitter: 0.25,
    },
    probe: PROBES,
    blocked_keys_max: 10_000,
    blocked_keys_kept: 10_000,
    rejections_max: 100,
    advance_every: Duration::from_millis(100),
    settle: Duration::from_millis(2_500),
    poll_busy: Duration::from_millis(2),
    poll_idle: Duration::from_millis(700),
    due_every: Duration::from_secs(5),
};

/// How long a lane waits for an answer: the relay's default.
pub(super) const PUBLISH_TIMEOUT: Duration = Duration::from_secs(5);

/// A broker's answer to an event, and how long it takes.
pub(super) type Answer = (Duration, Outcome);

/// An event to be written: its topic and key.
pub(super) type Written = (&'static str, Option<String>);

/// A parked copy of the event with this number.
struct Row {
    seq: i64,
    attempts: u32,
    due_at: Moment,
    was_put_off: bool,
}

/// A side read: the keys, and how far it has come.
struct SideOf {
    keys: HashSet<String>,
    at: i64,
}

/// The most that there ever was.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Peak {
    /// Events read and not behind the stored cursor, and their bytes.
    pub(super) unstored: usize,
    pub(super) unstored_bytes: usize,
    pub(super) parked_rows: usize,
    pub(super) markers: usize,
}

/// Statements so far, by kind.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Statements {
    pub(super) reads: usize,
    pub(super) side_steps: usize,
    pub(super) parks: usize,
    pub(super) settlements: usize,
    pub(super) advances: usize,
    pub(super) reports: usize,
    pub(super) dues: usize,
    pub(super) put_offs: usize,
    /// Copies that were inserted.
    pub(super) rows: usize,
}

/// The answers that are on their way.
#[derive(Default)]
struct Sent {
    verdicts: BTreeMap<(Moment, u64), (Verdict, u64, StoredEvent)>,
    number: u64,
    failed: FailedKeys,
    seen: u64,
}

pub(super) struct Flow {
    pub(super) pipeline: Pipeline,
    pub(super) now: Moment,
    order: KeyOrder,
    log: Vec<(Written, Moment)>,
    by_key: HashMap<String, Vec<i64>>,
    read_to: i64,
    cursor: i64,
    sizes: VecDeque<(i64, usize)>,
    unstored_bytes: usize,
    markers: BTreeMap<String, i64>,
    rows: BTreeMap<i64, Row>,
    /// The rows by when they are due.
    due: BTreeSet<(Moment, i64)>,
    /// The keys with a marker that no row holds.
    free: BTreeSet<String>,
    next_row: i64,
    side: Option<SideOf>,
    sent: Sent,
    delivered: Vec<bool>,
    last_of_key: HashMap<String, i64>,
    pub(super) peak: Peak,
    pub(super) statements: Statements,
    /// Delivered events by their index, and how long each waited.
    waits: Vec<(usize, Duration)>,
}

fn place(cursor: &Cursor) -> i64 {
    let of_page = || cursor.base::<i64>().copied();
    cursor.seq().or_else(of_page).unwrap()
}

impl Flow {
    pub(super) fn new(limits: PipelineLimits, order: KeyOrder) -> Self {
        Self {
            pipeline: pipeline_within(limits, order, &[]),
            now: Moment(Duration::from_secs(1)),
            order,
            log: Vec::new(),
            by_key: HashMap::new(),
            read_to: 0,
            cursor: 0,
            sizes: VecDeque::new(),
            unstored_bytes: 0,
            markers: BTreeMap::new(),
            rows: BTreeMap::new(),
            due: BTreeSet::new(),
            free: BTreeSet::new(),
            next_row: 0,
            side: None,
            sent: Sent::default(),
            delivered: Vec::new(),
            last_of_key: HashMap::new(),
            peak: Peak::default(),
            statements: Statements::default(),
            waits: Vec::new(),
        }
    }

    pub(super) fn write(&mut self, events: impl IntoIterator<Item = Written>) {
        for written in events {
            let seq = i64::try_from(self.log.len()).unwrap() + 1;
            if let Some(key) = &written.1 {
                self.by_key.entry(key.clone()).or_default().push(seq);
            }
            self.log.push((written, self.now));
            self.delivered.push(false);
            self.pipeline.hint(self.now);
        }
    }

    /// An operator discards all that is parked. Answers how many there were.
    pub(super) fn discard_all(&mut self) -> usize {
        self.due.clear();
        let rows = std::mem::take(&mut self.rows);
        for row in rows.values() {
            let ((_, key), _) = &self.log[usize::try_from(row.seq - 1).unwrap()];
            self.free.extend(key.clone());
        }
        rows.len()
    }

    /// Another relay claims the destination, after a planned stop.
    pub(super) fn begin_anew(&mut self) {
        let marker = |(key, at): (&String, &i64)| Marker {
            key: key.clone(),
            at: Cursor::whole(Arc::new(*at)),
            released: self.free.contains(key),
        };
        let markers: Vec<_> = self.markers.iter().map(marker).collect();
        self.pipeline = pipeline_within(LIMITS, self.order, &markers);
        (self.read_to, self.side, self.sent) = (self.cursor, None, Sent::default());
        (self.sizes, self.unstored_bytes) = (VecDeque::new(), 0);
    }

    /// The last event that the stored cursor has passed.
    pub(super) fn stored(&self) -> i64 {
        self.cursor
    }

    pub(super) fn is_all_delivered(&self) -> bool {
        self.waits.len() == self.log.len()
    }

    /// All that can be done now, and then a step of time.
    pub(super) fn step(&mut self, time: Duration, answer: &impl Fn(&Record) -> Answer) {
        let oldest = self.pipeline.oldest_in_flight();
        if oldest.is_some_and(|since| since.until(self.now) >= PUBLISH_TIMEOUT) {
            let late = "no answer".to_owned();
            self.pipeline.answer_is_late(late, self.now, 0.5);
        }
        if self.pipeline.wants_abort() {
            self.sent = Sent::default();
            self.pipeline.lane_ended(self.now);
        }
        if self.pipeline.wants_lane(self.now) {
            self.pipeline.lane_opened();
        }
        while self.changes() | self.reads() | self.side_reads() | self.sends(answer) {}
        self.answers();
        while self.changes() | self.reads() | self.side_reads() | self.sends(answer) {}
        self.measure();
        self.now = self.now.after(time);
    }

    fn measure(&mut self) {
        let Peak {
            unstored,
            unstored_bytes,
            parked_rows,
            markers,
        } = &mut self.peak;
        *unstored = self.sizes.len().max(*unstored);
        *unstored_bytes = self.unstored_bytes.max(*unstored_bytes);
        *parked_rows = self.rows.len().max(*parked_rows);
        *markers = self.markers.len().max(*markers);
    }

    /// How much the pipeline remembers: numbers, texts and events.
    #[cfg(feature = "model")]
    pub(super) fn remembered(&mut self) -> usize {
        let mut parts = 0;
        self.pipeline.describe(true, &mut |_| parts += 1);
        parts
    }

    /// How long those of this topic waited that were written since then and are delivered.
    pub(super) fn waits(&self, topic: &str, since: Moment) -> Vec<Duration> {
        let of_topic = |(index, wait): &(usize, Duration)| {
            let ((of, _), written) = &self.log[*index];
            (*of == topic && *written >= since).then_some(*wait)
        };
        self.waits.iter().filter_map(of_topic).collect()
    }

    /// How long those have waited until now that are of such a key and not delivered.
    pub(super) fn ages(&self, is_of: impl Fn(&str) -> bool) -> Vec<Duration> {
        let log = self.log.iter().zip(&self.delivered);
        let waits = log.filter_map(|(((_, key), written), is_delivered)| {
            let is_waiting = !is_delivered && key.as_deref().is_some_and(&is_of);
            is_waiting.then(|| written.until(self.now))
        });
        waits.collect()
    }

    fn page(&self, seqs: impl IntoIterator<Item = i64>, end: i64) -> Page {
        let mut builder = PageBuilder::default();
        for seq in seqs {
            let ((topic, key), _) = &self.log[usize::try_from(seq - 1).unwrap()];
            push(&mut builder, seq, topic, key.as_deref());
        }
        Page::up_to(Arc::new(end), builder.finish())
    }

    fn last(&self) -> i64 {
        i64::try_from(self.log.len()).unwrap()
    }

    fn reads(&mut self) -> bool {
        let Some(budget) = self.pipeline.next_read(self.now) else {
            return false;
        };
        self.statements.reads += 1;
        let last = self.last();
        let end = last.min(self.read_to + i64::try_from(budget.events).unwrap());
        let page = self.page(self.read_to + 1..=end, end);
        for event in &page.events {
            self.sizes.push_back((event.seq(), event.footprint()));
            self.unstored_bytes += event.footprint();
        }
        self.read_to = end;
        let asks = self.pipeline.asks_for_markers();
        let keys = page.events.iter().filter_map(StoredEvent::key);
        let marked = keys.filter(|key| asks && self.markers.contains_key(*key));
        let marked: HashSet<String> = marked.map(str::to_owned).collect();
        let caught_up = end == last;
        self.pipeline
            .read_marked(Page { caught_up, ..page }, &marked, self.now);
        true
    }

    fn changes(&mut self) -> bool {
        let Some(change) = self.pipeline.next_change(self.now, 0.5) else {
            return false;
        };
        let count = match &change {
            Change::Park(_) => &mut self.statements.parks,
            Change::Settle { .. } => &mut self.statements.settlements,
            Change::Advance { .. } => &mut self.statements.advances,
            Change::Report { .. } => &mut self.statements.reports,
            Change::Due { .. } => &mut self.statements.dues,
            Change::PutOff { .. } => &mut self.statements.put_offs,
        };
        *count += 1;
        let due = match change {
            Change::Park(parkings) => {
                self.park(&parkings);
                None
            }
            Change::Settle { id, settlement } => {
                self.settle(id, &settlement);
                None
            }
            Change::Advance { up_to, .. } => {
                self.cursor = place(&up_to);
                while let Some(&(seq, bytes)) = self.sizes.front()
                    && seq <= self.cursor
                {
                    self.sizes.pop_front();
                    self.unstored_bytes -= bytes;
                }
                None
            }
            Change::Report { .. } => None,
            Change::Due { limit } => Some(self.due(limit)),
            Change::PutOff { after, limit } => {
                let found = self.put_off(after, limit);
                self.pipeline.put_off_are(found, self.now);
                return true;
            }
        };
        self.pipeline.change_done(due, false, self.now);
        true
    }

    fn park(&mut self, parkings: &[Parking]) {
        for parking in parkings {
            let row = Row {
                seq: parking.event.seq(),
                attempts: parking.attempts,
                due_at: self.now.after(parking.next.retry_in().unwrap()),
                was_put_off: was_put_off(parking.kind),
            };
            self.statements.rows += 1;
            self.due.insert((row.due_at, self.next_row));
            self.rows.insert(self.next_row, row);
            self.next_row += 1;
            if let Some(key) = parking.event.key() {
                self.markers.insert(key.to_owned(), place(&parking.at));
                self.free.remove(key);
            }
        }
    }

    fn settle(&mut self, id: i64, settlement: &Settlement) {
        let mut row = self.rows.remove(&id).unwrap();
        self.due.remove(&(row.due_at, id));
        let retry_in = match settlement {
            Settlement::Delivered => {
                let ((_, key), _) = &self.log[usize::try_from(row.seq - 1).unwrap()];
                self.free.extend(key.clone());
                return;
            }
            Settlement::Postponed { retry_in, kind, .. } => {
                row.was_put_off = was_put_off(kind);
                *retry_in
            }
            Settlement::Failed { next, .. } => {
                row.attempts += 1;
                row.was_put_off = false;
                next.retry_in().unwrap()
            }
        };
        row.due_at = self.now.after(retry_in);
        self.due.insert((row.due_at, id));
        self.rows.insert(id, row);
    }

    fn copy(&self, id: i64) -> ParkedCopy {
        let row = &self.rows[&id];
        ParkedCopy {
            id,
            event: self.page([row.seq], row.seq).events.remove(0),
            attempts: row.attempts,
            holds_key: true,
            never_tried: false,
        }
    }

    fn due(&self, limit: usize) -> Due {
        let end = (self.now, i64::MAX);
        let next = self.due.range(end..).next();
        let due = self.due.range(..end).take(limit);
        Due {
            events: due.map(|(_, id)| self.copy(*id)).collect(),
            released: self.free.iter().take(limit).cloned().collect(),
            next_in: next.map(|(at, _)| self.now.until(*at)),
        }
    }

    fn put_off(&self, after: Option<DueAt>, limit: usize) -> Vec<PutOff> {
        let later = self.due.range((self.now, i64::MAX)..);
        let later = later.filter(|(_, id)| self.rows[id].was_put_off);
        let put_off = later.map(|(due_at, id)| PutOff {
            at: DueAt(due_at.0.as_nanos().try_into().unwrap(), *id),
            copy: self.copy(*id),
        });
        let behind = put_off.filter(|of| after.is_none_or(|after| of.at > after));
        behind.take(limit).collect()
    }

    fn side_reads(&mut self) -> bool {
        let Some(step) = self.pipeline.next_side_step() else {
            return false;
        };
        self.statements.side_steps += 1;
        match step {
            SideStep::Open(keys) => {
                let at = keys.iter().map(|key| self.markers[key]).min().unwrap();
                let keys = keys.into_iter().collect();
                self.side = Some(SideOf { keys, at });
                self.pipeline.side_opened();
            }
            SideStep::Read {
                left,
                budget,
                until,
            } => {
                self.leave(&left);
                let page = self.side_page(place(&until), budget);
                self.pipeline.side_read(page);
            }
            SideStep::Advance { left, at, .. } => {
                self.leave(&left);
                let side = self.side.as_ref().unwrap();
                for key in &side.keys {
                    let marker = self.markers.get_mut(key).unwrap();
                    *marker = place(&at).max(*marker);
                }
                self.pipeline.side_advanced();
            }
            SideStep::Join { keys, at } => {
                assert_eq!(place(&at), self.cursor, "the main group stands there");
                for key in keys {
                    assert!(self.free.remove(&key), "no row holds {key}");
                    self.markers.remove(&key).unwrap();
                }
                self.side = None;
                self.pipeline.side_joined(self.now);
            }
        }
        true
    }

    fn leave(&mut self, left: &[String]) {
        let side = self.side.as_mut().unwrap();
        side.keys.retain(|key| !left.contains(key));
    }

    /// The events of the keys behind their markers, in order.
    fn side_page(&mut self, until: i64, budget: Budget) -> Page {
        let side = self.side.as_ref().unwrap();
        let of = |key: &String| {
            let from = side.at.max(self.markers[key]);
            let seqs = &self.by_key[key];
            let next = seqs.partition_point(|&seq| seq <= from);
            seqs.get(next).map(|&seq| Reverse((seq, &seqs[next..])))
        };
        let mut heads: BinaryHeap<_> = side.keys.iter().filter_map(of).collect();
        let mut seqs = Vec::new();
        while let Some(Reverse((seq, rest))) = heads.pop()
            && seq <= until
            && seqs.len() < budget.events
        {
            seqs.push(seq);
            let rest = &rest[1..];
            heads.extend(rest.first().map(|&seq| Reverse((seq, rest))));
        }
        let caught_up = seqs.len() < budget.events;
        let at = if caught_up {
            until.max(side.at)
        } else {
            *seqs.last().unwrap()
        };
        let page = self.page(seqs, at);
        self.side.as_mut().unwrap().at = at;
        Page { caught_up, ..page }
    }

    fn sends(&mut self, answer: &impl Fn(&Record) -> Answer) -> bool {
        let Some(batch) = self.pipeline.take_batch(self.now) else {
            return false;
        };
        for record in batch {
            let (ticket, key) = (record.ticket(), record.order_key());
            let sent = &mut self.sent;
            let is_pipelined = self.order == KeyOrder::Pipelined;
            let (after, outcome) = if is_pipelined && sent.failed.refuses(key, sent.seen) {
                let why = "behind an event that was put off";
                let (after, _) = answer(&record);
                (after, Outcome::unavailable(Cause::BehindFailure, why))
            } else {
                answer(&record)
            };
            let failure = match (&outcome, is_pipelined) {
                (Outcome::Accepted(_), _) | (_, false) => 0,
                _ => sent.failed.note(key),
            };
            sent.number += 1;
            let of = (self.now.after(after), sent.number);
            let verdict = Verdict { ticket, outcome };
            let event = record.event().clone();
            sent.verdicts.insert(of, (verdict, failure, event));
        }
        true
    }

    fn answers(&mut self) {
        let rest = self.sent.verdicts.split_off(&(self.now, u64::MAX));
        let due = std::mem::replace(&mut self.sent.verdicts, rest);
        let mut verdicts = Vec::new();
        for ((at, _), (verdict, failure, event)) in due {
            self.sent.seen = self.sent.seen.max(failure);
            match &verdict.outcome {
                Outcome::Accepted(_) => self.deliver(&event, at),
                Outcome::Unavailable(why) if why.cause == Cause::Connection => {
                    // Nothing more is answered on this connection.
                    verdicts.push(verdict);
                    break;
                }
                _ => {}
            }
            verdicts.push(verdict);
        }
        self.sent.failed.forget(self.sent.seen);
        if !verdicts.is_empty() {
            self.pipeline.verdicts(verdicts, self.now, 0.5);
        }
    }

    fn deliver(&mut self, event: &StoredEvent, at: Moment) {
        let seq = event.seq();
        let index = usize::try_from(seq - 1).unwrap();
        let is_repeat = std::mem::replace(&mut self.delivered[index], true);
        assert!(!is_repeat, "{seq} comes twice");
        self.waits.push((index, self.log[index].1.until(at)));
        let Some(key) = event.key() else { return };
        let before = self.last_of_key.insert(key.to_owned(), seq);
        let seqs = &self.by_key[key];
        let next = match before {
            None => 0,
            Some(before) => seqs.binary_search(&before).unwrap() + 1,
        };
        assert_eq!(seqs.get(next), Some(&seq), "{key}: behind {before:?}");
    }
}
