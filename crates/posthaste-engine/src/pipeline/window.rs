//! Events that were read and are not yet behind the stored cursor, in the order of reading.
//!
//! ```text
//!   ready --sent--> sent --accepted--> done
//!     ^              |  \--rejected--> failed --parking--> parking --durable--> done
//!     +--unavailable-+
//!   ready --key is blocked--> passed over (done for the cursor, not finished for the store)
//! ```

use std::{
    any::Any,
    collections::{BTreeSet, HashMap, HashSet, VecDeque},
    sync::Arc,
};

use super::evidence::Evidence;
use crate::{
    Cursor, KeyOrder, Page, Rejection, StoredEvent,
    record::key_hash,
    rule::{Rule, left_out},
};

/// Where an event of the window stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum State {
    /// May be sent when its turn comes.
    Ready,
    /// Handed to the lane in this batch; no verdict yet.
    Sent { batch: u64 },
    /// Rejected; to be parked once the fate of every earlier event of its key is known.
    Failed(Box<Rejection>),
    /// Being parked.
    Parking,
    /// The cursor may pass it.
    Done { finished: bool },
}

#[derive(Debug, Clone)]
pub(super) struct Entry {
    pub(super) event: StoredEvent,
    pub(super) state: State,
    pub(super) evidence: Evidence,
    /// It was sent before and its fate is unknown: sending it again may repeat it.
    maybe_sent: bool,
    order_key: Option<u64>,
    bytes: usize,
}

/// The end of a page: what the cursor becomes when everything before `next` is done.
#[derive(Debug, Clone)]
struct PageEnd {
    next: u64,
    base: Arc<dyn Any + Send + Sync>,
    end: Cursor,
    store_end: bool,
}

/// Done events that were taken out, and the cursor behind them.
#[derive(Debug, Clone)]
pub(super) struct Passed {
    pub(super) up_to: Cursor,
    pub(super) finished: Vec<i64>,
    pub(super) events: usize,
    pub(super) bytes: usize,
    pub(super) wanted: bool,
}

/// A failed event that is being parked.
#[derive(Debug)]
pub(super) struct ToPark {
    pub(super) event: StoredEvent,
    /// The cursor that has passed it.
    pub(super) at: Cursor,
    pub(super) rejection: Rejection,
}

#[derive(Debug, Clone)]
pub(super) struct Window {
    order: KeyOrder,
    first: u64,
    entries: VecDeque<Entry>,
    pages: VecDeque<PageEnd>,
    ready: VecDeque<u64>,
    ready_stale: bool,
    /// The keys of ready events that were passed over since: what follows in them waits as well.
    passed_over: HashSet<u64>,
    /// Some of them could have been sent.
    passed_part: bool,
    /// With [`KeyOrder::OneAtATime`]: the unfinished events of each key; only the first may be
    /// sent.
    queues: HashMap<u64, VecDeque<u64>>,
    /// The failed events of each key, until they are parked: what follows the first of them waits.
    failed: HashMap<u64, BTreeSet<u64>>,
    /// How many events failed and are not being parked yet, those without a key included.
    failed_events: usize,
    done_prefix: usize,
}

impl Passed {
    /// Both, in one advance.
    pub(super) fn and(mut self, newer: Self) -> Self {
        self.finished.extend(newer.finished);
        Self {
            up_to: newer.up_to,
            finished: self.finished,
            events: self.events + newer.events,
            bytes: self.bytes + newer.bytes,
            wanted: self.wanted || newer.wanted,
        }
    }
}

impl Entry {
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Window {
    /// An empty window whose tickets begin at `first`.
    pub(super) fn new(order: KeyOrder, first: u64) -> Self {
        Self {
            order: match left_out(Rule::OneOfAKeyAtATime) {
                true => KeyOrder::Pipelined,
                false => order,
            },
            first,
            entries: VecDeque::new(),
            pages: VecDeque::new(),
            ready: VecDeque::new(),
            ready_stale: false,
            passed_over: HashSet::new(),
            passed_part: false,
            queues: HashMap::new(),
            failed: HashMap::new(),
            failed_events: 0,
            done_prefix: 0,
        }
    }

    /// The ticket of the first event that was not taken out yet.
    pub(super) fn first(&self) -> u64 {
        self.first
    }

    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty() && self.pages.is_empty()
    }

    /// Events that are done and could be stored.
    pub(super) fn done_prefix(&mut self) -> usize {
        while matches!(
            self.entries.get(self.done_prefix),
            Some(Entry {
                state: State::Done { .. },
                ..
            })
        ) {
            self.done_prefix += 1;
        }
        self.done_prefix
    }

    /// Whether everything in the window is done.
    pub(super) fn is_done(&mut self) -> bool {
        self.done_prefix() == self.entries.len()
    }

