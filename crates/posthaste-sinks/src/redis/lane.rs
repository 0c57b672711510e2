//! Adds the records of a lane to their streams, and turns the server's answers into outcomes.

use std::{
    collections::{HashMap, HashSet},
    future::pending,
    mem,
    panic::resume_unwind,
    sync::Arc,
};

use posthaste_engine::{Acceptance, Cause, Decision, Outcome, RejectionKind, WaitingRecord};
use tokio::task::{JoinError, JoinSet, yield_now};

use super::{
    adding::{Added, OpenLane},
    connection::Connection,
    entry::Entry,
    fault::{Blame, ServerFault},
    target::Target,
};
use crate::{
    descriptors::redis::CALLS_MAX,
    publisher::{Publisher, RecordsOf},
};

/// Events of a call at the most: the server does nothing else meanwhile, for a few milliseconds.
const CALL_EVENTS_MAX: usize = 256;
/// Events of a lane: what can be under way. More would wait here, while the time for their answer
/// runs.
pub(super) const EVENTS_MAX: usize = CALLS_MAX as usize * CALL_EVENTS_MAX;
/// Bytes of a call at the most, but for one larger event.
const CALL_BYTES_MAX: usize = 1 << 20;

/// The publisher of a lane. Of each stream one call is under way at a time, and of each key all
/// that is in flight is in one call: so nothing of a key is added behind an event of it that was
/// not.
pub(super) struct RedisPublisher {
    /// None once the lane has ended.
    open: Option<(Connection, OpenLane)>,
    target: Arc<Target>,
    calls: JoinSet<Answered>,
    answered: Vec<Answered>,
    /// Why an idle connection is of no use any more.
    lost: Option<ServerFault>,
    /// Streams with a call under way.
    busy: HashSet<Arc<str>>,
    /// Keys in flight, each with its stream.
    keys: HashMap<u64, Arc<str>>,
}

/// Events of one stream, on their way in one script.
struct Call {
    stream: Arc<str>,
    events: Vec<InCall>,
    entries: Vec<Entry>,
    bytes: usize,
}

/// An event of a call.
struct InCall {
    slot: usize,
    order_key: Option<u64>,
}

/// A call that has ended.
struct Answered {
    stream: Arc<str>,
    events: Vec<InCall>,
    answer: Result<Added, ServerFault>,
}

type Records = RecordsOf<RedisPublisher>;
/// Its stream and its entry, once they were made.
type Note = Option<(Arc<str>, Entry)>;

impl RedisPublisher {
    pub(super) fn new(connection: Connection, lane: OpenLane, target: Arc<Target>) -> Self {
        Self {
            open: Some((connection, lane)),
            target,
            calls: JoinSet::new(),
            answered: Vec::new(),
            lost: None,
            busy: HashSet::new(),
            keys: HashMap::new(),
        }
    }

    fn note(&mut self, ended: Result<Answered, JoinError>) {
        match ended {
            Ok(answered) => self.answered.push(answered),
            Err(broken) if broken.is_panic() => resume_unwind(broken.into_panic()),
            // Of a lane that has ended.
            Err(_) => {}
        }
    }

    fn settle(&mut self, answered: Answered, records: &mut Records) {
        let Answered {
            stream,
            events,
            answer,
        } = answered;
        self.busy.remove(&stream);
        for key in events.iter().filter_map(|event| event.order_key) {
            self.keys.remove(&key);
        }
        let (known, fault) = match answer {
            Ok(Added { known, stopped }) => (known, stopped),
            Err(fault) => (Vec::new(), Some(fault)),
        };
        let (taken, rest) = events.split_at(known.len());
        for (event, is_duplicate) in taken.iter().zip(known) {
            let acceptance = Acceptance {
                receipt: None,
                is_duplicate,
            };
            records.answer(event.slot, Outcome::Accepted(acceptance));
        }
        let Some(fault) = fault else {
            return;
        };
        if let Blame::Server(_) = fault.blame {
            return self.end(&fault, records);
        }
        let outcome = fault.outcome(&stream);
        let mut failed = HashSet::new();
        for event in rest {
            let is_first = event.order_key.is_none_or(|key| failed.insert(key));
            let outcome = match is_first {
                true => outcome.clone(),
                false => behind_failure(),
            };
            records.answer(event.slot, outcome);
        }
    }

