//! One producer of the client library, and the thread that polls it.
//!
//! The thread owns the producer's end: it purges and destroys it when the lane says so, and also
//! when an answer is overdue while the task that runs the lane is stuck.

use std::{
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use posthaste_engine::{Cause, SinkError};
use rdkafka::{
    ClientConfig, ClientContext,
    config::{FromClientConfigAndContext, RDKafkaLogLevel},
    error::KafkaError,
    message::{DeliveryResult, Message as _},
    producer::{BaseProducer, Producer as _, ProducerContext, PurgeConfig},
    types::RDKafkaErrorCode as Code,
};
use tokio::sync::{Notify, watch};

use super::{
    connections::EndedConnections,
    faults::{self, ClientFault, error},
    topic_names,
};

/// How late the thread may notice that it should end.
const TURN: Duration = Duration::from_millis(50);
/// How long an abort waits for the destruction, which nothing else depends on: what was purged is
/// gone.
const DESTROY_MAX: Duration = Duration::from_secs(1);
/// How long reports may take to come once everything was purged.
const REPORTS_MAX: Duration = Duration::from_millis(500);
const NEVER: u64 = u64::MAX;

pub(super) type Producer = BaseProducer<Context>;

/// A lane's handle of a producer. Dropping it purges and destroys the producer in the background.
pub(super) struct Client {
    /// Weak, so that the thread can destroy the producer whatever the lane's task is doing.
    producer: Weak<Producer>,
    shared: Arc<Shared>,
    destroyed: watch::Receiver<()>,
    cluster: OnceLock<String>,
}

/// The state that the callbacks, the thread and the lane share.
pub(super) struct Shared {
    inbox: Mutex<Inbox>,
    changed: Notify,
    ended: AtomicBool,
    /// Locked while a record is handed over: see [`Client::hand_over`].
    is_purged: Mutex<bool>,
    born: Instant,
    /// Milliseconds after `born` at which an answer is overdue.
    overdue_at: AtomicU64,
}

#[derive(Default)]
struct Inbox {
    news: News,
    /// Kept back until a poll has ended, so that the reports of a refused batch come together: the
    /// lane handles them as one.
    failures: Vec<(usize, Code)>,
    trouble: Option<Trouble>,
    ended: EndedConnections,
    /// Topics that the broker named when it refused them to a transaction.
    named: Vec<Box<str>>,
}

/// Events since the lane looked last.
#[derive(Default)]
pub(super) struct News {
    /// With the offsets, where they are known.
    pub(super) delivered: Vec<(usize, Option<u64>)>,
    pub(super) failures: Vec<(usize, Code)>,
    /// Topics that could not be looked up, for no fault of theirs.
    pub(super) not_looked_up: Vec<(Box<str>, Code)>,
    /// How the transaction ended.
    pub(super) transaction: Option<Ended>,
    /// The thread gave up, and has purged the producer.
    pub(super) overdue: bool,
}

/// How a transaction ended.
#[derive(Debug)]
pub(super) enum Ended {
    Committed,
    /// Without effect; the producer goes on.
    Aborted(ClientFault),
    /// So that its fate is unknown, or without effect; the producer has ended.
    Broken(ClientFault),
}

/// The client's latest complaint that no success has followed.
#[derive(Debug, Clone)]
pub(super) struct Trouble {
    pub(super) code: Code,
    pub(super) words: String,
}

/// Receives the client's callbacks, all on the polling thread.
pub(super) struct Context(Arc<Shared>);

impl Shared {
    fn inbox(&self) -> MutexGuard<'_, Inbox> {
        // Nothing panics while it holds the lock.
        self.inbox.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_purged(&self) -> MutexGuard<'_, bool> {
        // A panic leaves one record behind, which was handed over or was not.
        self.is_purged
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn tell(&self, change: impl FnOnce(&mut News)) {
        change(&mut self.inbox().news);
        self.changed.notify_one();
    }

    pub(super) fn hand_over_failures(&self) {
        let mut inbox = self.inbox();
        if !inbox.failures.is_empty() {
            let mut failures = std::mem::take(&mut inbox.failures);
            inbox.news.failures.append(&mut failures);
            drop(inbox);
            self.changed.notify_one();
        }
    }

    /// Throws away reports that have not been handed over.
    pub(super) fn forget_failures(&self) {
        self.inbox().failures.clear();
    }

    /// The client's complaint says that there is a fatal fault; another call says which.
    fn explain_fatal(&self, producer: &Producer) {
        let mut inbox = self.inbox();
        if inbox.trouble.as_ref().map(|trouble| trouble.code) == Some(Code::Fatal)
            && let Some((code, words)) = producer.client().fatal_error()
        {
            inbox.trouble = Some(Trouble { code, words });
        }
    }

    fn is_overdue(&self) -> bool {
        let overdue_at = self.overdue_at.load(Ordering::Acquire);
        overdue_at != NEVER && self.born.elapsed() > Duration::from_millis(overdue_at)
    }

    /// How long the thread may wait for an answer: until it is overdue. `otherwise`: where none is
    /// owed.
    pub(super) fn patience(&self, otherwise: Duration) -> Duration {
        let overdue_at = self.overdue_at.load(Ordering::Acquire);
        if overdue_at == NEVER {
            return otherwise;
        }
        // A little more than until then, so that it is overdue when the waiting ends.
        Duration::from_millis(overdue_at.saturating_add(2)).saturating_sub(self.born.elapsed())
    }

    /// Whether the thread is to end the producer.
    pub(super) fn must_end(&self) -> bool {
        self.ended.load(Ordering::Acquire) || self.is_overdue()
    }

    /// Takes the topics that the broker named when it refused them.
    pub(super) fn take_named(&self) -> Vec<Box<str>> {
        std::mem::take(&mut self.inbox().named)
    }
}

impl ClientContext for Context {
    fn log(&self, _level: RDKafkaLogLevel, facility: &str, message: &str) {
        tracing::debug!(target: "librdkafka", facility, message);
        // Which topic was refused to a transaction, the client says nowhere else. A hint: without
        // it the events are sent one by one.
        if let Some(topic) = topic_names::named_in_refusal(facility, message) {
            self.0.inbox().named.push(topic.into());
        }
        let now = Instant::now();
        self.0.inbox().ended.take_log(facility, message, now);
    }

    fn error(&self, error: KafkaError, reason: &str) {
        let Some(code) = error.rdkafka_error_code() else {
            return;
        };
        tracing::debug!(target: "librdkafka", ?code, reason);
        let mut inbox = self.0.inbox();
        let known = inbox.trouble.as_ref().map(|trouble| trouble.code);
        // "All brokers are down" follows what says why, and a refused login ends in a lost
        // connection.
        let says_less = match known {
            Some(known) if matches!(faults::cause(known), Cause::Denied | Cause::Misconfigured) => {
                faults::cause(code) == Cause::Connection
            }
            known => known.is_some() && code == Code::AllBrokersDown,
        };
        if !says_less {
            inbox.trouble = Some(Trouble {
                code,
                words: without_counts(reason).to_owned(),
            });
        }
    }
}

/// The client's words without its counts: "(after 0ms in state CONNECT, 1 identical error(s)
/// suppressed)".
fn without_counts(words: &str) -> &str {
    words
        .rsplit_once(" (after ")
        .map_or(words, |(words, _)| words)
}

impl ProducerContext for Context {
    type DeliveryOpaque = usize;

    fn delivery(&self, result: &DeliveryResult<'_>, at: usize) {
        let mut inbox = self.0.inbox();
        match result {
            Ok(message) => {
                let first = inbox.news.delivered.is_empty();
                let offset = u64::try_from(message.offset()).ok();
                inbox.news.delivered.push((at, offset));
                inbox.trouble = None;
                drop(inbox);
                if first {
                    self.0.changed.notify_one();
                }
            }
            Err((error, _)) => {
                let code = error.rdkafka_error_code().unwrap_or(Code::Unknown);
                inbox.failures.push((at, code));
            }
        }
    }
}

impl Client {
    /// Makes a producer. Connects to nothing yet.
    ///
    /// # Errors
    /// [`SinkError::Misconfigured`] when the client library refuses the settings.
    pub(super) fn start(
        config: &ClientConfig,
        target: &str,
        thread_name: String,
    ) -> Result<Self, SinkError> {
        Self::start_with(config, target, thread_name, poll)
    }

    /// Makes a producer whose thread does `work` until that returns; then it purges and destroys
    /// it.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub(super) fn start_with(
        config: &ClientConfig,
        target: &str,
        thread_name: String,
        work: impl FnOnce(&Producer, &Shared) + Send + 'static,
    ) -> Result<Self, SinkError> {
        let shared = Arc::new(Shared {
            inbox: Mutex::default(),
            changed: Notify::new(),
            ended: AtomicBool::new(false),
            is_purged: Mutex::new(false),
            born: Instant::now(),
            overdue_at: AtomicU64::new(NEVER),
        });
        let context = Context(Arc::clone(&shared));
        let producer = BaseProducer::from_config_and_context(config, context).map_err(|error| {
            SinkError::Misconfigured {
                target: target.to_owned(),
                reason: format!("the Kafka client refuses its settings: {error}"),
            }
        })?;
        let producer = Arc::new(producer);
        let (destroyed_out, destroyed) = watch::channel(());
        let client = Self {
            producer: Arc::downgrade(&producer),
            shared: Arc::clone(&shared),
            destroyed,
            cluster: OnceLock::new(),
        };
        thread::Builder::new()
            .name(thread_name)
            .spawn(move || {
                work(&producer, &shared);
                destroy(producer, &shared);
                drop(destroyed_out);
            })
            .map_err(|error| SinkError::Unavailable {
                target: target.to_owned(),
                reason: format!("no thread could be started: {error}"),
            })?;
        Ok(client)
    }

    /// The producer, unless its thread has ended it. Give it back soon.
    pub(super) fn producer(&self) -> Option<Arc<Producer>> {
        self.producer.upgrade()
    }

    /// Hands a record over by `send`, unless the thread has purged the producer: the record would
    /// be sent while those that were purged in front of it are not.
    pub(super) fn hand_over<T>(&self, send: impl FnOnce() -> T) -> Option<T> {
        let is_purged = self.shared.is_purged();
        (!*is_purged).then(send)
    }

    /// The producer, for a task that may outlive the client.
    pub(super) fn weak(&self) -> Weak<Producer> {
        Weak::clone(&self.producer)
    }

    pub(super) fn shared(&self) -> Arc<Shared> {
        Arc::clone(&self.shared)
    }

    /// Waits until the cluster has answered.
    ///
    /// # Errors
    /// [`SinkError`] with the client's own words when it has not within `limit`, or refuses us.
    pub(super) async fn reach(&self, target: &str, limit: Duration) -> Result<(), SinkError> {
        let weak = self.weak();
        let shared = self.shared();
        let named = target.to_owned();
        let cluster = tokio::task::spawn_blocking(move || reach(&weak, &shared, &named, limit))
            .await
            .map_err(|error| SinkError::Bug {
                target: target.to_owned(),
                reason: format!("the task that reaches for the cluster broke down: {error}"),
            })??;
        self.cluster.get_or_init(|| cluster);
        Ok(())
    }

    /// The id of the cluster that was reached.
    pub(super) fn cluster(&self) -> Option<&str> {
        self.cluster.get().map(String::as_str)
    }

    /// Tells the thread since when an answer is owed, if one is, and how long one may take: it ends
    /// the producer then.
    pub(super) fn owes_since(&self, oldest: Option<Instant>, publish_timeout: Duration) {
        let millis = oldest.map_or(NEVER, |oldest| {
            let at = oldest + publish_timeout;
            let after = at.saturating_duration_since(self.shared.born).as_millis();
            u64::try_from(after).unwrap_or(NEVER)
        });
        self.shared.overdue_at.store(millis, Ordering::Release);
    }

    /// The fault after which the producer sends nothing any more.
    pub(super) fn fatal(&self) -> Option<(Code, String)> {
        self.producer()?.client().fatal_error()
    }

    /// The client's complaint since its last success.
    pub(super) fn trouble(&self) -> Option<Trouble> {
        self.shared.inbox().trouble.clone()
    }

    /// Whether a connection to this broker may have ended since then.
    pub(super) fn may_have_lost(&self, broker: i32, since: Instant) -> bool {
        self.shared.inbox().ended.may_have_since(broker, since)
    }

    /// Takes the news.
    pub(super) fn news(&self) -> News {
        std::mem::take(&mut self.shared.inbox().news)
    }

    /// Purges and destroys the producer in the background.
    pub(super) fn end(&self) {
        self.shared.ended.store(true, Ordering::Release);
    }

    /// Ends the producer and waits for its destruction, for a bounded time.
    pub(super) async fn destroy(self) {
        let mut destroyed = self.destroyed.clone();
        self.end();
        // Nothing is ever sent: the channel closes when the producer is gone.
        let _ = tokio::time::timeout(DESTROY_MAX, destroyed.changed()).await;
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.end();
    }
}