    /// Whether nothing in the window waits for the destination: what is not done is blocked, or
    /// follows a blocked event in its key.
    pub(super) fn is_done_but_for(&mut self, blocked: impl Fn(&StoredEvent) -> bool) -> bool {
        let (done, mut keys) = (self.done_prefix(), HashSet::new());
        self.entries.iter().skip(done).all(|entry| {
            let mut waits = || {
                let key = entry.order_key;
                if key.is_some_and(|key| keys.contains(&key)) {
                    return true;
                }
                let is_blocked = blocked(&entry.event);
                keys.extend(key.filter(|_| is_blocked));
                is_blocked
            };
            match entry.state {
                State::Done { .. } => true,
                State::Ready => waits(),
                _ => false,
            }
        })
    }

    /// Takes in a page. `pass` says of each event whether the cursor may pass it at once: finished
    /// (no route takes it) or not (its key is blocked). Answers events and bytes taken in.
    pub(super) fn push(
        &mut self,
        page: Page,
        mut pass: impl FnMut(&StoredEvent) -> Option<State>,
    ) -> (usize, usize) {
        let (events, mut bytes) = (page.events.len(), 0);
        // Else the polls of an outage would be kept, one by one, for as long as an event waits.
        if let (true, Some(last)) = (events == 0, self.pages.back_mut()) {
            last.end = page.end;
            last.store_end |= page.store_end;
            return (0, 0);
        }
        for event in page.events {
            let ticket = self.first + self.entries.len() as u64;
            let entry = Entry {
                state: pass(&event).unwrap_or(State::Ready),
                evidence: Evidence::default(),
                maybe_sent: false,
                order_key: event.order_key().map(key_hash),
                bytes: event.footprint(),
                event,
            };
            bytes += entry.bytes;
            if entry.state == State::Ready {
                self.enqueue(ticket, entry.order_key);
            }
            self.entries.push_back(entry);
        }
        self.pages.push_back(PageEnd {
            next: self.first + self.entries.len() as u64,
            base: page.base,
            end: page.end,
            store_end: page.store_end,
        });
        (events, bytes)
    }

    fn enqueue(&mut self, ticket: u64, order_key: Option<u64>) {
        match (self.order, order_key) {
            (KeyOrder::OneAtATime, Some(key)) => {
                let queue = self.queues.entry(key).or_default();
                queue.push_back(ticket);
                if queue.len() == 1 {
                    self.ready.push_back(ticket);
                }
            }
            _ => self.ready.push_back(ticket),
        }
    }

    fn index(&self, ticket: u64) -> Option<usize> {
        usize::try_from(ticket.checked_sub(self.first)?).ok()
    }

    pub(super) fn entry_mut(&mut self, ticket: u64) -> Option<&mut Entry> {
        let index = self.index(ticket)?;
        self.entries.get_mut(index)
    }

    pub(super) fn has_sent(&self) -> bool {
        self.first_sent().is_some()
    }

    /// The first event without a verdict.
    pub(super) fn first_sent(&self) -> Option<u64> {
        let mut entries = (self.first..).zip(&self.entries);
        let is_sent = |(_, entry): &(u64, &Entry)| matches!(entry.state, State::Sent { .. });
        entries.find(is_sent).map(|(ticket, _)| ticket)
    }

    /// The events without a verdict.
    pub(super) fn all_sent(&mut self) -> impl Iterator<Item = &mut Entry> {
        let is_sent = |entry: &&mut Entry| matches!(entry.state, State::Sent { .. });
        self.entries.iter_mut().filter(is_sent)
    }

    /// An event is to be parked. Nothing that follows it in its key is sent before that is durable;
    /// what goes before it still is.
    pub(super) fn fail(&mut self, ticket: u64, rejection: Rejection) {
        let Some(entry) = self.entry_mut(ticket) else {
            return;
        };
        let failed = State::Failed(Box::new(rejection));
        let before = std::mem::replace(&mut entry.state, failed);
        let order_key = entry.order_key;
        self.failed_events += usize::from(!matches!(before, State::Failed(_)));
        if let Some(key) = order_key {
            self.failed.entry(key).or_default().insert(ticket);
        }
    }

    /// Events that failed and are not being parked yet.
    pub(super) fn failed_events(&self) -> usize {
        self.failed_events
    }

    /// Begins to park a failed event.
    pub(super) fn begin_to_park(&mut self, ticket: u64) -> Option<ToPark> {
        let at = self.cursor_at(ticket)?;
        let entry = self.entry_mut(ticket)?;
        let rejection = match std::mem::replace(&mut entry.state, State::Parking) {
            State::Failed(rejection) => *rejection,
            other => {
                entry.state = other;
                return None;
            }
        };
        let event = entry.event.clone();
        self.failed_events -= 1;
        Some(ToPark {
            event,
            at,
            rejection,
        })
    }

