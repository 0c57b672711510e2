//! A lane whose records are accepted by transactions, together with the progress that keeps them from
//! being sent twice.
//!
//! One transaction at a time. It takes what waits, up to a bound; what is submitted meanwhile waits for
//! the next one. So a lone event is committed at once, and a flood fills transactions. Within one, all
//! or nothing counts: a key's order needs no more than the order of sending, and any failure is the end
//! of the transaction, and of the lane unless its only record was at fault.
//!
//! The fence is the broker's: opening takes that of our own id (once for each lane), taking over those
//! of the former owners. Only then is the progress read, and only then may anything be sent.

mod judging;
mod place;
mod progress;
mod taking_over;
mod worker;

use std::{
    collections::{HashSet, VecDeque},
    mem,
    ops::Range,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    time::{Duration, Instant},
};

use async_trait::async_trait;
use posthaste_engine::{
    Batches, Cause, FailedKeys, Lane, LaneScope, LaneSpec, Outcome, Record, RejectionKind,
    SinkError, Verdict,
};
use rdkafka::types::RDKafkaErrorCode as Code;
use tokio::sync::oneshot;

use super::{
    client::{Client, Ended, News},
    faults::Fault,
    message,
    options::Settings,
    suspects::{Suspects, Trust},
    topics::{self, Route, Topics},
};
use progress::Progress;
use worker::{Sending, Transaction, Worker, Written};

pub(super) use place::check;

/// Records of one transaction at the most. The client holds these, and its memory is what bounds them; a
/// commit takes some milliseconds whatever it commits.
const TRANSACTION_EVENTS_MAX: usize = 4_000;
/// One transaction's events under way, and the next one's gathering.
pub(super) const IN_FLIGHT_EVENTS_MAX: usize = 2 * TRANSACTION_EVENTS_MAX;
/// How long a topic's look-up may take at most; it holds back that topic alone.
const LOOK_UP_MAX: Duration = Duration::from_secs(2);

/// What a sink's lanes have in common.
#[derive(Clone)]
pub(super) struct Common {
    pub(super) settings: Arc<Settings>,
    pub(super) suspects: Arc<Suspects>,
    /// The progress topic was seen, and is compacted.
    pub(super) seen_topic: Arc<AtomicBool>,
    pub(super) progress_topic: String,
}

pub(super) struct TransactionalLane {
    common: Common,
    scope: Arc<LaneScope>,
    number: u64,
    publish_timeout: Duration,
    client: Client,
    transactions: mpsc::Sender<Transaction>,
    batch_bytes_max: usize,
    topics: Topics,
    progress: Progress,
    /// Partition of the progress topic; none before the lane has taken over.
    progress_partition: Option<i32>,
    /// Not sent yet, in the order of submission.
    waiting: VecDeque<Waiting>,
    /// What the open transaction stands for. Sent records first, by their places in it.
    open: Vec<Flying>,
    alone: bool,
    /// What of it was refused or thrown away, by their places in it; judged when it has ended.
    failing: Vec<(usize, Code)>,
    batches: Batches<Instant>,
    failed: FailedKeys,
    /// Failures in `ready`, and before it.
    failures: u64,
    /// Failures whose verdicts were handed out.
    seen: u64,
    ready: Vec<Verdict>,
    /// What becomes of records that come after the lane's end.
    ended: Option<Outcome>,
    /// Spreads records that no key binds.
    rotation: usize,
}

struct Waiting {
    record: Record,
    topic: usize,
    batch: u64,
    /// Failures whose verdicts had been handed out when the record was submitted.
    seen: u64,
}

/// A record that the open transaction decides.
struct Flying {
    ticket: u64,
    order_key: Option<u64>,
    topic: usize,
    batch: u64,
    event: u128,
    bytes: usize,
    /// The destination's partition.
    partition: u16,
    /// False: an earlier transaction had accepted it.
    sent: bool,
}

/// What becomes of a record that waits while a transaction is gathered.
enum Step {
    /// It belongs to the transaction, and goes to this partition of its topic; none: it was accepted before.
    Take(Option<usize>),
    /// As `Take`, and nothing else belongs to the transaction.
    Alone(usize),
    Answered(Outcome),
    /// It waits, and so does its key.
    Wait,
    /// It waits for the next transaction, and so does everything behind it.
    WaitAll,
}