    fn end(&mut self, fault: &ServerFault, records: &mut Records) {
        // Destroys the connection.
        self.open = None;
        self.calls.abort_all();
        records.end(fault.unavailability());
    }

    /// Puts the records that may be sent into calls.
    fn gather(&mut self, records: &mut Records) -> Vec<Call> {
        let Self {
            target, busy, keys, ..
        } = self;
        let mut calls: Vec<Call> = Vec::new();
        let mut by_stream: HashMap<Arc<str>, usize> = HashMap::new();
        let under_way = busy.len();
        records.decide(|item, next| {
            let order_key = item.record.order_key();
            let (stream, entry) = match made(item, target) {
                Ok(made) => made,
                Err(outcome) => return Decision::Answered(outcome),
            };
            let is_elsewhere = order_key
                .and_then(|key| keys.get(&key))
                .is_some_and(|other| other != stream);
            let has_room = under_way + calls.len() < CALLS_MAX as usize;
            let at = match by_stream.get(stream) {
                _ if is_elsewhere || busy.contains(stream) => return Decision::Wait,
                Some(&at) if calls[at].has_room(entry) => at,
                None if has_room => {
                    by_stream.insert(Arc::clone(stream), calls.len());
                    calls.push(Call::new(Arc::clone(stream)));
                    calls.len() - 1
                }
                _ => return Decision::Wait,
            };
            if let Some(key) = order_key {
                keys.insert(key, Arc::clone(stream));
            }
            let call = &mut calls[at];
            call.bytes += entry.size();
            call.events.push(InCall {
                slot: next.slot,
                order_key,
            });
            call.entries
                .extend(item.note.take().map(|(_, entry)| entry));
            Decision::Sent(())
        });
        calls
    }

    fn send(&mut self, call: Call) {
        let Some((_, lane)) = &self.open else {
            return;
        };
        let mut lane = lane.clone();
        self.busy.insert(Arc::clone(&call.stream));
        self.calls.spawn(async move {
            let answer = lane.add(&call.stream, &call.entries).await;
            Answered {
                stream: call.stream,
                events: call.events,
                answer,
            }
        });
    }
}

/// The stream and the entry of a record, made once however often it is looked at.
fn made<'i>(
    item: &'i mut WaitingRecord<Note>,
    target: &Target,
) -> Result<(&'i Arc<str>, &'i Entry), Outcome> {
    let note = match item.note.take() {
        Some(note) => note,
        None => {
            let stream = target.stream.stream(item.record.topic()).map_err(|fault| {
                let reason = format!("its topic makes no key of a stream: {fault}");
                Outcome::rejected(RejectionKind::Invalid, reason)
            })?;
            (stream.into(), Entry::of(&item.record)?)
        }
    };
    let (stream, entry) = item.note.insert(note);
    Ok((stream, entry))
}

fn behind_failure() -> Outcome {
    Outcome::unavailable(
        Cause::BehindFailure,
        "not tried: an earlier event of its key was not accepted",
    )
}

impl Call {
    fn new(stream: Arc<str>) -> Self {
        Self {
            stream,
            events: Vec::new(),
            entries: Vec::new(),
            bytes: 0,
        }
    }

    fn has_room(&self, entry: &Entry) -> bool {
        self.events.len() < CALL_EVENTS_MAX && self.bytes + entry.size() <= CALL_BYTES_MAX
    }
}

impl Publisher for RedisPublisher {
    type InFlight = ();
    type Note = Note;

    fn value_bytes_max(&self) -> Option<u64> {
        self.target.event_bytes_max
    }

    fn advance(&mut self, records: &mut Records) {
        let lost = self.lost.take();
        for answered in mem::take(&mut self.answered) {
            if self.open.is_some() {
                self.settle(answered, records);
            }
        }
        if self.open.is_some() {
            if let Some(fault) = lost {
                self.end(&fault, records);
            }
            for call in self.gather(records) {
                self.send(call);
            }
        }
    }

    async fn changed(&mut self) {
        if self.calls.is_empty()
            && let Some((_, lane)) = &mut self.open
        {
            self.lost = Some(lane.lost_while_idle().await);
            return;
        }
        match self.calls.join_next().await {
            Some(ended) => self.note(ended),
            None => pending().await,
        }
        // The server answers several calls at once, and each look at all that waits takes its time.
        yield_now().await;
        while let Some(ended) = self.calls.try_join_next() {
            self.note(ended);
        }
    }
}
