//! Evacuation: followers of a key that has been blocked for long get out of retention's way.
//!
//! A block marker keeps all rows behind it. Where nothing but markers keeps them, the rows of their
//! keys are copied to where events wait that were set aside, and the markers move up behind them.
//! The copies wait for their turn behind what blocks the key (`sql/due.sql`). No side read, which
//! alone remembers a marker's place, runs while something that waits holds the key, and the locks
//! of the cursors keep it held until the markers have moved.

use std::collections::BTreeMap;

use mysql_async::params;
use posthaste_engine::{Registered, StoreError, audit as words};

use super::{
    audit,
    connection::{Work, clock, micros},
    destination,
    holds_key::with_holds_key,
    marker_rows,
    ordering::with_order,
    place::Place,
    ranges::Ranges,
    settings,
};
use crate::about::About;

/// Numbers that one transaction looks through.
const NUMBERS: u64 = 2_000;
/// Rows that it copies at the most, ...
const ROWS: u32 = 200;
/// ... and bytes of them; one comes whatever its size.
const BYTES: u64 = 4 << 20;

/// A row to be copied for a destination.
struct Follower {
    destination_id: i64,
    seq: u64,
}

/// Copies some of what blocked keys alone keep beyond its time; answers how many, or none when
/// nothing does.
pub(super) async fn evacuate(
    work: &mut Work,
    by: Option<Registered>,
) -> Result<Option<u64>, StoreError> {
    // A claim's changes wait for the row that speaks for it, and so do we.
    let sql = "select id from posthaste_cursors order by id for update";
    work.rows(sql, ()).await?;
    let sql = with_holds_key(include_str!("sql/evacuate_start.sql"));
    let Some(row) = work.at_most_one(&sql, ()).await? else {
        return Ok(None);
    };
    let (Some(start), passed): (Option<u64>, u64) = (row.get(0)?, row.get(1)?) else {
        return Ok(None);
    };
    let window = settings::retention(work).await?;
    let now = clock(work).await?;
    let mut stop = passed.min(start.saturating_add(NUMBERS));
    let of = params! {
        "start" => start,
        "stop" => stop,
        "before" => now.saturating_sub(micros(window)),
    };
    if let Some(young) = work
        .at_most_one(include_str!("sql/evacuate_young.sql"), of)
        .await?
    {
        stop = young.get::<u64>(0)? - 1;
    }
    if stop <= start {
        return Ok(None);
    }
    let (followers, stop) = followers(work, start, stop).await?;
    let mut copies: BTreeMap<i64, u64> = BTreeMap::new();
    for follower in &followers {
        let of = params! {
            "destination_id" => follower.destination_id, "seq" => follower.seq, "now" => now
        };
        let copied = work
            .execute(&with_order(include_str!("sql/evacuate_copy.sql")), of)
            .await?;
        *copies.entry(follower.destination_id).or_default() += copied.min(1);
    }
    move_up(work, stop).await?;
    for (destination_id, count) in &copies {
        if *count == 0 {
            continue;
        }
        let name = destination::name(work, *destination_id).await?;
        let about = About {
            relay: by.map(|by| by.registration),
            destination: Some(&name),
            event_id: None,
        };
        audit::write(work, words::EVACUATE, about, &[count, &stop]).await?;
    }
    Ok(Some(copies.into_values().sum()))
}

/// The rows behind `start` that blocked keys keep, and up to which number they are all.
async fn followers(
    work: &mut Work,
    start: u64,
    stop: u64,
) -> Result<(Vec<Follower>, u64), StoreError> {
    let sql = with_order(&with_holds_key(include_str!("sql/evacuate_found.sql")));
    let of = params! { "start" => start, "stop" => stop };
    let rows = work.rows(&sql, of).await?;
    let (mut found, mut bytes, mut copies) = (Vec::new(), 0, 0);
    let mut first = None;
    for row in &rows {
        let seq: u64 = row.get(0)?;
        // Events that the marker has seen were delivered, or are parked.
        if marker_rows::place(row, 3, 4)?.has_seen(seq) {
            continue;
        }
        copies += 1;
        bytes += row.get::<u64>(1)?;
        if (copies > ROWS || bytes > BYTES) && *first.get_or_insert(seq) < seq {
            found.retain(|follower: &Follower| follower.seq < seq);
            return Ok((found, seq - 1));
        }
        first.get_or_insert(seq);
        found.push(Follower {
            destination_id: row.get(2)?,
            seq,
        });
    }
    Ok((found, stop))
}

/// Moves the markers of keys that are held up to this number.
async fn move_up(work: &mut Work, stop: u64) -> Result<(), StoreError> {
    let sql = with_holds_key(include_str!("sql/evacuate_markers.sql"));
    let rows = work.rows(&sql, params! { "stop" => stop }).await?;
    let to = Place::start().and_seen(&Ranges::of(1, stop));
    for row in &rows {
        marker_rows::move_up(work, row.get(0)?, &row.text(1)?, &to).await?;
    }
    Ok(())
}