impl TransactionalLane {
    /// Makes a producer and takes the fence of our own id.
    pub(super) async fn open(
        common: Common,
        spec: LaneSpec,
        reach: Duration,
    ) -> Result<Self, SinkError> {
        let Common {
            settings, suspects, ..
        } = &common;
        let target = &settings.target;
        let batch_bytes_max = suspects.batch_bytes_max();
        let id = taking_over::transactional_id(&spec.scope, spec.scope.registration);
        let config = settings.transactional(batch_bytes_max, &id, spec.publish_timeout);
        let (transactions, jobs) = mpsc::channel();
        let (fenced_out, fenced) = oneshot::channel();
        let worker = Worker {
            progress_topic: common.progress_topic.clone(),
            transactions: jobs,
            fenced: fenced_out,
            limit: taking_over::limit(spec.publish_timeout),
        };
        let name = format!("kafka-lane-{}", spec.number);
        let work = move |producer: &_, shared: &_| worker.run(producer, shared);
        let client = Client::start_with(&config, target, name, work)?;
        client.reach(target, reach).await?;
        if !common.seen_topic.load(Ordering::Relaxed) {
            place::ensure(settings, &common.progress_topic, reach).await?;
            common.seen_topic.store(true, Ordering::Relaxed);
        }
        taking_over::expect_fence(&client, target, fenced).await?;
        Ok(Self {
            progress: Progress::new(&spec.scope),
            scope: spec.scope,
            number: spec.number,
            publish_timeout: spec.publish_timeout,
            common,
            client,
            transactions,
            batch_bytes_max,
            topics: Topics::default(),
            progress_partition: None,
            waiting: VecDeque::new(),
            open: Vec::new(),
            alone: false,
            failing: Vec::new(),
            batches: Batches::default(),
            failed: FailedKeys::default(),
            failures: 0,
            seen: 0,
            ready: Vec::new(),
            ended: None,
            rotation: 0,
        })
    }

    fn is_settled(&self) -> bool {
        self.waiting.is_empty() && self.open.is_empty()
    }

    /// Begins a transaction of what may be sent, unless one is open.
    fn advance(&mut self) {
        let Some(progress_partition) = self.progress_partition else {
            return;
        };
        if self.ended.is_some() {
            return;
        }
        while self.open.is_empty() && !self.waiting.is_empty() {
            let sending = self.gather();
            if !sending.is_empty() {
                return self.begin(sending, progress_partition);
            }
            // Everything that was taken had been accepted before.
            if self.open.is_empty() {
                return;
            }
            self.committed();
        }
    }

    /// Takes what belongs to the next transaction.
    fn gather(&mut self) -> Vec<Sending> {
        let now = Instant::now();
        let wary = !self.common.suspects.is_empty();
        let mut queue = mem::take(&mut self.waiting);
        let mut waiting_keys = HashSet::new();
        let mut taken = HashSet::new();
        let mut suppressed = Vec::new();
        let mut sending = Vec::new();
        while let Some(item) = queue.pop_front() {
            let key = item.record.order_key();
            let is_full = self.alone || taken.len() + suppressed.len() >= TRANSACTION_EVENTS_MAX;
            let step = match key {
                Some(key) if waiting_keys.contains(&key) => Step::Wait,
                // The same event twice: the second one finds the first one accepted.
                _ if is_full || taken.contains(&id(&item.record)) => Step::WaitAll,
                _ => self.step(&item, now, wary),
            };
            match step {
                Step::Take(None) => suppressed.push(self.flying(&item, false)),
                Step::Take(Some(partition)) => {
                    taken.insert(id(&item.record));
                    self.open.push(self.flying(&item, true));
                    sending.push(to(partition, item.record));
                }
                Step::Alone(partition) if taken.is_empty() && suppressed.is_empty() => {
                    self.alone = true;
                    self.open.push(self.flying(&item, true));
                    sending.push(to(partition, item.record));
                }
                Step::Answered(outcome) => {
                    self.batches.answered(item.batch);
                    self.refuse(item.record.ticket(), key, outcome);
                }
                Step::Wait => {
                    waiting_keys.extend(key);
                    self.waiting.push_back(item);
                }
                Step::WaitAll | Step::Alone(_) => {
                    self.waiting.push_back(item);
                    break;
                }
            }
        }
        self.waiting.append(&mut queue);
        self.open.append(&mut suppressed);
        sending
    }

