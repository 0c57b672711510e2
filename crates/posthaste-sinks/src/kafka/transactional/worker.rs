//! The thread of a transactional producer: it takes the fence, then does one transaction after another.
//!
//! The client's transactional calls block. They are made in slices, so that the thread notices soon
//! when it is to end. A call that ran out of its slice goes on by itself and is resumed by the next.

use std::{
    sync::mpsc::{Receiver, RecvTimeoutError},
    thread,
    time::{Duration, Instant},
};

use posthaste_engine::Record;
use rdkafka::{
    error::KafkaError,
    message::ToBytes,
    producer::{BaseRecord, Producer as _, PurgeConfig},
    types::RDKafkaErrorCode as Code,
};
use tokio::sync::oneshot;

use super::super::{
    client::{self, Ended, Producer, Shared},
    faults::Fault,
    message,
};

/// How late the thread may notice that it is to end, or that the broker refused something.
const SLICE: Duration = Duration::from_millis(20);
/// How often the client is asked while it has nothing to tell. Not waited for in its own call, which comes
/// back no sooner for having something to tell, and spins through each millisecond that it began.
const TICK: Duration = Duration::from_millis(1);
/// How late the thread may notice that it is to end while there is nothing to do.
const TURN: Duration = Duration::from_millis(50);
/// How long reports may take to come once everything was purged.
const REPORTS_MAX: Duration = Duration::from_millis(500);

/// What one transaction writes.
pub(super) struct Transaction {
    /// Reports name them by their places here.
    pub(super) records: Vec<Sending>,
    /// For the progress topic; reports name them by their places behind the records.
    pub(super) progress: Vec<Written>,
    /// Its one record may be at fault: if it is refused, the producer goes on.
    pub(super) alone: bool,
}

pub(super) struct Sending {
    pub(super) record: Record,
    pub(super) partition: i32,
}

/// A record of the progress topic.
pub(super) struct Written {
    pub(super) partition: i32,
    pub(super) key: String,
    pub(super) value: Vec<u8>,
}

pub(super) struct Worker {
    pub(super) progress_topic: String,
    pub(super) transactions: Receiver<Transaction>,
    /// Told when the fence is taken, or why not.
    pub(super) fenced: oneshot::Sender<Result<(), Fault>>,
    /// How long taking the fence may last.
    pub(super) limit: Duration,
}

enum Failure {
    /// The thread is to end. What became of the transaction nobody knows.
    Interrupted,
    Fault(Fault),
}

impl<E: Into<Fault>> From<E> for Failure {
    fn from(fault: E) -> Self {
        Self::Fault(fault.into())
    }
}

/// Takes the fence of the producer's transactional id: whoever had it before is refused from now on, and
/// what it had under way is ended.
pub(super) fn take_fence(
    producer: &Producer,
    shared: &Shared,
    limit: Duration,
) -> Result<(), Fault> {
    let started = Instant::now();
    loop {
        match producer.init_transactions(SLICE) {
            Ok(()) => return Ok(()),
            Err(error) if !is_unfinished(&error) => return Err(error.into()),
            Err(error) if shared.must_end() || started.elapsed() >= limit => {
                return Err(error.into());
            }
            Err(_) => client::serve(producer, shared, Duration::ZERO),
        }
    }
}

impl Worker {
    pub(super) fn run(self, producer: &Producer, shared: &Shared) {
        let fenced = take_fence(producer, shared, self.limit);
        let is_fenced = fenced.is_ok();
        // Nobody waits any more when the lane was given up meanwhile.
        if self.fenced.send(fenced).is_err() || !is_fenced {
            return;
        }
        // Whether something that was refused has left a gap in the sequence of its partition.
        let mut has_gap = false;
        while !shared.must_end() {
            let transaction = match self.transactions.recv_timeout(TURN) {
                Ok(transaction) => transaction,
                Err(RecvTimeoutError::Timeout) => {
                    client::serve(producer, shared, Duration::ZERO);
                    continue;
                }
                Err(RecvTimeoutError::Disconnected) => return,
            };
            let perform = || perform(producer, shared, &self.progress_topic, &transaction);
            let mut performed = perform();
            // The client closes the gap only when the broker has noticed it, and by another abort.
            if has_gap && is_out_of_sequence(&performed) && abort(producer, shared) {
                shared.forget_failures();
                has_gap = false;
                performed = perform();
            }
            let ended = match performed {
                Ok(()) => Ended::Committed,
                Err(Failure::Interrupted) => return,
                Err(Failure::Fault(fault)) if transaction.alone && abort(producer, shared) => {
                    has_gap = true;
                    Ended::Aborted(fault)
                }
                Err(Failure::Fault(fault)) => Ended::Broken(fault),
            };
            let is_over = matches!(ended, Ended::Broken(_));
            if is_over {
                collect_reports(producer);
            }
            client::serve(producer, shared, Duration::ZERO);
            shared.tell(|news| news.transaction = Some(ended));
            if is_over {
                return;
            }
        }
    }
}

