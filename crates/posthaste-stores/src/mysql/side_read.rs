//! Reads what released keys have behind their markers.

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
};

use async_trait::async_trait;
use posthaste_engine::{Budget, Cursor, OrderBy, Page, SideRead, StoreError, StoredEvent};

use super::{
    claimed::MysqlClaimed,
    connection::{Link, Work},
    error::unexpected,
    guard::Guard,
    marker_rows,
    ordering::TOPIC_AND_KEY,
    place::Place,
    plan::{self, PagePlaces},
    ranges::Ranges,
    read::{condition, page_size},
    row::{self, OUTBOX},
    slots::Slots,
};
use crate::page::{self, Pushed};

const OPERATION: &str = "side-read released keys";

/// Numbers that one statement looks at. There is no index on the key: it walks all rows, and its
/// answer is waited for.
const NUMBERS_A_STATEMENT: u64 = 20_000;
/// Ranges that one statement is about.
const RANGES_A_STATEMENT: usize = 1_000;

/// A side read of released keys. It is bound to its claim like everything else.
pub(super) struct MysqlSideRead {
    guard: Guard,
    link: Arc<Link>,
    slots: Slots,
    /// How far each key was read.
    starts: HashMap<String, Place>,
    /// Where this round ends, and the numbers that are left of it.
    round: Option<(Place, Ranges)>,
    /// The keys of the pages since the last advance.
    touched: BTreeSet<String>,
    /// Where the last of them ends.
    end: Option<Cursor>,
    event_bytes: usize,
}

impl MysqlSideRead {
    pub(super) async fn begin(claimed: &MysqlClaimed, keys: &[String]) -> Result<Self, StoreError> {
        const OPERATION: &str = "begin a side read";
        let guard = claimed.guard().clone();
        let link = claimed.parking(OPERATION).await?;
        let starts = marker_rows::starts(claimed, &link, OPERATION, keys).await?;
        Ok(Self {
            guard,
            link,
            slots: claimed.slots().clone(),
            starts: starts.into_iter().collect(),
            round: None,
            touched: BTreeSet::new(),
            end: None,
            event_bytes: 0,
        })
    }

    /// The numbers that the round still has to look at.
    fn left(&self, until: &Place) -> Ranges {
        let each = self.starts.values().map(|start| until.beyond(start));
        each.fold(Ranges::default(), |all, of| all.union(&of))
    }

    /// A page of a round to `until` that has come to this number, or to its end.
    fn page(&self, events: Vec<StoredEvent>, until: &Place, behind: Option<u64>) -> Page {
        // Of the keys that are read, and of no others, everything is seen that the round's end has
        // seen, as far as the page goes.
        let seen = Ranges::of(0, u64::MAX).minus(until.unseen());
        let seen = behind.map_or_else(|| seen.clone(), |behind| seen.up_to(behind));
        let from = Place::start();
        let places = PagePlaces::one(self.slots.shared(), from, seen);
        Page::up_to(places.shared(), events)
    }
}

#[async_trait]
impl SideRead for MysqlSideRead {
    fn leave(&mut self, keys: &[String]) {
        for key in keys {
            self.starts.remove(key);
            self.touched.remove(key);
        }
    }

    async fn next(&mut self, budget: Budget, until: &Cursor) -> Result<Page, StoreError> {
        let (places, seq) = plan::of_cursor(OPERATION, until)?;
        let asked = places
            .whole(seq)
            .ok_or_else(|| unexpected(OPERATION, "a place where no side read can join"))?;
        loop {
            let (target, numbers) = match self.round.take() {
                Some(round) => round,
                None => (asked.clone(), self.left(&asked)),
            };
            if numbers.is_empty() {
                for start in self.starts.values_mut() {
                    *start = start.union(&target);
                }
                if target.covers(&asked) {
                    let mut page = self.page(Vec::new(), &target, None);
                    page.caught_up = true;
                    return Ok(page);
                }
                continue;
            }
            let mut work = self.guard.read(&self.link, OPERATION).await?;
            let read = self.read(&mut work, &numbers, budget).await;
            let (events, behind) = work.end(read).await?;
            let left = match behind {
                Some(behind) => numbers.minus(&Ranges::of(0, behind)),
                None => Ranges::default(),
            };
            let is_over = left.is_empty();
            self.round = Some((target.clone(), left));
            if events.is_empty() {
                continue;
            }
            let keys = events.iter().filter_map(StoredEvent::order_key);
            self.touched.extend(keys.map(str::to_owned));
            let mut page = self.page(events, &target, behind.filter(|_| !is_over));
            page.caught_up = is_over && target.covers(&asked);
            self.end = Some(page.end.clone());
            return Ok(page);
        }
    }

