//! The thread of a transactional producer: it takes the fence, then does one transaction after
//! another.
//!
//! The client's transactional calls block, and none of them is made again once its time ran out:
//! the producer ends then. The client gives a call's late answer to whatever call waits next, so
//! that a commit that goes on by itself could be taken for done.

use std::{
    sync::mpsc::{Receiver, RecvTimeoutError},
    thread,
    time::{Duration, Instant},
};

use posthaste_engine::Record;
use rdkafka::{
    error::KafkaError,
    message::ToBytes,
    producer::{BaseRecord, Producer as _},
    types::RDKafkaErrorCode as Code,
};
use tokio::sync::oneshot;

use super::super::{
    client::{self, Ended, Producer, Shared},
    faults::ClientFault,
    message,
};

/// How late the thread may notice, while records are under way, that it is to end or that the
/// broker refused something.
const SLICE: Duration = Duration::from_millis(20);
/// How often the client is asked while it has nothing to tell. Not waited for in its own call,
/// which comes back no sooner for having something to tell, and spins through each millisecond that
/// it began.
const TICK: Duration = Duration::from_millis(1);
/// How late the thread may notice that it is to end while there is nothing to do.
const TURN: Duration = Duration::from_millis(50);
/// How soon the broker is asked again for a fence that it did not give, at first and later on: it
/// ends the former producer's open transaction before, mostly within milliseconds. The client asks
/// again after half a second, unless it is called again.
const FENCE_AGAIN_MIN: Duration = Duration::from_millis(10);
const FENCE_AGAIN_MAX: Duration = Duration::from_millis(200);

/// The records of one transaction.
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

pub(super) struct TransactionWorker {
    pub(super) progress_topic: String,
    pub(super) transactions: Receiver<Transaction>,
    /// How long one call of the client's may last, unless an answer is overdue before.
    pub(super) limit: Duration,
}

enum Failure {
    /// The thread is to end. The fate of the transaction is unknown.
    Interrupted,
    Fault(ClientFault),
}

impl<E: Into<ClientFault>> From<E> for Failure {
    fn from(fault: E) -> Self {
        Self::Fault(fault.into())
    }
}

/// Takes the fence of the producer's transactional id: a former producer of it is refused from now
/// on, and its open transaction is ended.
pub(super) fn take_fence(
    producer: &Producer,
    shared: &Shared,
    limit: Duration,
) -> Result<(), ClientFault> {
    let started = Instant::now();
    let mut again = FENCE_AGAIN_MIN;
    // A call that runs out of time does not know what an earlier one was told.
    let mut refused = None;
    let taken = loop {
        let left = limit.saturating_sub(started.elapsed());
        match producer.init_transactions(left.min(again)) {
            Err(error) if may_go_on_asking(&error) => {
                if !is_late(&error) {
                    refused = Some(error.clone());
                }
                if shared.must_end() || left.is_zero() {
                    break Err(refused.unwrap_or(error));
                }
                thread::sleep(TICK);
                again = FENCE_AGAIN_MAX.min(2 * again);
            }
            ended => break ended,
        }
    };
    // Complaints that came meanwhile.
    client::serve(producer, shared, Duration::ZERO);
    taken.map_err(ClientFault::from)
}

/// Makes a call of the client's until it has ended, or no time is `left`.
fn finish(
    shared: &Shared,
    left: impl Fn() -> Duration,
    call: impl Fn(Duration) -> Result<(), KafkaError>,
) -> Result<(), KafkaError> {
    loop {
        let ended = call(left());
        let may_go_on = !shared.must_end() && !left().is_zero();
        match ended {
            Err(error) if may_go_on && is_retriable(&error) => thread::sleep(TICK),
            ended => return ended,
        }
    }
}

