//! Evacuation: followers of a key that has been blocked for long get out of retention's way.
//!
//! A block marker keeps the rows behind its floor, and with them whole leaves. Where nothing but
//! markers keeps them, the rows of their keys are copied into the parked table, chunk by chunk, and
//! the floors move up behind them. The copies wait for their turn behind what blocks the key
//! (`sql/due.sql`): one at a time, in their order. When the last of them is done with, the key is
//! released as ever, and its side read goes on behind the marker.
//!
//! The owner of the key takes no notice. It passes the key over; and a side read, which alone
//! remembers a marker's place, never runs while something that waits holds the key. That is locked
//! first, so that it is either settled before, and nothing is copied, or afterwards, and the copies
//! hold the key.

use posthaste_engine::{Registered, StoreError, with_audit_words};

use super::{
    client::Client,
    holds_key::with_holds_key,
    locks::with_retention_lock,
    ordering::with_order,
    retention::script::{PAST_WINDOW, StepOutcome, count, run, uuid_literal},
};

const EVACUATE: &str = include_str!("sql/evacuate.sql");

/// Numbers that one chunk looks through for the keys' rows: some 20 ms.
pub(super) const NUMBERS_A_CHUNK: u64 = 10_000;
/// Keys whose rows it looks for.
pub(super) const KEYS_A_CHUNK: u64 = 250;
/// Rows that it copies at the most, ...
pub(super) const ROWS_A_CHUNK: u64 = 500;
/// ... and bytes of them; one comes whatever its size.
pub(super) const BYTES_A_CHUNK: u64 = 4 << 20;

/// One transaction: answers how many rows it copied.
pub(super) async fn chunk(
    client: &Client,
    by: Option<Registered>,
) -> Result<StepOutcome<u64>, StoreError> {
    let script = with_audit_words(&with_order(&with_holds_key(&with_retention_lock(EVACUATE))))
        .replace("{past_window}", PAST_WINDOW)
        .replace("{relay}", &uuid_literal(by))
        .replace("{numbers}", &NUMBERS_A_CHUNK.to_string())
        .replace("{keys}", &KEYS_A_CHUNK.to_string())
        .replace("{rows}", &ROWS_A_CHUNK.to_string())
        .replace("{bytes}", &BYTES_A_CHUNK.to_string());
    run(client, "outbox", &script).await?.read(count)
}
