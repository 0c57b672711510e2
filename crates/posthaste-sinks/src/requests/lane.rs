//! Sends the records of a lane in requests of several, and turns answers into outcomes.
//!
//! Of each key one event is in flight: a part of a request may fail, and requests overtake each
//! other. A fault of the service ends the lane, once the requests under way are answered or out of
//! time; a fault of a queue, topic or stream is its own where each topic has one.

use std::{
    collections::{HashMap, HashSet},
    future::pending,
    mem,
    panic::resume_unwind,
    sync::Arc,
    time::Duration,
};

use posthaste_engine::{
    Cause, Decision, LaneSpec, Outcome, Record, RejectionKind, Unavailability, WaitingRecord,
};
use tokio::{
    task::JoinSet,
    time::{Instant, sleep_until, timeout_at},
};

use super::{
    call::{self, Call, InCall, Told},
    refusal::Blame,
    target::{Encoded, Service, Target, Way},
};
use crate::{
    descriptors::sqs::CALLS_MAX,
    publisher::{Ending, Publisher, RecordsOf},
};

/// How long each part of a request may take.
#[derive(Debug, Clone, Copy)]
struct Patience {
    /// Until the answer has come, since the event was submitted.
    answer: Duration,
    /// Until an event that was answered has its verdict, while others are waited for.
    verdict: Duration,
}

/// The publisher of a lane.
pub(crate) struct BatchPublisher<S: Service> {
    service: Arc<S>,
    way: Box<dyn Way>,
    target: Arc<Target>,
    patience: Patience,
    calls: JoinSet<Ended>,
    ended: Vec<Ended>,
    /// Keys with an event under way.
    keys: HashSet<u64>,
    /// Requests under way, by queue, topic or stream.
    under_way: HashMap<Arc<str>, usize>,
    ending: Ending,
}

/// A request that is not under way any more.
struct Ended {
    place: Arc<str>,
    events: Vec<InCall>,
    sent: Instant,
    /// None: the event was under way when the time was over.
    answers: Vec<Option<Told>>,
}

/// Where a record goes, and its message, once they were made.
pub(crate) type Note<M> = Option<Made<M>>;

/// A message that may be sent.
pub(crate) struct Made<M> {
    place: Arc<str>,
    message: Arc<M>,
    since: Instant,
}

impl<S: Service> BatchPublisher<S> {
    pub(crate) fn new(service: S, way: impl Way, target: Arc<Target>, spec: &LaneSpec) -> Self {
        Self {
            service: Arc::new(service),
            way: Box::new(way),
            target,
            patience: Patience {
                // A little less than the relay waits for any answer: it could not say what is
                // missing.
                answer: spec.publish_timeout * 9 / 10,
                verdict: spec.publish_timeout * 19 / 20,
            },
            calls: JoinSet::new(),
            ended: Vec::new(),
            keys: HashSet::new(),
            under_way: HashMap::new(),
            ending: Ending::default(),
        }
    }

    fn settle(&mut self, ended: Ended, records: &mut RecordsOf<Self>) {
        if let Some(count) = self.under_way.get_mut(&ended.place) {
            *count -= 1;
            if *count == 0 {
                self.under_way.remove(&ended.place);
            }
        }
        for (event, told) in ended.events.iter().zip(ended.answers) {
            if let Some(key) = event.order_key {
                self.keys.remove(&key);
            }
            let told = told.unwrap_or_else(|| Told::nothing(self.patience.answer));
            match self.outcome(&ended.place, told) {
                Ok(outcome) => drop(records.answer(event.slot, outcome)),
                // It is answered with the others, once the lane ends.
                Err(fault) => {
                    let at = ended.sent + self.patience.verdict;
                    self.ending.begin(fault, at);
                }
            }
        }
    }

    /// The outcome of an event; or why the lane ends.
    fn outcome(&self, place: &str, told: Told) -> Result<Outcome, Unavailability> {
        let Err(refusal) = told.answer else {
            return Ok(Outcome::accepted());
        };
        let has_topic = self.target.names.has_topic();
        let reason = format!("{} `{place}`: {}", self.target.kind, refusal.reason);
        match refusal.blame {
            Blame::Event(kind) => Ok(Outcome::rejected(kind, reason)),
            // It takes a part of what it is sent.
            Blame::Place(Cause::Throttled) => Ok(Outcome::later(reason)),
            Blame::Place(_) if has_topic || told.is_of_event => Ok(Outcome::later(reason)),
            // The service may be silent over this event alone.
            Blame::Unclear(_) if has_topic && told.is_of_event => Ok(Outcome::silent(reason)),
            Blame::Unclear(_) if has_topic => Ok(Outcome::later(reason)),
            Blame::Place(cause) | Blame::Unclear(cause) => Err(Unavailability::new(cause, reason)),
            Blame::Service(_) => {
                self.way.refused(&refusal);
                Err(refusal.unavailability())
            }
        }
    }

