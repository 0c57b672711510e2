//! Posts the records of a lane, and turns answers into outcomes.
//!
//! A fault of the endpoint ends the lane, as it says nothing about an event; but requests under way
//! are waited for, since each that is given up is sent again. Where each topic has an endpoint of
//! its own, a fault of one is its topic's, and the lane goes on.

use std::{
    collections::{HashMap, HashSet},
    future::pending,
    mem,
    panic::resume_unwind,
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use hyper::StatusCode;
use posthaste_engine::{
    Cause, Decision, LaneSpec, Outcome, Postponement, Record, RejectionKind, Unavailability,
    WaitingRecord,
};
use tokio::{
    task::JoinSet,
    time::{Instant, sleep_until, timeout_at},
};

use super::{
    answer::{Answer, Meaning},
    connection::{Connection, Dialer, Exchange},
    fault::HostFault,
    message::Message,
    target::Target,
};
use crate::{
    publisher::{Ending, Publisher, RecordsOf},
    transport::open_limit,
};

/// A connection is closed after this time without a request. Servers close idle ones too, some
/// after two seconds, and a request that meets that is sent twice.
const IDLE_MAX: Duration = Duration::from_millis(1_500);

/// How long each part of a request may take.
#[derive(Debug, Clone, Copy)]
pub(super) struct Patience {
    /// Until there is a connection.
    pub(super) connection: Duration,
    /// Until the answer has come, a connection included.
    pub(super) answer: Duration,
    /// Until an event that was answered has its verdict, while others are waited for.
    verdict: Duration,
    /// Until the peer's kernel has acknowledged sent bytes.
    pub(super) acknowledgement: Duration,
}

impl Patience {
    pub(super) fn of(spec: &LaneSpec) -> Self {
        Self {
            connection: open_limit(spec),
            // A little less than the relay waits for any answer: it could not say what is missing.
            answer: spec.publish_timeout * 9 / 10,
            verdict: spec.publish_timeout * 19 / 20,
            acknowledgement: spec.publish_timeout,
        }
    }
}

/// The publisher of a lane.
pub(super) struct HttpPublisher {
    dialer: Arc<Dialer>,
    patience: Patience,
    /// Connections without a request, and since when; the oldest first. It is used first: bytes
    /// that no request asked for have had time to show, and are not taken for an answer.
    idle: Vec<(Instant, Connection)>,
    calls: JoinSet<Ended>,
    ended: Vec<Ended>,
    /// Keys with a request under way.
    keys: HashSet<u64>,
    /// Endpoints with requests under way.
    places: HashMap<Arc<str>, Place>,
    /// When the youngest request was sent that any endpoint has answered.
    answered: Option<Instant>,
    ending: Ending,
}

/// An endpoint with requests under way.
#[derive(Debug, Default)]
struct Place {
    under_way: usize,
    /// When the youngest request was sent that it has accepted.
    accepted: Option<Instant>,
}

/// A request under way.
struct Call {
    slot: usize,
    order_key: Option<u64>,
    /// The topic, where each has its endpoint.
    place: Arc<str>,
    sent: Instant,
}

/// A request that is not under way any more.
struct Ended {
    call: Call,
    told: Told,
}

/// The end of a request.
enum Told {
    Answer(Answer, Option<Connection>),
    /// It may have arrived, and there is no answer that counts.
    Nothing(HostFault),
    /// There is no connection.
    Unsent(HostFault),
    /// It cannot be sent.
    Invalid(String),
}

type Records = RecordsOf<HttpPublisher>;

impl HttpPublisher {
    pub(super) fn new(dialer: Arc<Dialer>, patience: Patience, connection: Connection) -> Self {
        Self {
            dialer,
            patience,
            idle: vec![(Instant::now(), connection)],
            calls: JoinSet::new(),
            ended: Vec::new(),
            keys: HashSet::new(),
            places: HashMap::new(),
            answered: None,
            ending: Ending::default(),
        }
    }

    fn settle(&mut self, ended: Ended, records: &mut Records) {
        let Ended { call, told } = ended;
        if let Some(key) = call.order_key {
            self.keys.remove(&key);
        }
        let outcome = match told {
            Told::Answer(answer, connection) => {
                self.answered = self.answered.max(Some(call.sent));
                let connection = connection.map(|connection| (Instant::now(), connection));
                self.idle.extend(connection);
                self.judge(&call, &answer)
            }
            Told::Nothing(fault) => self.unanswered(&call, &fault),
            Told::Unsent(fault) => Err(fault.unavailability()),
            Told::Invalid(reason) => Ok(Outcome::rejected(RejectionKind::Invalid, reason)),
        };
        if let Some(place) = self.places.get_mut(&call.place) {
            place.under_way -= 1;
            if place.under_way == 0 {
                self.places.remove(&call.place);
            }
        }
        match outcome {
            Ok(outcome) => drop(records.answer(call.slot, outcome)),
            // It is answered with the others, once the lane ends.
            Err(fault) => {
                let at = call.sent + self.patience.verdict;
                self.ending.begin(fault, at);
            }
        }
    }

    /// The outcome of an answered request; or why the lane ends.
    fn judge(&mut self, call: &Call, answer: &Answer) -> Result<Outcome, Unavailability> {
        let target = Arc::clone(&self.dialer.target);
        let words = |fix: &str| format!("{}{fix}", answer.words(&endpoint(&target, call)));
        match answer.meaning() {
            Meaning::Accepted => {
                target.note_accepted(&call.place);
                if let Some(place) = self.places.get_mut(&call.place) {
                    place.accepted = place.accepted.max(Some(call.sent));
                }
                Ok(Outcome::accepted())
            }
            Meaning::Rejected(kind) => Ok(Outcome::rejected(kind, words(""))),
            Meaning::Refused(refusal) => {
                let (kind, cause, fix, wait) = refusal.parts();
                match target.note_refused(&call.place) {
                    true => Ok(Outcome::rejected(kind, words(fix))),
                    false => put_off(&target, cause, words(fix), wait),
                }
            }
            Meaning::Busy => put_off(&target, Cause::Throttled, words(""), answer.wait),
            Meaning::Failed if self.accepts_since(call, call.sent) => {
                Ok(Outcome::silent(words("")))
            }
            Meaning::Failed => put_off(&target, Cause::Unknown, words(""), answer.wait),
            Meaning::Setup(fix) => put_off(&target, Cause::Misconfigured, words(fix), answer.wait),
        }
    }

    /// Whether its endpoint has accepted a request that was sent after this time.
    fn accepts_since(&self, call: &Call, since: Instant) -> bool {
        let place = self.places.get(&call.place);
        place.is_some_and(|place| place.accepted >= Some(since))
    }

    /// The outcome of a request without an answer; or why the lane ends. A host that lets us
    /// connect is there: if each topic has an endpoint, the topic's is at fault.
    fn unanswered(&self, call: &Call, fault: &HostFault) -> Result<Outcome, Unavailability> {
        let target = &*self.dialer.target;
        let reason = format!("{}: {}", endpoint(target, call), fault.reason);
        if fault.cause != Cause::Unknown {
            return match self.accepts_since(call, call.sent) {
                true => Ok(Outcome::silent(reason)),
                false => put_off(target, fault.cause, reason, None),
            };
        }
        // An endpoint that hangs answers nothing that was sent behind this, or shortly before it
        // began to hang.
        let late = call.sent + self.patience.answer / 2;
        match self.accepts_since(call, late) {
            true => Ok(Outcome::silent(reason)),
            false if self.answered >= Some(late) => put_off(target, fault.cause, reason, None),
            // It may be silent over this event alone.
            false if target.path.has_topic() => Ok(Outcome::silent(reason)),
            false => Err(Unavailability::new(fault.cause, reason)),
        }
    }

    fn send(&mut self, record: &Record, slot: usize) -> Result<(), Outcome> {
        let target = &self.dialer.target;
        let message = Message::of(record, target)?;
        let place: Arc<str> = match target.path.has_topic() {
            true => record.topic().into(),
            false => "".into(),
        };
        let under_way = self.places.entry(Arc::clone(&place)).or_default();
        under_way.under_way += 1;
        let order_key = record.order_key();
        self.keys.extend(order_key);
        let call = Call {
            slot,
            order_key,
            place,
            sent: Instant::now(),
        };
        let connection = (!self.idle.is_empty()).then(|| self.idle.remove(0).1);
        let (dialer, patience) = (Arc::clone(&self.dialer), self.patience);
        self.calls.spawn(async move {
            let told = post(&dialer, patience, connection, &message).await;
            Ended { call, told }
        });
        Ok(())
    }

    fn decide(&mut self, item: &WaitingRecord, slot: usize) -> Decision {
        let key = item.record.order_key();
        if key.is_some_and(|key| self.keys.contains(&key)) {
            return Decision::Wait;
        }
        match self.send(&item.record, slot) {
            Ok(()) => Decision::Sent(()),
            Err(outcome) => Decision::Answered(outcome),
        }
    }

    fn close_idle(&mut self) {
        let is_of_no_use = |(since, connection): &mut (Instant, Connection)| {
            since.elapsed() >= IDLE_MAX || connection.is_closed()
        };
        for (_, connection) in self.idle.extract_if(.., is_of_no_use) {
            connection.close();
        }
    }

    async fn next_ended(&mut self) {
        match self.calls.join_next().await {
            Some(Ok(ended)) => self.ended.push(ended),
            Some(Err(broken)) if broken.is_panic() => resume_unwind(broken.into_panic()),
            // Of a lane that is aborted.
            Some(Err(_)) => {}
            None => pending().await,
        }
    }
}

/// The endpoint in words. Its path may hold a secret.
fn endpoint(target: &Target, call: &Call) -> String {
    match target.path.has_topic() {
        true => format!("the endpoint of topic `{}`", call.place),
        false => "the endpoint".to_owned(),
    }
}

/// Not now: the endpoint of a topic holds back its topic, and a destination's only one ends the
/// lane.
fn put_off(
    target: &Target,
    cause: Cause,
    reason: String,
    wait: Option<Duration>,
) -> Result<Outcome, Unavailability> {
    match target.path.has_topic() {
        true => Ok(Outcome::Later(Box::new(Postponement {
            wait,
            ..Postponement::new(reason)
        }))),
        false => Err(Unavailability {
            wait,
            ..Unavailability::new(cause, reason)
        }),
    }
}

/// Posts a message, on this connection or on another one. One that broke says little: a server may
/// close it at any time, and does not say which requests it has taken before. So it is sent again,
/// under the same id, unless new connections break twice.
async fn post(
    dialer: &Dialer,
    patience: Patience,
    mut idle: Option<Connection>,
    message: &Message,
) -> Told {
    let end = Instant::now() + patience.answer;
    let mut has_broken = false;
    loop {
        let is_reused = idle.is_some();
        let connection = match idle.take() {
            Some(connection) => connection,
            None => {
                let end = end.min(Instant::now() + patience.connection);
                match dialer.connect(end, patience.acknowledgement).await {
                    Ok(connection) => connection,
                    Err(fault) => return Told::Unsent(fault),
                }
            }
        };
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let now = now.map_or(0, |time| time.as_secs());
        let request = match message.request(&dialer.target, now) {
            Ok(request) => request,
            Err(error) => return Told::Invalid(format!("it makes no request: {error}")),
        };
        return match timeout_at(end, connection.ask(request)).await {
            // Some servers say so before they close a connection that was idle.
            Ok(Exchange::Answered(answer, _))
                if is_reused && answer.status == StatusCode::REQUEST_TIMEOUT =>
            {
                continue;
            }
            Ok(Exchange::Answered(answer, connection)) => Told::Answer(answer, connection),
            // It was closed meanwhile.
            Ok(Exchange::Unsent) if is_reused => continue,
            Ok(Exchange::Unsent) => Told::Unsent(HostFault::connection(
                "a new connection was closed before a request was sent",
            )),
            // On one that was used before, bytes that are no answer may be left of the last one.
            Ok(Exchange::Broken(fault))
                if is_reused || fault.cause == Cause::Connection && !has_broken =>
            {
                has_broken |= !is_reused;
                continue;
            }
            Ok(Exchange::Broken(fault)) => Told::Nothing(fault),
            Err(_) => Told::Nothing(HostFault {
                cause: Cause::Unknown,
                reason: format!("no whole answer within {:?}", patience.answer),
            }),
        };
    }
}

impl Publisher for HttpPublisher {
    type InFlight = ();
    type Note = ();

    fn value_bytes_max(&self) -> Option<u64> {
        self.dialer.target.event_bytes_max
    }

    fn advance(&mut self, records: &mut Records) {
        for ended in mem::take(&mut self.ended) {
            self.settle(ended, records);
        }
        self.close_idle();
        if let Some(fault) = self.ending.take_due(!self.calls.is_empty()) {
            self.calls.abort_all();
            self.idle.clear();
            records.end(fault);
        }
        if self.ending.has_begun() {
            return;
        }
        let requests_max = self.dialer.target.requests_max as usize;
        records.decide(|item, next| match next.in_flight < requests_max {
            true => self.decide(item, next.slot),
            false => Decision::WaitAll,
        });
    }

    async fn changed(&mut self) {
        let idle_end = self.idle.first().map(|(since, _)| *since + IDLE_MAX);
        let next = [idle_end, self.ending.at()];
        match next.into_iter().flatten().min() {
            Some(end) => tokio::select! {
                () = self.next_ended() => {}
                () = sleep_until(end) => {}
            },
            None => self.next_ended().await,
        }
    }

    async fn goodbye(&mut self) {
        for (_, connection) in self.idle.drain(..) {
            connection.close();
        }
    }
}
