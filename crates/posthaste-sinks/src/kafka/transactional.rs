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

#[cfg(test)]
mod fuzz;
mod gathering;
mod judging;
mod place;
mod progress;
mod reading;
mod taking_over;
mod worker;

use std::{
    mem,
    ops::Range,
    sync::{Arc, mpsc},
    time::{Duration, Instant},
};

use async_trait::async_trait;
use posthaste_engine::{Cause, EventRef, Lane, LaneScope, LaneSpec, Record, SinkError, Verdict};
use rdkafka::types::RDKafkaErrorCode as Code;
use tokio::sync::oneshot;

use super::{
    client::{Client, Ended, News},
    directory::Directory,
    faults::Fault,
    ledger::Ledger,
    options::Settings,
    suspects::Suspects,
    topics::Topics,
};
use progress::Progress;
use worker::{Transaction, Worker};

pub(super) use place::{Absent, ensure};
pub(super) use reading::Unfinished;

/// Records of one transaction at the most. The client holds these, and its memory is what bounds them; a
/// commit takes some milliseconds whatever it commits.
const TRANSACTION_EVENTS_MAX: usize = 4_000;
/// One transaction's events under way, and the next one's gathering.
pub(super) const IN_FLIGHT_EVENTS_MAX: usize = 2 * TRANSACTION_EVENTS_MAX;
/// What a sink's lanes have in common.
#[derive(Clone)]
pub(super) struct Common {
    pub(super) settings: Arc<Settings>,
    pub(super) suspects: Arc<Suspects>,
    pub(super) directory: Arc<Directory>,
    pub(super) progress_topic: String,
    pub(super) unfinished: Arc<Unfinished>,
}

pub(super) struct TransactionalLane {
    common: Common,
    scope: Arc<LaneScope>,
    number: u64,
    publish_timeout: Duration,
    client: Client,
    transactions: mpsc::Sender<Transaction>,
    topics: Topics,
    progress: Progress,
    /// Partition of the progress topic; none before the lane has taken over.
    progress_partition: Option<i32>,
    ledger: Ledger,
    /// What the open transaction stands for. Sent records first, by their places in it.
    open: Vec<Flying>,
    alone: bool,
    /// What of it was refused or thrown away, by their places in it; judged when it has ended.
    failing: Vec<(usize, Code)>,
    /// Spreads records that no key binds.
    rotation: usize,
}

/// A record that the open transaction decides.
struct Flying {
    ticket: u64,
    order_key: Option<u64>,
    /// Index in [`Topics`]; none: an earlier transaction had accepted it, and it is not sent.
    topic: Option<usize>,
    batch: u64,
    event: EventRef,
    bytes: usize,
    /// The destination's partition.
    partition: u16,
}

impl TransactionalLane {
    /// Makes a producer and takes the fence of our own id.
    pub(super) async fn open(
        common: Common,
        spec: LaneSpec,
        reach: Duration,
    ) -> Result<Self, SinkError> {
        let settings = &common.settings;
        let directory = Arc::clone(&common.directory);
        let target = &settings.target;
        let id = taking_over::transactional_id(&spec.scope, spec.scope.registration);
        let config = settings.transactional(&id, spec.publish_timeout);
        let (transactions, jobs) = mpsc::channel();
        let (fenced_out, fenced) = oneshot::channel();
        let worker = Worker {
            progress_topic: common.progress_topic.clone(),
            transactions: jobs,
            limit: taking_over::limit(spec.publish_timeout),
        };
        let name = format!("kafka-lane-{}", spec.number);
        let work = move |producer: &_, shared: &_| worker.run(producer, shared, fenced_out);
        let client = Client::start_with(&config, target, name, work)?;
        client.reach(target, reach).await?;
        // Each time: it may have been deleted, or told to forget, since.
        ensure(settings, &common.progress_topic, Absent::Make, reach).await?;
        taking_over::expect_fence(&client, target, fenced).await?;
        Ok(Self {
            progress: Progress::new(&spec.scope),
            scope: spec.scope,
            number: spec.number,
            publish_timeout: spec.publish_timeout,
            common,
            client,
            transactions,
            topics: Topics::new(directory),
            progress_partition: None,
            open: Vec::new(),
            alone: false,
            failing: Vec::new(),
            ledger: Ledger::default(),
            rotation: 0,
        })
    }

