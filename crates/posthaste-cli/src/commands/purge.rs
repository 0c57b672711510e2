//! `posthaste purge`: what relays do now and then, now.

use std::time::Duration;

use clap::Args;
use posthaste_engine::{Housekeeping, Retained, Store};
use serde_json::json;
use tokio::time::{Instant, sleep};

use super::{StoreArgs, status};
use crate::{
    failure::{Failure, Status},
    output,
};

/// How long a step is tried again while a reader of a leaf or a relay's retention blocks it.
const PATIENCE: Duration = Duration::from_secs(10);
const AGAIN: Duration = Duration::from_millis(100);

#[derive(Debug, Args)]
pub(crate) struct PurgeArgs {
    #[command(flatten)]
    store: StoreArgs,
}

impl PurgeArgs {
    pub(crate) async fn run(self) -> Result<Status, Failure> {
        let (done, retained) = self
            .store
            .with_store(async |store| Ok((purge(store).await?, store.retained().await?)))
            .await?;
        if self.store.json {
            output::print_json(&json!({
                "events_at_most": done.events,
                "leaves": done.leaves,
                "bytes": done.bytes,
                "evacuated": done.evacuated,
                "parked": done.parked,
                "attempts": done.attempts,
                "audit": done.audit,
                "in_the_way": done.in_the_way,
                "retention_mode": retained.mode.as_str(),
                "retention_window_seconds": retained.window.as_secs(),
                "retention_debt_events": retained.debt_events,
                "retention_debt_exact": retained.debt_exact,
                "pinned_by": status::pins_json(&retained),
            }))?;
        } else {
            output::print(&as_text(&done, &retained))?;
        }
        Ok(Status::Done)
    }
}

/// Steps until nothing more is due, or the obstacle stays.
async fn purge(store: &dyn Store) -> Result<Housekeeping, Failure> {
    let mut all = Housekeeping::default();
    let mut patience_ends = Instant::now() + PATIENCE;
    loop {
        let step = store.housekeep(None).await?;
        if step.did_something() {
            patience_ends = Instant::now() + PATIENCE;
        }
        all.add(step);
        let waits = all.in_the_way.is_some() && Instant::now() < patience_ends;
        if !all.more && !waits {
            return Ok(all);
        }
        if waits {
            sleep(AGAIN).await;
        }
    }
}

fn as_text(done: &Housekeeping, retained: &Retained) -> String {
    let mut text = match (done.leaves, done.events) {
        (_, 0) => "No event that was delivered has passed its time".to_owned(),
        (0, events) => format!("Removed {}", output::count(events, "delivered event")),
        (leaves, events) => format!(
            "Removed at most {}, {} of the ring as a whole: {} given back",
            output::count(events, "delivered event"),
            match leaves {
                1 => "1 leaf".to_owned(),
                leaves => format!("{leaves} leaves"),
            },
            output::bytes(done.bytes)
        ),
    };
    text.push('\n');
    if done.evacuated > 0 {
        text.push_str(&format!(
            "Parked {} of blocked keys that pinned others\n",
            output::count(done.evacuated, "follower")
        ));
    }
    if done.parked > 0 {
        text.push_str(&format!(
            "Removed {} that had been parked, with {}\n",
            output::count(done.parked, "event"),
            output::count(done.attempts, "attempt")
        ));
    }
    if done.audit > 0 {
        text.push_str(&format!(
            "Removed {} of the audit\n",
            output::count(done.audit, "line")
        ));
    }
    if let Some(what) = &done.in_the_way {
        text.push_str(&format!(
            "More is due, but {what}: a relay will try again\n"
        ));
    }
    text.push_str(&status::window(retained));
    text.push_str(&status::debt(retained));
    text
}
