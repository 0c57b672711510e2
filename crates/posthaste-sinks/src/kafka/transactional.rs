//! A lane whose records are accepted by transactions, together with the progress that keeps them
//! from being sent twice.
//!
//! One transaction at a time. It takes what waits, up to a bound; what is submitted meanwhile waits
//! for the next one. So a lone event is committed at once, and a flood fills transactions. Within
//! one, all or nothing counts: a key's order needs no more than the order of sending, and any
//! failure is the end of the transaction, and of the lane unless its only record was at fault.
//!
//! The fence is the broker's: opening takes that of our own id (once for each lane), taking over
//! those of the former owners. Only then is the progress read, and only then may anything be sent.

mod failures;
mod fence;
#[cfg(test)]
mod fuzz;
mod gathering;
mod progress;
mod progress_topic;
mod reading;
mod slow;
mod taking_over;
mod worker;

use std::{
    mem,
    sync::{Arc, mpsc},
    time::{Duration, Instant},
};

use posthaste_engine::{
    Acceptance, Cause, EventRef, LaneScope, LaneSpec, Outcome, Record, SinkError, StoredProgress,
    Unavailability,
};
use rdkafka::types::RDKafkaErrorCode as Code;
use tokio::sync::oneshot;

use super::{
    client::{Client, Ended, News},
    directory::Directory,
    faults::ClientFault,
    options::Settings,
    refusals::Refusals,
    topics::{LookUpWait, Topics},
};
use crate::publisher::{InPlacePublisher, Publisher, RecordsOf};
use progress::Progress;
use slow::Slow;
use worker::{Transaction, TransactionWorker};

pub(super) use progress_topic::{IfAbsent, LogContext, client, ensure};
pub(super) use reading::Unfinished;

/// Records of one transaction at the most. The client holds these, and its memory is what bounds
/// them; a commit takes some milliseconds whatever it commits.
const TRANSACTION_EVENTS_MAX: usize = 4_000;
/// One transaction's events under way, and the next one's gathering.
pub(super) const IN_FLIGHT_EVENTS_MAX: usize = 2 * TRANSACTION_EVENTS_MAX;

/// The state that a sink's lanes share.
#[derive(Clone)]
pub(super) struct LaneContext {
    pub(super) settings: Arc<Settings>,
    pub(super) refusals: Arc<Refusals>,
    pub(super) directory: Arc<Directory>,
    pub(super) progress_topic: String,
    pub(super) unfinished: Arc<Unfinished>,
}

/// Publishes by transactions. The records in flight are those that the open transaction decides.
pub(super) struct TransactionalPublisher {
    context: LaneContext,
    scope: Arc<LaneScope>,
    number: u64,
    publish_timeout: Duration,
    client: Client,
    transactions: mpsc::Sender<Transaction>,
    topics: Topics,
    progress: Progress,
    /// Partition of the progress topic; none before the lane has taken over.
    progress_partition: Option<i32>,
    /// Slots of the records that the open transaction sends, by their places in it.
    sent: Vec<usize>,
    /// None: no transaction is open.
    slow: Option<Slow>,
    alone: bool,
    /// Records of it that were refused or thrown away, by their places in it; handled when it has
    /// ended.
    failing: Vec<(usize, Code)>,
    /// Spreads records that no key binds.
    rotation: usize,
}

/// A record that the open transaction decides.
pub(super) struct InTransaction {
    ticket: u64,
    /// Index in [`Topics`]; none: an earlier transaction had accepted it, and it is not sent.
    topic: Option<usize>,
    event: EventRef,
    bytes: usize,
    /// The destination's partition.
    partition: u16,
}

type Records = RecordsOf<TransactionalPublisher>;

impl TransactionalPublisher {
    /// Makes a producer and takes the fence of our own id.
    pub(super) async fn open(
        context: LaneContext,
        spec: LaneSpec,
        reach: Duration,
    ) -> Result<Self, SinkError> {
        let settings = &context.settings;
        let directory = Arc::clone(&context.directory);
        let target = &settings.target;
        let id = fence::transactional_id(&spec.scope, spec.scope.registration);
        let config = settings.transactional(&id, spec.publish_timeout);
        let (transactions, jobs) = mpsc::channel();
        let (fenced_out, fenced) = oneshot::channel();
        let worker = TransactionWorker {
            progress_topic: context.progress_topic.clone(),
            transactions: jobs,
            limit: fence::limit(spec.publish_timeout),
        };
        let name = format!("kafka-lane-{}", spec.number);
        let work = move |producer: &_, shared: &_| worker.run(producer, shared, fenced_out);
        let client = Client::start_with(&config, target, name, work)?;
        client.reach(target, reach).await?;
        // Each time: it may have been deleted, or told to forget, since.
        ensure(settings, &context.progress_topic, IfAbsent::Make, reach).await?;
        fence::expect(&client, target, fenced).await?;
        Ok(Self {
            progress: Progress::new(&spec.scope),
            scope: spec.scope,
            number: spec.number,
            publish_timeout: spec.publish_timeout,
            context,
            client,
            transactions,
            topics: Topics::new(directory),
            progress_partition: None,
            sent: Vec::new(),
            slow: None,
            alone: false,
            failing: Vec::new(),
            rotation: 0,
        })
    }

