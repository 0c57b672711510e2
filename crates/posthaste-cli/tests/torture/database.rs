//! What a tortured database is: business tables, writers on them, and the truth they hold.
//!
//! `counters` has one row a key, which every writer locks before it emits; `facts` notes what each
//! transaction emitted. Both are written in the transaction of the event itself, so that after any
//! crash they say what must be delivered: the commit order of a key is its `n`.

use std::{error::Error, sync::Arc, time::Duration};

use async_trait::async_trait;
use tokio::sync::Notify;
use uuid::Uuid;

/// Why a transaction did not commit, or may not have.
pub(crate) type Trouble = Box<dyn Error + Send + Sync>;

/// The first keys; writers of a load use these.
pub(crate) const KEYS: u32 = 200;

/// One committed event.
#[derive(Debug, Clone)]
pub(crate) struct Fact {
    pub(crate) key: String,
    /// 1, 2, 3 … in commit order of the key.
    pub(crate) n: u64,
    pub(crate) id: Uuid,
}

/// A transaction to be made. Its steps are sorted by key, so that two writers never deadlock.
#[derive(Debug, Clone, Default)]
pub(crate) struct Plan {
    pub(crate) steps: Vec<Step>,
    pub(crate) hold: Hold,
    pub(crate) rolls_back: bool,
}

/// Locks the row of a key, then emits its next events.
#[derive(Debug, Clone)]
pub(crate) struct Step {
    pub(crate) key: String,
    pub(crate) events: u32,
    pub(crate) savepoint: Savepoint,
    /// Bytes of a payload, at least those of its number.
    pub(crate) payload_bytes: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Savepoint {
    None,
    Kept,
    RolledBack,
}

/// How long a transaction stays open after its last step.
#[derive(Debug, Clone, Default)]
pub(crate) enum Hold {
    #[default]
    No,
    For(Duration),
    Until(Arc<Gate>),
}

/// Says that a transaction is open, and holds it until told.
#[derive(Debug, Default)]
pub(crate) struct Gate {
    pub(crate) opened: Notify,
    pub(crate) release: Notify,
}

impl Hold {
    pub(crate) async fn pass(&self) {
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
    pub(crate) fn of(key: impl Into<String>, events: u32) -> Self {
        Self {
            steps: vec![Step::new(key, events)],
            ..Self::default()
        }
    }
}

impl Step {
    pub(crate) fn new(key: impl Into<String>, events: u32) -> Self {
        Self {
            key: key.into(),
            events,
            savepoint: Savepoint::None,
            payload_bytes: 0,
        }
    }
}

/// One application's connection.
#[async_trait]
pub(crate) trait Writer: Send {
    /// Makes the transaction through the library.
    async fn transact(&mut self, plan: &Plan) -> Result<(), Trouble>;
}

/// A database with the outbox and the business tables in it.
#[async_trait]
pub(crate) trait Database: Send + Sync {
    /// As `--from` and `--store` take it.
    fn url(&self) -> String;

    /// The longest that a transaction of a load may stay open, now and then.
    fn longest_hold(&self) -> Duration;

    /// The longest that a writer of a load thinks between two transactions.
    fn longest_think(&self) -> Duration;

    async fn writer(&self) -> Result<Box<dyn Writer>, Trouble>;

    /// All committed events, by key and `n`.
    async fn facts(&self) -> Vec<Fact>;

    /// How many events have committed.
    async fn committed(&self) -> u64;

    /// How many lines the audit has for actions that are named so.
    async fn audited(&self, action: &str) -> u64;
}

pub(crate) fn load_key(number: u32) -> String {
    format!("k{number:03}")
}

/// The number, and blanks up to the wanted length.
pub(crate) fn payload(n: i64, bytes: usize) -> Vec<u8> {
    let mut payload = n.to_string().into_bytes();
    payload.resize(payload.len().max(bytes), b' ');
    payload
}