impl TransactionWorker {
    /// `tell`: whether the fence is taken, or why not.
    pub(super) fn run(
        &self,
        producer: &Producer,
        shared: &Shared,
        tell: oneshot::Sender<Result<(), ClientFault>>,
    ) {
        let fenced = take_fence(producer, shared, self.limit);
        let is_fenced = fenced.is_ok();
        // The lane may have been given up meanwhile.
        if tell.send(fenced).is_err() || !is_fenced {
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
            let perform = || self.perform(producer, shared, &transaction);
            let mut performed = perform();
            // The client closes the gap only when the broker has noticed it, and by another abort.
            if has_gap && is_out_of_sequence(&performed) && self.abort(producer, shared) {
                shared.forget_failures();
                has_gap = false;
                performed = perform();
            }
            let ended = match performed {
                Ok(()) => Ended::Committed,
                Err(Failure::Interrupted) => return,
                Err(Failure::Fault(fault)) if transaction.alone && self.abort(producer, shared) => {
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

    fn perform(
        &self,
        producer: &Producer,
        shared: &Shared,
        transaction: &Transaction,
    ) -> Result<(), Failure> {
        producer.begin_transaction()?;
        for (at, sending) in transaction.records.iter().enumerate() {
            let message = message::message(&sending.record, sending.partition, at);
            let message = message.map_err(|refused| ClientFault {
                code: Code::BadMessage,
                words: format!("an event that had been looked at is no message: {refused:?}"),
            })?;
            send(producer, shared, message)?;
        }
        for (at, written) in (transaction.records.len()..).zip(&transaction.progress) {
            let message = BaseRecord::<[u8], [u8], usize>::with_opaque_to(&self.progress_topic, at)
                .partition(written.partition)
                .key(written.key.as_bytes())
                .payload(&written.value);
            send(producer, shared, message)?;
        }
        self.commit(producer, shared)
    }

    fn commit(&self, producer: &Producer, shared: &Shared) -> Result<(), Failure> {
        // A commit would wait for reports that come only while the producer is served, and for
        // messages that are not sent any more once the transaction is broken.
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
        // A lane that was aborted commits nothing.
        if shared.must_end() {
            return Err(Failure::Interrupted);
        }
        let left = || shared.patience(self.limit);
        let committed = finish(shared, left, |left| producer.commit_transaction(left));
        match committed {
            Err(_) if shared.must_end() => Err(Failure::Interrupted),
            committed => Ok(committed?),
        }
    }

    /// Ends the transaction without effect, for the producer to go on with another.
    fn abort(&self, producer: &Producer, shared: &Shared) -> bool {
        // An abort would wait for reports that come only while the producer is served.
        collect_reports(producer);
        let left = || shared.patience(self.limit);
        let aborted = finish(shared, left, |left| producer.abort_transaction(left));
        if let Err(error) = &aborted {
            tracing::debug!(%error, "a transaction could not be aborted");
        }
        aborted.is_ok()
    }
}

fn is_out_of_sequence(performed: &Result<(), Failure>) -> bool {
    let code = Code::OutOfOrderSequenceNumber;
    matches!(performed, Err(Failure::Fault(fault)) if fault.code == code)
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

/// Whether waiting for the transaction makes sense.
fn go_on(producer: &Producer, shared: &Shared) -> Result<(), Failure> {
    if shared.must_end() {
        return Err(Failure::Interrupted);
    }
    ensure_open(producer)
}

/// Asks for what broke the transaction in the one way that has no effect: a second one cannot
/// begin, and the refusal says why.
fn ensure_open(producer: &Producer) -> Result<(), Failure> {
    match producer.begin_transaction() {
        Err(KafkaError::Transaction(error)) if error.code() == Code::State => Ok(()),
        Err(error) => Err(error.into()),
        Ok(()) => Err(Failure::Fault(ClientFault {
            code: Code::State,
            words: "the client lost its transaction".to_owned(),
        })),
    }
}

/// Lets all reports come in: the lane judges them as one.
fn collect_reports(producer: &Producer) {
    client::purge(producer);
    if !client::collect_reports(producer) {
        tracing::debug!("not all reports of a broken transaction came");
    }
}

/// Whether the call may be made again: it has ended, for a reason that may pass.
fn is_retriable(error: &KafkaError) -> bool {
    may_go_on_asking(error) && !is_late(error)
}

/// Whether the call may be made again: for a reason that may pass, or to wait on for its end.
fn may_go_on_asking(error: &KafkaError) -> bool {
    match error {
        KafkaError::Transaction(error) => {
            error.is_retriable() && !error.is_fatal() && !error.txn_requires_abort()
        }
        _ => false,
    }
}

/// Whether the call has run out of time.
fn is_late(error: &KafkaError) -> bool {
    error.rdkafka_error_code() == Some(Code::OperationTimedOut)
}
