//! Housekeeping beside delivery: what has served its time goes.
//!
//! Every relay looks; who finds something due and gets the store's lock does it. Nothing of it is
//! needed for delivery, so that no error here ends anything.

use std::{sync::Arc, time::Duration};

use posthaste_engine::{Housekeeping, Registered, Retention};
use tracing::info;

use crate::{Clock, jitter::Jitter, said_once::SaidOnce};

/// An idle outbox pays one statement for each look.
const LOOK_EVERY: Duration = Duration::from_secs(9);
/// Between two steps while more is due: the database has others to serve.
const BETWEEN_STEPS: Duration = Duration::from_millis(100);

/// Keeps house until it is dropped.
pub(crate) async fn keep(
    store: Arc<dyn Retention>,
    clock: Arc<dyn Clock>,
    relay: Registered,
    jitter: Jitter,
) {
    let mut said = SaidOnce::default();
    // Soon after the start, so that a relay that is often restarted keeps house too.
    let mut wait = jitter.spread(Duration::from_secs(1));
    loop {
        tokio::time::sleep(wait).await;
        wait = match store.housekeep(Some(relay)).await {
            Ok(done) => {
                say(&done);
                if done.more {
                    BETWEEN_STEPS
                } else {
                    jitter.spread(LOOK_EVERY)
                }
            }
            Err(error) => {
                said.warn(clock.now(), || format!("housekeeping failed: {error}"));
                jitter.spread(LOOK_EVERY)
            }
        };
    }
}

fn say(done: &Housekeeping) {
    if done.evacuated > 0 {
        info!(
            events = done.evacuated,
            "followers of blocked keys were set aside, since they kept others from going"
        );
    }
    if done.leaves > 0 || done.parked > 0 || done.audit > 0 {
        info!(
            events = done.events,
            leaves = done.leaves,
            bytes = done.bytes,
            parked = done.parked,
            audit = done.audit,
            "past their time, removed"
        );
    }
}
