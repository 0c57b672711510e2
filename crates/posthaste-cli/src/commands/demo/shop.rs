//! The shop: sales, each one transaction that changes some orders and writes an event for each
//! change.

// A build without stores has no shop.
#![cfg_attr(
    not(any(feature = "postgres", feature = "sqlite")),
    allow(dead_code, unused_variables)
)]

#[cfg(feature = "postgres")]
mod postgres;
#[cfg(feature = "sqlite")]
mod sqlite;

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use async_trait::async_trait;
use posthaste::{EmitError, Event};
use rand::{Rng, SeedableRng, rngs::SmallRng};
use serde_json::json;
use tokio::task::JoinHandle;
use uuid::Uuid;

use crate::{failure::Failure, open, secret::SecretUrl};

/// Orders that change again and again: the keys of order.
const ORDERS: u32 = 200;
/// Changes in one sale, at most.
const CHANGES_MAX: u64 = 5;
/// One sale in ten is called off after its events were written.
const CALLED_OFF: f64 = 0.1;
/// How long the shop stays open on a machine that keeps up: long enough to watch, short enough to
/// wait for.
const OPENING_HOURS: Duration = Duration::from_secs(12);
/// A few events do not take all day.
const PACE: Duration = Duration::from_millis(2);
const STEPS: [&str; 4] = ["placed", "paid", "packed", "shipped"];

/// A committed change of an order, from the shop's tables.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Change {
    /// The event that tells of it.
    pub(super) event: Uuid,
    pub(super) order: String,
    /// The order's own count of its changes, from 1.
    pub(super) n: u64,
}

/// How far the shop is, for whoever watches.
#[derive(Debug, Default)]
pub(super) struct Progress {
    /// Events of sales that were made.
    pub(super) committed: AtomicU64,
    /// Events of sales that were called off.
    pub(super) called_off: AtomicU64,
    /// Whether the shop has closed.
    pub(super) over: AtomicBool,
}

/// The shop's task.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) events: u64,
    pub(super) topic: String,
}

/// A shop on one kind of database.
#[async_trait]
pub(super) trait Shop: Send {
    /// Makes the shop's tables.
    async fn create(&mut self) -> Result<(), Failure>;

    /// One transaction: changes the orders, writes an event for each change, and commits, or rolls
    /// everything back.
    async fn sale(&mut self, topic: &str, orders: &[String], commit: bool) -> Result<(), Failure>;

    /// Everything that committed.
    async fn truth(&mut self) -> Result<Vec<Change>, Failure>;

    /// Removes the tables.
    async fn remove(&mut self) -> Result<(), Failure>;
}

/// The shop of this run on a store's database.
pub(super) async fn open_shop(url: &SecretUrl, run: &str) -> Result<Box<dyn Shop>, Failure> {
    let kind = &open::store_kind(url)?.plug_in;
    match kind.name {
        #[cfg(feature = "sqlite")]
        "sqlite" => Ok(Box::new(sqlite::SqliteShop::open(url, run)?)),
        #[cfg(feature = "postgres")]
        "postgres" => Ok(Box::new(postgres::PostgresShop::open(url, run).await?)),
        _ => Err(Failure::usage(format!(
            "the demo has no shop on {}\nfix: leave out --store",
            kind.title
        ))),
    }
}

/// Opens the shop's doors, on a thread that may block.
pub(super) fn sell(
    mut shop: Box<dyn Shop>,
    plan: Plan,
    progress: Arc<Progress>,
) -> JoinHandle<Result<(), Failure>> {
    tokio::task::spawn_blocking(move || {
        tokio::runtime::Handle::current().block_on(async move {
            sell_all(shop.as_mut(), &plan, &progress).await?;
            progress.over.store(true, Relaxed);
            Ok(())
        })
    })
}

async fn sell_all(shop: &mut dyn Shop, plan: &Plan, progress: &Progress) -> Result<(), Failure> {
    let mut random = SmallRng::from_os_rng();
    let opened = Instant::now();
    let opening_hours = OPENING_HOURS.min(PACE * u32::try_from(plan.events).unwrap_or(u32::MAX));
    loop {
        let committed = progress.committed.load(Relaxed);
        let left = plan.events - committed;
        if left == 0 {
            return Ok(());
        }
        let changes = random.random_range(1..=CHANGES_MAX.min(left));
        let orders: Vec<_> = (0..changes)
            .map(|_| format!("order-{:03}", random.random_range(1..=ORDERS)))
            .collect();
        let commit = !random.random_bool(CALLED_OFF);
        shop.sale(&plan.topic, &orders, commit).await?;
        let counter = if commit {
            &progress.committed
        } else {
            &progress.called_off
        };
        counter.fetch_add(changes, Relaxed);
        // The share of the day that the events so far should have taken.
        let share = (committed + changes) as f64 / plan.events as f64;
        let due = opened + opening_hours.mul_f64(share);
        tokio::time::sleep(due.saturating_duration_since(Instant::now())).await;
    }
}

/// The event of a change.
fn event(topic: &str, order: &str, n: u64) -> Result<Event, EmitError> {
    let step = STEPS[usize::try_from(n.saturating_sub(1) % 4).unwrap_or(0)];
    Event::builder(topic)
        .key(order)
        .event_type(format!("order.{step}"))
        .content_type("application/json")
        .payload(json!({ "order": order, "n": n, "status": step }).to_string())
        .build()
}

impl From<EmitError> for Failure {
    fn from(error: EmitError) -> Self {
        Self::failed(error.to_string())
    }
}