    async fn advance(
        &mut self,
        at: &Cursor,
        // The marker says it all.
        _finished: &[i64],
    ) -> Result<(), StoreError> {
        const OPERATION: &str = "move markers";
        let (places, seq) = plan::of_cursor(OPERATION, at)?;
        let place = places
            .whole(seq)
            .ok_or_else(|| unexpected(OPERATION, "a cursor that is no side read's"))?;
        let keys = self.touched.clone();
        if self.end.as_ref().is_some_and(|end| end.is(at)) {
            self.touched.clear();
        }
        let destination_id = self.guard.destination_id();
        let mut guarded = self.guard.write(&self.link, OPERATION).await?;
        let result = async {
            for key in &keys {
                if !marker_rows::move_up(&mut guarded.work, destination_id, key, &place).await? {
                    return Err(unexpected(OPERATION, "a key has no marker"));
                }
            }
            Ok(())
        };
        let result = result.await;
        guarded.end(result).await
    }
}

impl MysqlSideRead {
    /// The next of the keys' events, and up to which number was looked; none: to the end.
    async fn read(
        &mut self,
        work: &mut Work,
        numbers: &Ranges,
        budget: Budget,
    ) -> Result<(Vec<StoredEvent>, Option<u64>), StoreError> {
        let first = numbers.first().unwrap_or(0);
        let some = numbers.up_to(first.saturating_add(NUMBERS_A_STATEMENT));
        let mut some = some.as_slice();
        some = &some[..some.len().min(RANGES_A_STATEMENT)];
        let last = some.last().map_or(first, |&(_, last)| last);
        let size = page_size(self.event_bytes, budget);
        let keys: Vec<String> = self.starts.keys().map(|key| hexadecimal(key)).collect();
        if keys.is_empty() {
            return Ok((Vec::new(), None));
        }
        let order_by = self.guard.order_by();
        let key = match order_by {
            OrderBy::Key => "cast(o.`key` as binary)",
            OrderBy::KeyAndTopic => TOPIC_AND_KEY,
        };
        let sql = format!(
            "select {OUTBOX} from posthaste_outbox as o \
             where {} and {key} in ({}) order by o.seq limit {}",
            condition(some).replace("{seq}", "o.seq"),
            keys.join(","),
            size,
        );
        let (mut page, mut count, mut full, mut behind) =
            (page::page(budget, order_by), 0, false, None);
        let starts = &self.starts;
        work.query_each(&sql, |row| {
            count += 1;
            if full {
                return Ok(());
            }
            let (seq, _) = row::place(OPERATION, &row)?;
            let key = row::order_key(order_by, &row);
            let start = key.and_then(|key| starts.get(&key));
            if start.is_some_and(|start| !start.has_seen(seq))
                && row::push(&mut page, budget, OPERATION, &row)? == Pushed::NoRoom
            {
                full = true;
                return Ok(());
            }
            behind = Some(seq);
            Ok(())
        })
        .await?;
        if let Some(average) = page.bytes().checked_div(page.len()) {
            self.event_bytes = average.max(self.event_bytes / 4);
        }
        let looked = match full || count >= size {
            true => Some(behind.unwrap_or(first)),
            false => Some(last).filter(|&last| numbers.last() != Some(last)),
        };
        Ok((page.finish(), looked))
    }
}

/// A key as a literal of bytes.
fn hexadecimal(key: &str) -> String {
    let digits: String = key.bytes().map(|byte| format!("{byte:02x}")).collect();
    format!("x'{digits}'")
}