impl Shared {
    /// Waits for news.
    pub(super) async fn changed(&self) {
        self.changed.notified().await;
    }
}

fn poll(producer: &Producer, shared: &Shared) {
    while !shared.must_end() {
        serve(producer, shared, TURN);
    }
}

/// Serves the client's callbacks.
pub(super) fn serve(producer: &Producer, shared: &Shared, turn: Duration) {
    producer.poll(turn);
    shared.explain_fatal(producer);
    shared.hand_over_failures();
}

/// Throws away all records of the producer.
pub(super) fn purge(producer: &Producer) {
    producer.purge(PurgeConfig::default().queue().inflight());
}

/// Lets the reports of purged records come in, for a bounded time. Answers whether all have come.
pub(super) fn collect_reports(producer: &Producer) -> bool {
    let asked = Instant::now();
    // Not by flushing, which looks for reports once in a tenth of a second.
    while producer.in_flight_count() > 0 {
        if asked.elapsed() >= REPORTS_MAX {
            return false;
        }
        producer.poll(Duration::ZERO);
        thread::sleep(Duration::from_millis(1));
    }
    true
}

fn destroy(mut producer: Arc<Producer>, shared: &Shared) {
    // Nothing is handed over behind the purge, and that comes before the lane can learn that an
    // answer is overdue: what is purged is not sent.
    *shared.is_purged() = true;
    purge(&producer);
    if shared.is_overdue() {
        shared.tell(|news| news.overdue = true);
    }
    // Otherwise the producer flushes when it is dropped.
    collect_reports(&producer);
    // Destroyed here, not by its last holder: that can block for a while.
    loop {
        match Arc::try_unwrap(producer) {
            Ok(producer) => return drop(producer),
            Err(shared_still) => producer = shared_still,
        }
        producer.poll(Duration::from_millis(1));
        thread::sleep(Duration::from_millis(1));
    }
}