fn is_out_of_sequence(performed: &Result<(), Failure>) -> bool {
    let code = Code::OutOfOrderSequenceNumber;
    matches!(performed, Err(Failure::Fault(fault)) if fault.code == code)
}

fn perform(
    producer: &Producer,
    shared: &Shared,
    progress_topic: &str,
    transaction: &Transaction,
) -> Result<(), Failure> {
    producer.begin_transaction()?;
    for (at, sending) in transaction.records.iter().enumerate() {
        let message = message::message(&sending.record, sending.partition, at);
        let message = message.map_err(|refused| Fault {
            code: Code::BadMessage,
            words: format!("an event that had been looked at is no message: {refused:?}"),
        })?;
        send(producer, shared, message)?;
    }
    for (at, written) in (transaction.records.len()..).zip(&transaction.progress) {
        let message = BaseRecord::<[u8], [u8], usize>::with_opaque_to(progress_topic, at)
            .partition(written.partition)
            .key(written.key.as_bytes())
            .payload(&written.value);
        send(producer, shared, message)?;
    }
    commit(producer, shared)
}

fn send<K: ToBytes + ?Sized, P: ToBytes + ?Sized>(
    producer: &Producer,
    shared: &Shared,
    mut message: BaseRecord<'_, K, P, usize>,
) -> Result<(), Failure> {
    loop {
        let Err((error, refused)) = producer.send(message) else {
            return Ok(());
        };
        match error.rdkafka_error_code() {
            Some(Code::QueueFull) => {
                producer.poll(Duration::ZERO);
                thread::sleep(TICK);
                go_on(producer, shared)?;
            }
            // The client says what has happened to the transaction in another place.
            Some(Code::State) => {
                ensure_open(producer)?;
                return Err(error.into());
            }
            _ => return Err(error.into()),
        }
        message = refused;
    }
}

fn commit(producer: &Producer, shared: &Shared) -> Result<(), Failure> {
    // A commit would wait for reports that come only while the producer is served, and for messages that
    // are not sent any more once the transaction is broken.
    let mut looked = Instant::now();
    let mut left = producer.in_flight_count();
    while left > 0 {
        producer.poll(Duration::ZERO);
        let now_left = producer.in_flight_count();
        if now_left == left {
            thread::sleep(TICK);
        }
        left = now_left;
        if looked.elapsed() >= SLICE {
            go_on(producer, shared)?;
            looked = Instant::now();
        }
    }
    loop {
        // A lane that was aborted commits nothing.
        if shared.must_end() {
            return Err(Failure::Interrupted);
        }
        match producer.commit_transaction(SLICE) {
            Ok(()) => return Ok(()),
            Err(error) if is_unfinished(&error) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Whether waiting for the transaction makes sense.
fn go_on(producer: &Producer, shared: &Shared) -> Result<(), Failure> {
    if shared.must_end() {
        return Err(Failure::Interrupted);
    }
    ensure_open(producer)
}

/// Asks for what broke the transaction in the one way that has no effect: a second one cannot begin, and
/// the refusal says why.
fn ensure_open(producer: &Producer) -> Result<(), Failure> {
    match producer.begin_transaction() {
        Err(KafkaError::Transaction(error)) if error.code() == Code::State => Ok(()),
        Err(error) => Err(error.into()),
        Ok(()) => Err(Failure::Fault(Fault {
            code: Code::State,
            words: "the client lost its transaction".to_owned(),
        })),
    }
}

/// Ends the transaction without effect, for the producer to go on with another.
fn abort(producer: &Producer, shared: &Shared) -> bool {
    purge(producer);
    loop {
        match producer.abort_transaction(SLICE) {
            Ok(()) => return true,
            Err(error) if is_unfinished(&error) && !shared.must_end() => {
                producer.poll(Duration::ZERO);
            }
            Err(error) => {
                tracing::debug!(%error, "a transaction could not be aborted");
                return false;
            }
        }
    }
}

/// Lets all reports come in: the lane judges them as one.
fn collect_reports(producer: &Producer) {
    purge(producer);
    if let Err(error) = producer.flush(REPORTS_MAX) {
        tracing::debug!(%error, "not all reports of a broken transaction came");
    }
}

fn purge(producer: &Producer) {
    producer.purge(PurgeConfig::default().queue().inflight());
}

/// Whether the call goes on by itself, and is to be made again.
fn is_unfinished(error: &KafkaError) -> bool {
    match error {
        KafkaError::Transaction(error) => {
            error.is_retriable() && !error.is_fatal() && !error.txn_requires_abort()
        }
        KafkaError::Flush(code) => *code == Code::OperationTimedOut,
        _ => false,
    }
}
