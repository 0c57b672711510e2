//! The contract of a sink: the code that talks to one kind of broker.
//!
//! *Accepted* means that the broker has taken responsibility. Bytes in a client's buffer are not
//! accepted; an unknown or late answer is *unavailable*. Every record that was submitted gets
//! exactly one verdict, whatever happens: a lane that ends answers *unavailable* for the rest. A
//! sink reconnects, but it never retries an event by itself: deciding is the engine's.

use std::{fmt, ops::Range, sync::Arc, time::Duration};

use async_trait::async_trait;
use uuid::Uuid;

use crate::{Cause, CheckReport, Partitions, Record, Verdict, outcome::line};

/// The order that the receiver keeps, and so how many events of one key may be in flight.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyOrder {
    /// The receiver itself accepts nothing of a key behind the key's first record that it did not
    /// accept on this lane, so events of one key may follow each other without waiting.
    Pipelined,
    /// A later record of a key can be accepted although an earlier one was not: the engine sends
    /// one event of a key at a time.
    OneAtATime,
}

/// The means by which a broker stops a lane of a relay that lost its right.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FenceKind {
    /// Nothing of an aborted lane can arrive any more once it was aborted, or at the latest once
    /// the next lane has taken over ([`Lane::take_over`]).
    Exact,
    /// Only time does: bytes handed to the network may still arrive for the settle time.
    Timing,
}

/// The memory of a receiver that keeps a record once, however often it is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Deduplication {
    /// For how long it knows an id.
    pub window: DedupWindow,
    /// How many ids it knows at a time; none: as many as it takes within the window.
    pub ids_max: Option<u64>,
}

/// For how long a receiver knows the id of a record that it took.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DedupWindow {
    /// As long as somebody set up at the receiver, which knows records by their
    /// [dedup ids](Record::dedup_id). [`Sink::check`] says how long, where it sees it.
    AtTheReceiver,
    /// Until the store has the progress ([`Lane::progressed`]), so that no crash repeats anything.
    /// Records are known by their [events](crate::EventRef), and not by any id that they bear.
    UntilStored,
}

/// Limits and capabilities that a sink declares. The engine never exceeds them.
#[derive(Debug, Clone)]
pub struct SinkInfo {
    /// Kind of sink, as in the address: `file`, `kafka`.
    pub kind: &'static str,
    /// Records in one batch at the most.
    pub batch_events_max: usize,
    /// Bytes in one batch at the most; a single larger record is still submitted alone.
    pub batch_bytes_max: usize,
    /// Records submitted and not yet answered, at the most.
    pub in_flight_events_max: usize,
    /// Bytes of the largest value that it takes, where that is the same for the life of the sink: a
    /// lane rejects a larger one without sending it. None where there is no limit, and where the
    /// receiver alone knows it.
    pub event_bytes_max: Option<u64>,
    /// Requests of a lane under way at once, at the most, where records travel in requests that are
    /// answered as a whole. None where they travel in a stream.
    pub requests_max: Option<u32>,
    /// The memory by which the receiver suppresses repeats; none: it keeps every repeat.
    pub deduplication: Option<Deduplication>,
    /// The order that the receiver keeps.
    pub key_order: KeyOrder,
    /// The means that fences an aborted lane.
    pub fence: FenceKind,
    /// Whether a destination may have only one lane at a time, so that its partitions are owned
    /// together (a file).
    pub single_lane: bool,
    /// Which part of its topic a record goes to, where parts of a topic fail alone. None: a topic
    /// is the smallest place that the sink knows.
    pub parts: Option<Arc<dyn TopicParts>>,
}

/// Tells the parts of topics apart that fail alone: partitions, shards. The *place* of a record is
/// its topic, or a part of that: [`Outcome::Later`](crate::Outcome::Later) holds back a place.
pub trait TopicParts: fmt::Debug + Send + Sync {
    /// The part that the record goes to; none where any will do, or where the sink does not know
    /// yet, and finds out. It is asked of each event that is read while some place is held back: it
    /// computes, and waits for nothing.
    fn part(&self, record: &Record) -> Option<u32>;

    /// Whether it knows the parts of this topic; if not, it finds out.
    fn knows(&self, topic: &str) -> bool;

    /// The name of a part, for operators.
    fn name(&self, part: u32) -> String {
        part.to_string()
    }

    /// The part of this [name](Self::name).
    fn named(&self, name: &str) -> Option<u32> {
        name.parse().ok()
    }
}

/// Whose events a lane carries. The name by which a broker fences, or under which it keeps
/// progress, is made of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LaneScope {
    /// The identity of the store.
    pub store_id: Uuid,
    /// The destination's name.
    pub destination: String,
    /// The store's number of the destination
    /// ([`Claim::destination_id`](crate::Claim::destination_id)).
    pub destination_id: i64,
    /// The registration of the relay that owns the partitions.
    pub registration: Uuid,
    /// The partitions. A number means other keys once the destination is cut anew: a receiver that
    /// compares tokens keeps them by slot.
    pub partitions: Partitions,
    /// Former owners whose fences are to be taken: see [`Lane::take_over`].
    pub former: Vec<Uuid>,
}