    fn is_settled(&self) -> bool {
        self.ledger.waiting.is_empty() && self.open.is_empty()
    }

    /// Takes in what the client has told since.
    fn take_news(&mut self) {
        let news = self.client.news();
        if self.ledger.has_ended() {
            return;
        }
        let now = Instant::now();
        let News {
            failures,
            not_looked_up,
            transaction,
            overdue,
            ..
        } = news;
        if let Some((name, code)) = not_looked_up.first() {
            let (code, words) = (
                *code,
                format!("topic `{name}` could not be looked up: {code}"),
            );
            let (cause, reason) = self.trouble(&Fault { code, words });
            return self.end(cause, &reason);
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
        self.go_on();
    }

    /// Begins what may begin, and has looked up what that needs.
    fn go_on(&mut self) {
        self.advance();
        if !self.ledger.has_ended() {
            self.topics
                .look_up(&self.client, self.publish_timeout, Instant::now());
        }
        self.watch();
    }

    fn committed(&mut self) {
        let alone = mem::take(&mut self.alone);
        for record in mem::take(&mut self.open) {
            self.ledger.accept(record.ticket, record.batch);
            let Some(topic) = record.topic else { continue };
            let Flying {
                partition,
                event,
                ticket,
                ..
            } = record;
            self.progress.accepted(partition, event, ticket);
            if alone {
                let topic = self.topics.name(topic);
                self.common.suspects.acquit(id(event), topic, true);
            }
        }
    }

    /// Ends the lane: everything is answered, and the thread destroys the producer. Nothing is purged from
    /// here: the thread alone knows whether a commit is under way.
    fn end(&mut self, cause: Cause, reason: &str) {
        self.client.end();
        self.doubt();
        let under_way = self.open.drain(..);
        let under_way = under_way.map(|record| (record.ticket, record.order_key));
        self.ledger.end(under_way, cause, reason);
    }

    /// The topics of what is under way may be gone, and the client waits for those: the next lane
    /// looks first.
    fn doubt(&mut self) {
        let now = Instant::now();
        for topic in self.open.iter().filter_map(|record| record.topic) {
            self.topics.doubt(topic, now);
        }
    }

    /// Lets the client's thread know until when it may owe an answer.
    fn watch(&self) {
        let overdue_at = self.ledger.oldest().map(|at| at + self.publish_timeout);
        self.client.set_overdue_at(overdue_at);
    }
}

/// What suspicion is kept by.
fn id(event: EventRef) -> u128 {
    event.id.as_u128()
}

#[async_trait]
impl Lane for TransactionalLane {
    fn cluster(&self) -> Option<&str> {
        self.client.cluster()
    }

    async fn take_over(&mut self) -> Result<(), SinkError> {
        self.fence_former().await?;
        self.read_progress().await
    }

    async fn submit(&mut self, batch: Vec<Record>) {
        if batch.is_empty() {
            return;
        }
        if !self.ledger.has_ended() && self.progress_partition.is_none() {
            self.end(Cause::LaneEnded, "the lane has not taken over");
        }
        if self.ledger.has_ended() {
            return self.ledger.submit(batch);
        }
        // Before it is its turn: what was learned may be dropped, unless it was submitted.
        for record in &batch {
            let partition = self.progress.partition_of(record.event().slot());
            let event = record.event().reference();
            self.progress.suppresses(partition, event, record.ticket());
        }
        self.ledger.submit(batch);
        self.rotation = self.rotation.wrapping_add(1);
        self.go_on();
    }

    async fn outcomes(&mut self) -> Vec<Verdict> {
        loop {
            self.take_news();
            let ready = self.ledger.take_ready();
            if !ready.is_empty() {
                return ready;
            }
            let client = self.client.shared();
            tokio::select! {
                () = client.changed() => {}
                () = self.topics.changed() => {}
            }
        }
    }

    fn stored(&mut self, tickets: Range<u64>) {
        self.progress.stored(tickets);
    }

    fn caught_up(&mut self) {
        self.progress.caught_up();
    }

    async fn abort(mut self: Box<Self>) {
        self.doubt();
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
        verdicts.append(&mut self.ledger.take_ready());
        verdicts
    }
}