fn reach(
    producer: &Weak<Producer>,
    shared: &Shared,
    target: &str,
    limit: Duration,
) -> Result<String, SinkError> {
    /// How late a refusal may be noticed.
    const STEP: Duration = Duration::from_millis(50);
    let started = Instant::now();
    loop {
        let Some(producer) = producer.upgrade() else {
            return Err(SinkError::Unavailable {
                target: target.to_owned(),
                reason: "given up before the cluster answered".to_owned(),
            });
        };
        if let Some(cluster) = producer.client().fetch_cluster_id(STEP) {
            return Ok(cluster);
        }
        drop(producer);
        let trouble = shared.inbox().trouble.clone();
        let is_final = trouble.as_ref().is_some_and(|trouble| {
            matches!(
                faults::cause(trouble.code),
                Cause::Denied | Cause::Misconfigured
            )
        });
        if is_final || started.elapsed() >= limit {
            let trouble = trouble.unwrap_or_else(|| Trouble {
                code: Code::OperationTimedOut,
                words: format!("no answer within {limit:?}"),
            });
            return Err(error(target, trouble.code, &trouble.words));
        }
    }
}

#[cfg(test)]
mod tests {
    use rdkafka::producer::BaseRecord;

    use super::*;

    #[test]
    fn nothing_is_handed_over_behind_a_purge() {
        let mut config = ClientConfig::new();
        config.set("bootstrap.servers", "127.0.0.1:1");
        let client = Client::start(&config, "kafka", "kafka-lane".to_owned()).unwrap();
        // As a lane that is sending holds it: the thread can purge it, and not destroy it.
        let producer = client.producer().unwrap();
        let record = |at| {
            let record = BaseRecord::with_opaque_to("topic", at).payload("");
            producer.send(record.key("")).is_ok()
        };
        assert_eq!(client.hand_over(|| record(0)), Some(true));
        client.owes_since(Some(Instant::now()), Duration::ZERO);
        let started = Instant::now();
        while !client.news().overdue {
            assert!(started.elapsed() < Duration::from_secs(60));
            thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(client.hand_over(|| record(1)), None);
    }
}