    /// Takes in what the client has told since.
    fn take_news(&mut self, records: &mut Records) {
        let News {
            failures,
            not_looked_up,
            transaction,
            overdue,
            ..
        } = self.client.news();
        if records.has_ended() {
            return;
        }
        let now = Instant::now();
        if overdue {
            self.topics.doubt_leaders();
        }
        if let Some((name, code)) = not_looked_up.first() {
            let (code, words) = (
                *code,
                format!("topic `{name}` could not be looked up: {code}"),
            );
            return self.end(records, self.trouble(&ClientFault { code, words }));
        }
        self.failing.extend(failures);
        let failures = match transaction {
            Some(_) => {
                self.slow = None;
                mem::take(&mut self.failing)
            }
            None => Vec::new(),
        };
        match transaction {
            Some(Ended::Committed) => self.committed(records),
            Some(Ended::Aborted(fault)) => self.refused_alone(records, &failures, &fault, now),
            Some(Ended::Broken(fault)) => self.broken(records, &failures, &fault, now),
            None if overdue => {
                let code = Code::OperationTimedOut;
                let words = format!("no answer within {:?}", self.publish_timeout);
                self.end(records, self.trouble(&ClientFault { code, words }));
            }
            None => {}
        }
    }

    fn committed(&mut self, records: &mut Records) {
        self.sent.clear();
        let alone = mem::take(&mut self.alone);
        let outcome = |record: &InTransaction| {
            Outcome::Accepted(Acceptance {
                receipt: None,
                is_duplicate: record.topic.is_none(),
            })
        };
        for record in records.answer_each(outcome) {
            let Some(topic) = record.topic else { continue };
            self.progress
                .accepted(record.partition, record.event, record.ticket);
            if alone {
                let topic = self.topics.name(topic);
                self.context
                    .refusals
                    .accepted_alone(id(record.event), topic);
            }
        }
    }

    /// The topics of what is under way may be gone, and the client waits for those: the next lane
    /// looks first.
    fn doubt_topics(&mut self, records: &Records) {
        let topics = records.in_flight().filter_map(|record| record.topic);
        self.topics.doubt(&topics.collect(), Instant::now());
    }
}

/// The id by which refused events are known.
fn id(event: EventRef) -> u128 {
    event.id.as_u128()
}

impl Publisher for TransactionalPublisher {
    type InFlight = InTransaction;
    type Note = LookUpWait;

    fn advance(&mut self, records: &mut Records) {
        self.take_news(records);
        self.begin_transaction(records);
        if !records.has_ended() {
            let now = Instant::now();
            self.ask_if_slow(records, now);
            self.topics.look_up(&self.client, self.publish_timeout, now);
        }
        self.client
            .owes_since(records.oldest(), self.publish_timeout);
    }

    async fn changed(&mut self) {
        tokio::select! {
            () = self.topics.changed(self.client.shared()) => {}
            () = Slow::is_due(self.slow) => {}
        }
    }
}

impl InPlacePublisher for TransactionalPublisher {
    async fn take_over(&mut self) -> Result<Option<String>, SinkError> {
        self.fence_former().await?;
        self.read_progress().await?;
        Ok(self.client.cluster().map(str::to_owned))
    }

    fn submitting(&mut self, batch: &[Record], records: &mut Records) {
        if self.progress_partition.is_none() {
            let reason = "the lane has not taken over".to_owned();
            return self.end(records, Unavailability::new(Cause::LaneEnded, reason));
        }
        // Before it is its turn: what was learned may be dropped, unless it was submitted.
        for record in batch {
            let partition = self.progress.partition_of(record.event().slot());
            let event = record.event().reference();
            self.progress.suppresses(partition, event, record.ticket());
        }
        self.rotation = self.rotation.wrapping_add(1);
    }

    fn progressed(&mut self, progress: StoredProgress) {
        match progress {
            StoredProgress::Finished(tickets) => self.progress.stored(tickets),
            StoredProgress::CaughtUp => self.progress.caught_up(),
        }
    }

    /// The thread destroys the producer. Nothing is purged from here: the thread alone knows
    /// whether a commit is under way.
    fn end(&mut self, records: &mut Records, fault: Unavailability) {
        self.client.end();
        self.doubt_topics(records);
        self.sent.clear();
        self.slow = None;
        records.end(fault);
    }

    async fn abort(mut self, records: Records) {
        self.doubt_topics(&records);
        // Its thread notices at once if it waits for the next transaction.
        drop(self.transactions);
        self.client.destroy().await;
    }
}