    /// Puts the records that may be sent into requests.
    fn gather(&mut self, records: &mut RecordsOf<Self>) -> Vec<Call<S::Message>> {
        let Self {
            target,
            keys,
            under_way,
            calls: running,
            patience,
            ..
        } = self;
        let mut calls: Vec<Call<S::Message>> = Vec::new();
        let mut by_place: HashMap<Arc<str>, usize> = HashMap::new();
        records.decide(|item, next| {
            let order_key = item.record.order_key();
            if order_key.is_some_and(|key| keys.contains(&key)) {
                return Decision::Wait;
            }
            let Made {
                place,
                message,
                since,
            } = match made(item, target) {
                Ok(made) => made,
                Err(outcome) => return Decision::Answered(outcome),
            };
            // Sent now, it would be without an answer when the relay stops to wait.
            if target.names.has_topic() && since.elapsed() >= patience.answer / 2 {
                let reason = format!(
                    "{} `{place}`: requests before this event have no answer yet",
                    target.kind
                );
                return Decision::Answered(Outcome::later(reason));
            }
            let has_room = |at: &&usize| {
                let call: &Call<_> = &calls[**at];
                call.events.len() < target.call.events
                    && call.bytes + message.bytes() <= target.call.bytes
            };
            let at = match by_place.get(place).filter(has_room) {
                Some(at) => *at,
                None => {
                    let new = calls.iter().filter(|call| call.place == *place).count();
                    let of_place = under_way.get(place).copied().unwrap_or_default() + new;
                    let all = running.len() + calls.len();
                    // No place has more than are left for others, as it may be silent. While it
                    // has so many, its events gather, so that requests are full.
                    if of_place >= (CALLS_MAX as usize).saturating_sub(all) {
                        return Decision::Wait;
                    }
                    by_place.insert(Arc::clone(place), calls.len());
                    calls.push(Call::new(Arc::clone(place), *since + patience.answer));
                    calls.len() - 1
                }
            };
            keys.extend(order_key);
            let call = &mut calls[at];
            call.until = call.until.min(*since + patience.answer);
            call.bytes += message.bytes();
            call.messages.push(Arc::clone(message));
            call.events.push(InCall {
                slot: next.slot,
                order_key,
            });
            Decision::Sent(())
        });
        calls
    }

    fn send(&mut self, call: Call<S::Message>) {
        *self.under_way.entry(Arc::clone(&call.place)).or_default() += 1;
        let service = Arc::clone(&self.service);
        let has_topic = self.target.names.has_topic();
        self.calls.spawn(async move {
            let sent = Instant::now();
            let mut answers = Vec::new();
            let sending = call::send(&*service, &call, has_topic, &mut answers);
            // The limit is as good an end as the other: events without an answer are told below.
            let _ = timeout_at(call.until, sending).await;
            answers.resize_with(call.events.len(), || None);
            Ended {
                place: call.place,
                events: call.events,
                sent,
                answers,
            }
        });
    }

    async fn next_ended(&mut self) {
        match self.calls.join_next().await {
            Some(Ok(ended)) => self.ended.push(ended),
            Some(Err(broken)) if broken.is_panic() => resume_unwind(broken.into_panic()),
            // Of a lane that has ended.
            Some(Err(_)) => {}
            None => pending().await,
        }
    }
}

/// The place and the message of a record, made once however often it is looked at.
fn made<'i, M: Encoded>(
    item: &'i mut WaitingRecord<Note<M>>,
    target: &Target,
) -> Result<&'i Made<M>, Outcome> {
    let note = match item.note.take() {
        Some(note) => note,
        None => make(&item.record, target)?,
    };
    Ok(item.note.insert(note))
}

fn make<M: Encoded>(record: &Record, target: &Target) -> Result<Made<M>, Outcome> {
    let place = target.names.name(record.topic()).map_err(|fault| {
        let reason = format!("its topic makes no name of a {}: {fault}", target.kind);
        Outcome::rejected(RejectionKind::Invalid, reason)
    })?;
    Ok(Made {
        place: place.into(),
        message: Arc::new(M::encode(record, target)?),
        since: Instant::now(),
    })
}

impl<S: Service> Publisher for BatchPublisher<S> {
    type InFlight = ();
    type Note = Note<S::Message>;

    fn value_bytes_max(&self) -> Option<u64> {
        self.target.event_bytes_max
    }

    fn advance(&mut self, records: &mut RecordsOf<Self>) {
        for ended in mem::take(&mut self.ended) {
            self.settle(ended, records);
        }
        if let Some(fault) = self.ending.take_due(!self.calls.is_empty()) {
            self.calls.abort_all();
            records.end(fault);
        }
        if self.ending.has_begun() {
            return;
        }
        for call in self.gather(records) {
            self.send(call);
        }
    }

    async fn changed(&mut self) {
        match self.ending.at() {
            Some(end) => tokio::select! {
                () = self.next_ended() => {}
                () = sleep_until(end) => {}
            },
            None => self.next_ended().await,
        }
    }

    async fn goodbye(&mut self) {
        self.way.close_idle();
    }
}