/// The purpose for which a lane is opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LaneSpec {
    /// Whose events it carries.
    pub scope: Arc<LaneScope>,
    /// Epoch of the claim.
    pub epoch: u64,
    /// Number of the lane; every lane opened gets a higher one. (epoch, number) is the fence token.
    pub number: u64,
    /// How long an answer may take. The engine aborts a lane that owes one for longer, and opening
    /// may not take longer either.
    pub publish_timeout: Duration,
    /// The lease of the relay: a broker that notices a dead connection by heartbeats must notice it
    /// within a fraction of this.
    pub lease: Duration,
}

impl LaneSpec {
    /// The fence token: of two lanes of one destination the later one has the greater.
    #[must_use]
    pub fn token(&self) -> (u64, u64) {
        (self.epoch, self.number)
    }
}

/// Why a sink could not be opened, checked, or given a lane. Outcomes of events are not errors.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SinkError {
    /// The broker is away, for now.
    #[error("{target}: {reason}")]
    Unavailable {
        /// Which destination or address.
        target: String,
        /// The failure in words.
        reason: String,
    },
    /// The broker refuses our credentials or rights.
    #[error("{target}: {reason}")]
    Denied {
        /// Which destination or address.
        target: String,
        /// The failure in words, with the fix.
        reason: String,
    },
    /// The address or the options are wrong; waiting does not help.
    #[error("{target}: {reason}")]
    Misconfigured {
        /// Which destination or address.
        target: String,
        /// The fault in words, with the fix.
        reason: String,
    },
    /// A promise of this code does not hold.
    #[error("{target}: bug: {reason}")]
    Bug {
        /// Which destination or address.
        target: String,
        /// The rule that was broken.
        reason: String,
    },
}

impl SinkError {
    /// Whether trying again later can help without anybody changing anything.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        matches!(self, Self::Unavailable { .. })
    }

    /// The error of an operation that could not begin for this cause: [`cause`](Self::cause) read
    /// the other way.
    #[must_use]
    pub fn new(cause: Cause, target: String, reason: String) -> Self {
        let reason = line(reason);
        match cause {
            Cause::Denied => Self::Denied { target, reason },
            Cause::Misconfigured => Self::Misconfigured { target, reason },
            _ => Self::Unavailable { target, reason },
        }
    }

    /// The same fault as the cause of an unavailable destination.
    #[must_use]
    pub fn cause(&self) -> Cause {
        match self {
            Self::Unavailable { .. } | Self::Bug { .. } => Cause::Connection,
            Self::Denied { .. } => Cause::Denied,
            Self::Misconfigured { .. } => Cause::Misconfigured,
        }
    }
}

/// One kind of broker, addressed.
#[async_trait]
pub trait Sink: Send + Sync {
    /// Limits and capabilities; constant for the life of the sink.
    fn info(&self) -> SinkInfo;

    /// Whether the target is reachable and allows us, and what can be seen of it: without any side
    /// effect that a consumer or an operator could see, and without any right that delivering does
    /// not need. Facts that we may not ask for are reported as not seen.
    ///
    /// # Errors
    /// [`SinkError`] with the fix, where nothing could be delivered.
    async fn check(&self) -> Result<CheckReport, SinkError>;

    /// Opens an ordered channel. Called again after each failure, with a higher token.
    ///
    /// # Errors
    /// [`SinkError`]; the engine opens the destination's breaker and tries again.
    async fn open_lane(&self, spec: LaneSpec) -> Result<Box<dyn Lane>, SinkError>;
}

/// Progress that the store holds.
#[derive(Debug, Clone)]
pub enum StoredProgress {
    /// The records of these tickets are accepted, and stored as finished: they will not be
    /// submitted again, whatever happens.
    Finished(Range<u64>),
    /// Everything that was visible at the claim, or read before this lane was opened, is behind
    /// the stored cursor: an event that [`Lane::take_over`] learned of, and that was not submitted
    /// since, will not be.
    CaughtUp,
}

/// One ordered, abortable channel of a sink. Used by one task at a time.
#[async_trait]
pub trait Lane: Send {
    /// Takes over the records, in order, and returns soon: it waits for room in the client at the
    /// most, never for the broker's answer. Never fails: a failure is each record's verdict.
    async fn submit(&mut self, batch: Vec<Record>);

    /// Waits until at least one verdict is known and answers all that are. Dropping the future
    /// loses none (cancel safe). Without anything in flight it waits for ever.
    async fn outcomes(&mut self) -> Vec<Verdict>;

    /// Ends what former owners may still have under way, and learns what they got through. Called
    /// once, after the lease was confirmed in the database and before the first batch: a fence that
    /// compares no number is taken by opening the lane, so that whoever lost its right finds out
    /// before this.
    ///
    /// Answers the id of the cluster behind the lane (Kafka's cluster id), which tells another
    /// cluster behind the same address; none where brokers have no such id.
    ///
    /// # Errors
    /// [`SinkError`]; the lane is then aborted.
    async fn take_over(&mut self) -> Result<Option<String>, SinkError> {
        Ok(None)
    }

    /// The store has got so far. A lane that keeps progress may forget as much.
    fn progressed(&mut self, _progress: StoredProgress) {}

    /// Purges what the client holds and destroys the connection. Answers nothing: records without a
    /// verdict are *unavailable* from here on. With [`FenceKind::Exact`], nothing of this lane can
    /// arrive once this has returned.
    async fn abort(self: Box<Self>);

    /// Waits for what is in flight, at most for `limit`, and ends the lane. Answers a verdict for
    /// each record that had none.
    async fn close(self: Box<Self>, limit: Duration) -> Vec<Verdict>;
}