    fn step(&mut self, item: &Waiting, now: Instant, wary: bool) -> Step {
        let record = &item.record;
        if self.failed.refuses(record.order_key(), item.seen) {
            return Step::Answered(Outcome::unavailable(
                Cause::BehindFailure,
                "not tried: an earlier event of its key was not accepted",
            ));
        }
        let partition = self.progress.partition_of(record.event().slot());
        if self
            .progress
            .suppresses(partition, id(record), record.ticket())
        {
            return Step::Take(None);
        }
        if self.topics.wants_look_up(item.topic, now) {
            let limit = LOOK_UP_MAX.min(self.publish_timeout / 2);
            self.client.look_up(item.topic, record.topic(), limit);
        }
        let partitions = match self.topics.route(item.topic, now) {
            Route::Partitions(count) => count,
            Route::NotYet => return Step::Wait,
            Route::Refused(outcome) => return Step::Answered(outcome),
        };
        if let Some(refused) = message::refusal(record) {
            return Step::Answered(refused);
        }
        let trust = match wary {
            true => self.common.suspects.trust(id(record), record.topic(), now),
            false => Trust::Full,
        };
        let place = topics::place(record, partitions, self.rotation);
        match trust {
            Trust::Denied => {
                let reason = topics::denial(record.topic());
                Step::Answered(Outcome::rejected(RejectionKind::Denied, reason))
            }
            Trust::Alone => Step::Alone(place),
            // If it is refused, it must not take with it what is under way beside it.
            Trust::Full if message::bytes(record) > self.batch_bytes_max => Step::Alone(place),
            Trust::Full => Step::Take(Some(place)),
        }
    }

    fn flying(&self, item: &Waiting, sent: bool) -> Flying {
        let record = &item.record;
        Flying {
            ticket: record.ticket(),
            order_key: record.order_key(),
            topic: item.topic,
            batch: item.batch,
            event: id(record),
            bytes: message::bytes(record),
            partition: self.progress.partition_of(record.event().slot()),
            sent,
        }
    }

    fn begin(&mut self, records: Vec<Sending>, progress_partition: i32) {
        let mut touched: Vec<(u16, u128)> = self
            .open
            .iter()
            .filter(|record| record.sent)
            .map(|record| (record.partition, record.event))
            .collect();
        touched.sort_unstable_by_key(|&(partition, _)| partition);
        let progress = touched
            .chunk_by(|(one, _), (other, _)| one == other)
            .map(|of_partition| {
                let further: Vec<u128> = of_partition.iter().map(|&(_, event)| event).collect();
                let (key, value) = self.progress.record(of_partition[0].0, &further);
                Written {
                    partition: progress_partition,
                    key,
                    value,
                }
            })
            .collect();
        let transaction = Transaction {
            records,
            progress,
            alone: self.alone,
        };
        // Without a receiver, the news that the producer has ended is on its way.
        let _ = self.transactions.send(transaction);
    }

    /// Takes in what the client has told since.
    fn take_news(&mut self) {
        let news = self.client.news();
        if self.ended.is_some() {
            return;
        }
        let now = Instant::now();
        let News {
            failures,
            topics,
            transaction,
            overdue,
            ..
        } = news;
        for answer in topics {
            let index = answer.index;
            if let Err(code) = self.topics.answered(answer, now) {
                let words = format!("topic `{}`: {code}", self.topics.name(index));
                let (cause, reason) = self.trouble(&Fault { code, words });
                return self.end(cause, &reason);
            }
        }
        self.failing.extend(failures);
        let failures = match transaction {
            Some(_) => mem::take(&mut self.failing),
            None => Vec::new(),
        };
        match transaction {
            Some(Ended::Committed) => self.committed(),
            Some(Ended::Aborted(fault)) => self.refused_alone(&failures, &fault, now),
            Some(Ended::Broken(fault)) => self.broken(&failures, &fault, now),
            None if overdue => {
                let code = Code::OperationTimedOut;
                let words = format!("no answer within {:?}", self.publish_timeout);
                let (cause, reason) = self.trouble(&Fault { code, words });
                self.end(cause, &reason);
            }
            None => {}
        }
        self.advance();
        self.watch();
    }

