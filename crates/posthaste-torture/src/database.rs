//! A tortured database: business tables, writers on them, and the truth that they hold.
//!
//! `counters` has one row a key, which every writer locks before it emits; `facts` notes what each
//! transaction emitted. Both are written in the transaction of the event itself, so that after any
//! crash they say what must be delivered: the commit order of a key is its `n`.
//!
//! Keys that begin with [`LOOSE`] belong to writers who lock nothing: no order is promised between
//! their transactions, and their numbers say nothing but which transaction an event is of, and its
//! place there.

use std::{error::Error, sync::Arc, time::Duration};

use async_trait::async_trait;
use posthaste::{Event, Outbox, Tx};
use posthaste_testkit::long_form;
use tokio::sync::Notify;
use uuid::Uuid;

/// Why a transaction did not commit, or may not have.
pub type Trouble = Box<dyn Error + Send + Sync>;

/// The first keys; writers of a load use these.
pub const KEYS: u32 = 200;

/// The topic of the torture's events.
pub const FACTS: &str = "facts";

/// How keys begin whose writers lock nothing.
pub const LOOSE: &str = "loose-";

/// A transaction has fewer events of a loose key than this, and the first one's number is a
/// multiple of it.
pub const LOOSE_EVENTS_MAX: u64 = 16;

/// One committed event.
#[derive(Debug, Clone)]
pub struct Fact {
    /// Its key of order.
    pub key: String,
    /// 1, 2, 3 … in commit order of the key, unless that is loose.
    pub n: u64,
    /// The event's id.
    pub id: Uuid,
}

/// A transaction to be made. Its steps are sorted by key, so that two writers never deadlock.
#[derive(Debug, Clone, Default)]
pub struct Plan {
    /// In order of their keys.
    pub steps: Vec<Step>,
    /// How long it stays open.
    pub hold: Hold,
    /// Whether it is rolled back in the end.
    pub rolls_back: bool,
}

/// Locks the row of a key, unless that is loose, then emits its next events.
#[derive(Debug, Clone)]
pub struct Step {
    /// The events' key.
    pub key: String,
    /// How many.
    pub events: u32,
    /// Where they go.
    pub topic: String,
    /// Whether a savepoint is around it.
    pub savepoint: Savepoint,
    /// Bytes of a payload, at least those of its number.
    pub payload_bytes: usize,
}

/// The end of a step alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Savepoint {
    /// It has no savepoint.
    None,
    /// Released.
    Kept,
    /// Rolled back to.
    RolledBack,
}

/// How long a transaction stays open after its last step.
#[derive(Debug, Clone, Default)]
pub enum Hold {
    /// Not at all.
    #[default]
    No,
    /// So long.
    For(Duration),
    /// Until the gate is opened.
    Until(Arc<Gate>),
}

/// Says that a transaction is open, and holds it until told.
#[derive(Debug, Default)]
pub struct Gate {
    /// The transaction is open.
    pub opened: Notify,
    /// It shall end.
    pub release: Notify,
}

impl Hold {
    /// Waits so long.
    pub async fn pass(&self) {
        match self {
            Self::No => {}
            Self::For(time) => tokio::time::sleep(*time).await,
            Self::Until(gate) => {
                gate.opened.notify_one();
                gate.release.notified().await;
            }
        }
    }
}

impl Plan {
    /// `events` for one key in one transaction.
    pub fn of(key: impl Into<String>, events: u32) -> Self {
        Self {
            steps: vec![Step::new(key, events)],
            ..Self::default()
        }
    }
}

impl Step {
    /// So many small events of a key.
    pub fn new(key: impl Into<String>, events: u32) -> Self {
        Self {
            key: key.into(),
            events,
            topic: FACTS.to_owned(),
            savepoint: Savepoint::None,
            payload_bytes: 0,
        }
    }
}

/// One application's connection.
#[async_trait]
pub trait Writer: Send {
    /// Makes the transaction through the library.
    async fn transact(&mut self, plan: &Plan) -> Result<(), Trouble>;
}

/// A database with the outbox and the business tables in it.
#[async_trait]
pub trait Database: Send + Sync {
    /// As `--from` and `--store` take it.
    fn url(&self) -> String;

    /// The same for an operator's commands.
    fn operators_url(&self) -> String {
        self.url()
    }

    /// The longest that a transaction of a load may stay open, now and then.
    fn longest_hold(&self) -> Duration;

    /// The longest that a writer of a load thinks between two transactions.
    fn longest_think(&self) -> Duration;

    /// Whether a writer may go on while another one has written and not committed.
    fn writes_at_once(&self) -> bool;

    /// A connection of its own.
    async fn writer(&self) -> Result<Box<dyn Writer>, Trouble>;

    /// All committed events, by key and `n`.
    async fn facts(&self) -> Vec<Fact>;

    /// How many events have committed.
    async fn committed(&self) -> u64;

    /// How many lines the audit has for actions that are named so.
    async fn audited(&self, action: &str) -> u64;

    /// How many times an event was parked that used up an attempt: one that is put off since its
    /// place is away uses up none.
    async fn parked_with_an_attempt(&self) -> u64;
}

/// The cause of such a park, with which its line in the audit ends.
pub(crate) const PUT_OFF: &str = "not_now";

/// The key of this number that a load writes to.
pub fn load_key(number: u32) -> String {
    format!("k{number:03}")
}

/// The longest pause of a paced writer between two transactions. In the short form, where several
/// tests run at once, a load has a third of the events.
pub(crate) fn paced() -> Duration {
    Duration::from_millis(if long_form() { 100 } else { 300 })
}

/// A load leaves some processor to the tests beside it. The long form has none.
pub(crate) fn pace() -> Duration {
    match long_form() {
        true => Duration::ZERO,
        false => paced(),
    }
}

/// The events of a step, which have these numbers.
pub(crate) fn events(step: &Step, numbers: &[i64]) -> Result<Vec<Event>, Trouble> {
    let event = |n: &i64| {
        let event = Event::builder(&*step.topic).key(&*step.key);
        Ok(event.payload(payload(*n, step.payload_bytes)).build()?)
    };
    numbers.iter().map(event).collect()
}

/// Emits the events of a step, one by itself and several at once. Answers their ids.
pub(crate) async fn emit_numbered<T: Tx + ?Sized>(
    tx: &mut T,
    step: &Step,
    numbers: &[i64],
) -> Result<Vec<Uuid>, Trouble> {
    let mut made = events(step, numbers)?;
    let emitted = match made.as_slice() {
        [_] => vec![Outbox::new().emit(tx, made.remove(0)).await?],
        events => Outbox::new().emit_all(tx, events).await?,
    };
    Ok(emitted.iter().map(|event| event.id).collect())
}

/// The number, and blanks up to the wanted length.
fn payload(n: i64, bytes: usize) -> Vec<u8> {
    let mut payload = n.to_string().into_bytes();
    payload.resize(payload.len().max(bytes), b' ');
    payload
}