    /// The cursor may pass this event. Lets the next event of its key go.
    pub(super) fn finish(&mut self, ticket: u64, finished: bool) {
        let Some(index) = self.index(ticket) else {
            return;
        };
        let Some(entry) = self.entries.get_mut(index) else {
            return;
        };
        entry.state = State::Done { finished };
        let Some(key) = entry.order_key else { return };
        if let Some(failed) = self.failed.get_mut(&key)
            && failed.remove(&ticket)
        {
            if failed.is_empty() {
                self.failed.remove(&key);
            }
            self.ready_stale = true;
        }
        if let Some(queue) = self.queues.get_mut(&key) {
            if queue.front() == Some(&ticket) {
                queue.pop_front();
            } else {
                queue.retain(|&waiting| waiting != ticket);
            }
            match queue.front() {
                None => drop(self.queues.remove(&key)),
                Some(&next) => {
                    let index = self.index(next).unwrap_or(usize::MAX);
                    if self
                        .entries
                        .get(index)
                        .is_some_and(|e| e.state == State::Ready)
                    {
                        self.ready.push_back(next);
                    }
                }
            }
        }
    }

    /// An event was handed to the lane. Answers whether that may repeat it.
    pub(super) fn sent(&mut self, ticket: u64, batch: u64) -> bool {
        self.entry_mut(ticket).is_some_and(|entry| {
            entry.state = State::Sent { batch };
            entry.maybe_sent
        })
    }

    /// A sent event goes back to the ready ones, in its old place: surely not accepted, or of
    /// unknown fate.
    pub(super) fn unsend(&mut self, ticket: u64, fate_unknown: bool) {
        if let Some(entry) = self.entry_mut(ticket) {
            entry.state = State::Ready;
            entry.maybe_sent |= fate_unknown;
            if left_out(Rule::RetryKeepsItsPlace) {
                self.ready.push_back(ticket);
            } else {
                self.ready_stale = true;
            }
        }
    }

    /// The lane ended: everything that was sent and not answered is to be sent again.
    pub(super) fn unsend_all(&mut self) {
        for (ticket, entry) in (self.first..).zip(&mut self.entries) {
            if matches!(entry.state, State::Sent { .. }) {
                entry.state = State::Ready;
                entry.maybe_sent = true;
                if left_out(Rule::RetryKeepsItsPlace) {
                    self.ready.push_back(ticket);
                }
            }
        }
        self.ready_stale |= !left_out(Rule::RetryKeepsItsPlace);
    }

    /// Rejected events that may be parked: the fate of every earlier event of their key is known.
    pub(super) fn parkable(&self) -> Vec<u64> {
        let mut undecided = HashSet::new();
        let mut parkable = Vec::new();
        for (index, entry) in self.entries.iter().enumerate().skip(self.done_prefix) {
            let behind = entry.order_key.is_some_and(|key| undecided.contains(&key));
            if matches!(entry.state, State::Failed(_)) && !behind {
                parkable.push(self.first + index as u64);
            }
            if let (Some(key), false) = (entry.order_key, matches!(entry.state, State::Done { .. }))
            {
                undecided.insert(key);
            }
        }
        parkable
    }

    /// The cursor that has passed this event.
    fn cursor_at(&self, ticket: u64) -> Option<Cursor> {
        let page = self.pages.iter().find(|page| ticket < page.next)?;
        let entry = self.entries.get(self.index(ticket)?)?;
        Some(Cursor::within(Arc::clone(&page.base), entry.event.seq()))
    }

    /// Takes out the done events at the front, with the cursor behind them.
    pub(super) fn take_passed(&mut self) -> Option<Passed> {
        let events = self.done_prefix();
        let (mut finished, mut bytes, mut last_seq) = (Vec::with_capacity(events), 0, None);
        for entry in self.entries.drain(..events) {
            bytes += entry.bytes;
            last_seq = Some(entry.event.seq());
            if entry.state == (State::Done { finished: true }) {
                finished.push(entry.event.seq());
            }
        }
        self.first += events as u64;
        self.done_prefix = 0;
        let (mut up_to, mut wanted) = (None, events > 0);
        while let Some(page) = self.pages.pop_front_if(|page| page.next <= self.first) {
            wanted |= page.store_end;
            up_to = Some(page.end);
            if page.next == self.first {
                last_seq = None;
            }
        }
        if let (Some(seq), Some(page)) = (last_seq, self.pages.front()) {
            up_to = Some(Cursor::within(Arc::clone(&page.base), seq));
        }
        up_to.map(|up_to| Passed {
            up_to,
            finished,
            events,
            bytes,
            wanted,
        })
    }
}

#[cfg(feature = "model")]
mod model;
mod put_off;
mod ready;
#[cfg(test)]
mod tests;