    fn committed(&mut self) {
        let alone = mem::take(&mut self.alone);
        for record in mem::take(&mut self.open) {
            self.batches.answered(record.batch);
            if record.sent {
                let Flying {
                    partition,
                    event,
                    ticket,
                    ..
                } = record;
                self.progress.accepted(partition, event, ticket);
            }
            if alone {
                let topic = self.topics.name(record.topic);
                self.common.suspects.acquit(record.event, topic, true);
            }
            self.ready.push(Verdict {
                ticket: record.ticket,
                outcome: Outcome::Accepted(None),
            });
        }
    }

    fn refuse(&mut self, ticket: u64, order_key: Option<u64>, outcome: Outcome) {
        self.failures = self.failed.note(order_key);
        self.ready.push(Verdict { ticket, outcome });
    }

    /// Ends the lane: everything is answered, and the thread destroys the producer. Nothing is purged from
    /// here: the thread alone knows whether a commit is under way.
    fn end(&mut self, cause: Cause, reason: &str) {
        self.client.end();
        let under_way = Outcome::unavailable(cause, reason);
        for record in mem::take(&mut self.open) {
            self.refuse(record.ticket, record.order_key, under_way.clone());
        }
        let later = format!("not sent: the lane had ended: {reason}");
        let later = Outcome::unavailable(Cause::LaneEnded, later);
        for item in mem::take(&mut self.waiting) {
            self.refuse(item.record.ticket(), item.record.order_key(), later.clone());
        }
        self.ended = Some(later);
        self.batches.clear();
    }

    /// Lets the client's thread know until when it may owe an answer.
    fn watch(&self) {
        let overdue_at = self.batches.oldest().map(|at| at + self.publish_timeout);
        self.client.set_overdue_at(overdue_at);
    }
}

fn to(partition: usize, record: Record) -> Sending {
    Sending {
        record,
        // Kafka counts partitions in 31 bits.
        partition: i32::try_from(partition).unwrap_or(i32::MAX),
    }
}

fn id(record: &Record) -> u128 {
    record.event().id().as_u128()
}

#[async_trait]
impl Lane for TransactionalLane {
    async fn take_over(&mut self) -> Result<(), SinkError> {
        self.fence_former().await?;
        self.read_progress().await
    }

    async fn submit(&mut self, batch: Vec<Record>) {
        if batch.is_empty() {
            return;
        }
        if self.ended.is_none() && self.progress_partition.is_none() {
            self.end(Cause::LaneEnded, "the lane has not taken over");
        }
        if let Some(ended) = self.ended.clone() {
            for record in &batch {
                self.refuse(record.ticket(), record.order_key(), ended.clone());
            }
            return;
        }
        if self.waiting.is_empty() {
            self.failed.forget(self.seen);
        }
        let number = self.batches.begin(Instant::now(), batch.len());
        self.rotation = self.rotation.wrapping_add(1);
        for record in batch {
            // Before it is its turn: what was learned may be dropped, unless it was submitted.
            let partition = self.progress.partition_of(record.event().slot());
            self.progress
                .suppresses(partition, id(&record), record.ticket());
            self.waiting.push_back(Waiting {
                topic: self.topics.index(record.topic()),
                record,
                batch: number,
                seen: self.seen,
            });
        }
        self.advance();
        self.watch();
    }

    async fn outcomes(&mut self) -> Vec<Verdict> {
        loop {
            self.take_news();
            if !self.ready.is_empty() {
                self.seen = self.failures;
                return mem::take(&mut self.ready);
            }
            self.client.shared().changed().await;
        }
    }

    fn stored(&mut self, tickets: Range<u64>) {
        self.progress.stored(tickets);
    }

    fn caught_up(&mut self) {
        self.progress.caught_up();
    }

    async fn abort(self: Box<Self>) {
        self.client.destroy().await;
    }

    async fn close(mut self: Box<Self>, limit: Duration) -> Vec<Verdict> {
        let mut verdicts = Vec::new();
        // Running out of time is an end as good as the other: what is left is answered below.
        let _ = tokio::time::timeout(limit, async {
            while !self.is_settled() {
                verdicts.append(&mut self.outcomes().await);
            }
        })
        .await;
        if !self.is_settled() {
            self.end(Cause::LaneEnded, "not answered within the time for closing");
        }
        verdicts.append(&mut self.ready);
        verdicts
    }
}
