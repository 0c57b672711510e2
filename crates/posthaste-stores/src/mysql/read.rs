//! The pages of the main group, and the samples between them.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use mysql_async::params;
use posthaste_engine::{Budget, Cursor, Page, StoreError, StoredEvent};
use tokio::{task::JoinHandle, time::Instant};

use super::{
    MysqlStore,
    config::HoleProof,
    connection::{Fields, Link, Work},
    error::unavailable,
    guard::Guard,
    plan::{Plan, Wanted},
    proof::Proof,
    ranges::Ranges,
    row::{self, OUTBOX},
    sample::{self, Doubt, Instrument, Prepared, Probe, Trust},
    slots::Slots,
};
use crate::page::{self, Pushed};

const OPERATION: &str = "read the outbox";

/// Ranges that one statement is about: the server's memory for them is limited, and beyond it a
/// statement reads the whole index.
const RANGES_A_STATEMENT: usize = 1_000;

/// With as many ranges of numbers not seen nothing new is read: only these are.
const HOLES_MAX: usize = 10_000;

/// Samples follow each other at this distance, as long as there are holes.
const SAMPLE_EVERY: Duration = Duration::from_millis(50);
/// A lock is tried so often.
const PROBE_EVERY: Duration = Duration::from_secs(1);

/// Nothing is known yet of how large the events are: 10 of the largest are bearable.
const FIRST_PAGE_SIZE: usize = 10;
/// Rows of a page at the most.
const PAGE_SIZE_MAX: usize = 10_000;

/// Reads the pages of a claim, on one connection.
pub(super) struct Reader {
    link: Link,
    guard: Guard,
    plan: Arc<Mutex<Plan>>,
    slots: Slots,
    /// A read is followed by a write of ours before its events are handed out: an event may be
    /// visible before it is durable.
    fences: bool,
    hole_proof: HoleProof,
    trust: Arc<Trust>,
    probe: Arc<Probe>,
    state: tokio::sync::Mutex<State>,
}

struct State {
    proof: Proof,
    instrument: Result<Instrument, Doubt>,
    sampled_at: Option<Instant>,
    probed_at: Option<Instant>,
    probing: Option<Probing>,
    /// The last one that was told.
    doubt: Option<Doubt>,
    is_full: bool,
    /// The last read found no row.
    is_quiet: bool,
    /// Bytes that an event of the last page took on average, at least; zero: nothing read yet.
    event_bytes: usize,
}

/// A lock that is asked for, about the numbers up to this one.
struct Probing {
    high: u64,
    /// How many looks were blind before it, unless the last one was.
    saw: Option<u64>,
    task: JoinHandle<Result<Result<Prepared, Doubt>, StoreError>>,
}

impl Drop for Probing {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// The result of a read.
struct Answer {
    events: Vec<StoredEvent>,
    rows: Ranges,
    covered: u64,
    shares_version: i64,
}

impl Reader {
    pub(super) async fn open(
        store: &MysqlStore,
        link: Link,
        guard: Guard,
        slots: Slots,
        plan: Arc<Mutex<Plan>>,
    ) -> Result<Self, StoreError> {
        let mut work = link.work("open a claim").await?;
        let result = async {
            let instrument = match store.config.hole_proof {
                HoleProof::Nothing => Err("`hole-proof` is `none`".to_owned()),
                _ => sample::instrument(&mut work).await?,
            };
            let row = work.one(include_str!("sql/durable.sql"), ()).await?;
            Ok((instrument, !row.flag(0)?))
        };
        let result = result.await;
        let (instrument, fences) = work.end(result).await?;
        Ok(Self {
            link,
            guard,
            plan,
            slots,
            fences,
            hole_proof: store.config.hole_proof,
            trust: Arc::clone(&store.trust),
            probe: Arc::new(Probe::new(Link::new(&store.config))),
            state: tokio::sync::Mutex::new(State {
                proof: Proof::default(),
                instrument,
                sampled_at: None,
                probed_at: None,
                probing: None,
                doubt: None,
                is_full: false,
                is_quiet: false,
                event_bytes: 0,
            }),
        })
    }

    fn plan(&self) -> MutexGuard<'_, Plan> {
        self.plan.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) async fn next(&self, budget: Budget) -> Result<Page, StoreError> {
        let mut state = self.state.lock().await;
        let mut work = self.link.work(OPERATION).await?;
        let result = self.page(&mut work, &mut state, budget).await;
        work.end(result).await
    }

    async fn page(
        &self,
        work: &mut Work,
        state: &mut State,
        budget: Budget,
    ) -> Result<Page, StoreError> {
        self.prove(work, state).await?;
        let (wanted, holes) = {
            let plan = self.plan();
            (plan.wanted(HOLES_MAX), plan.open_holes())
        };
        if holes >= HOLES_MAX && !std::mem::replace(&mut state.is_full, true) {
            tracing::warn!(
                "{holes} ranges of numbers are not proven to be empty: nothing new is read until \
                 some of them are"
            );
        }
        state.is_full = holes >= HOLES_MAX;
        let answer = self.read(work, state, &wanted, budget).await?;
        if self.fences && !answer.events.is_empty() {
            self.make_durable(work).await?;
        }
        let decided = state.proof.decided();
        let (places, joinable, advances) = {
            let mut plan = self.plan();
            let places = plan.answer(&wanted, &answer.rows, answer.covered, decided);
            (places, plan.is_whole(), plan.wants_advance())
        };
        let base = places.shared();
        Ok(Page {
            end: Cursor::whole(Arc::clone(&base)),
            base,
            joinable,
            caught_up: !wanted.converges && !state.is_full && answer.covered == u64::MAX,
            store_end: answer.events.is_empty() && advances,
            shares_version: answer.shares_version,
            events: answer.events,
        })
    }

    /// All that is visible to the read is durable once a later change of ours is.
    async fn make_durable(&self, work: &mut Work) -> Result<(), StoreError> {
        let of = params! {
            "id" => self.guard.cursor_id(),
            "epoch" => self.guard.epoch(),
            "registration" => self.guard.registration().to_string(),
        };
        let sql = "update posthaste_cursors set fence = fence + 1 \
                   where id = :id and epoch = :epoch and relay = :registration";
        match work.execute(sql, of).await? {
            0 => Err(StoreError::Fenced {
                operation: OPERATION,
            }),
            _ => Ok(()),
        }
    }

    /// Takes a sample where holes call for one.
    async fn prove(&self, work: &mut Work, state: &mut State) -> Result<(), StoreError> {
        let (high, last_hole) = {
            let plan = self.plan();
            (plan.high(), plan.last_hole())
        };
        if !state.proof.wants_sample(last_hole) {
            return Ok(());
        }
        let now = Instant::now();
        if state
            .sampled_at
            .is_some_and(|at| now.duration_since(at) < SAMPLE_EVERY)
        {
            return Ok(());
        }
        state.sampled_at = Some(now);
        let blind_looks = self.trust.blind_looks();
        let sampled = match &state.instrument {
            Ok(instrument) => sample::sample(work, *instrument, &self.trust).await?,
            Err(doubt) => Err(doubt.clone()),
        };
        let doubt = match sampled {
            Ok(sample) => {
                state.proof.sampled(high, &sample);
                state.doubt = None;
                return Ok(());
            }
            Err(doubt) => doubt,
        };
        if state.doubt.is_none() {
            // The instruments may have been blind before as well. Locks were not.
            state.proof.doubt();
        }
        if self.hole_proof == HoleProof::Lock {
            let saw = state.instrument.is_ok() && self.trust.blind_looks() == blind_looks;
            self.probe(state, high, saw.then_some(blind_looks)).await?;
        } else if self.hole_proof == HoleProof::Instruments && state.doubt.as_ref() != Some(&doubt)
        {
            tracing::warn!(
                "numbers that were drawn and not seen cannot be proven to be empty: {doubt}; they \
                 are looked for with each read\nfix: see what `posthaste check` asks for, or add \
                 `hole-proof=lock` to the address"
            );
        }
        state.doubt = Some(doubt);
        Ok(())
    }

    /// Takes the answer of a lock that was asked for, and asks for the next one. Reading goes on
    /// meanwhile.
    async fn probe(
        &self,
        state: &mut State,
        high: u64,
        saw: Option<u64>,
    ) -> Result<(), StoreError> {
        if let Some(mut probing) = state.probing.take() {
            if !probing.task.is_finished() {
                state.probing = Some(probing);
                return Ok(());
            }
            let answer = (&mut probing.task).await;
            let answer = answer.map_err(|_| unavailable(OPERATION, "a lock was given up"))?;
            if let Ok(prepared) = answer? {
                state.proof.granted(probing.high, prepared);
                // Nobody of a time of blindness is left, if it was over before.
                if let Some(blind_looks) = probing.saw {
                    self.trust.regain(blind_looks);
                }
            }
        }
        let now = Instant::now();
        let at = state.probed_at;
        if at.is_none_or(|at| now.duration_since(at) >= PROBE_EVERY) {
            state.probed_at = Some(now);
            let probe = Arc::clone(&self.probe);
            let task = tokio::spawn(async move { probe.try_it(OPERATION).await });
            state.probing = Some(Probing { high, saw, task });
        }
        Ok(())
    }

    async fn read(
        &self,
        work: &mut Work,
        state: &mut State,
        wanted: &Wanted,
        budget: Budget,
    ) -> Result<Answer, StoreError> {
        let size = page_size(state.event_bytes, budget);
        // Taken before the statement: all that was committed by now is there.
        let seen = self.guard.seen();
        let mut reading = Reading {
            plan: Arc::clone(&self.plan),
            wanted,
            budget,
            page: page::page(budget, self.guard.order_by()),
            rows: Ranges::default(),
            count: 0,
            full_behind: None,
        };
        let chunks: Vec<_> = wanted
            .numbers
            .as_slice()
            .chunks(RANGES_A_STATEMENT)
            .collect();
        if let ([one], true) = (chunks.as_slice(), state.is_quiet)
            && let Some(nothing) = self.look(work, one, seen).await?
        {
            return Ok(nothing);
        }
        let header = self.header("");
        let shares_version = if let [one] = chunks.as_slice() {
            let sql = format!("{header}; {}", self.sql(one, size));
            let header = work.query_page(&sql, |row| reading.take(&row)).await?;
            heed(header, seen)?.get(0)?
        } else {
            // All of them in one snapshot, else an event could come before an earlier one.
            work.run(super::connection::BEGIN_SNAPSHOT).await?;
            let header = work.query(&header).await?;
            let version = heed(header, seen)?.get(0)?;
            for chunk in chunks {
                let left = size.saturating_sub(reading.count);
                if left == 0 || reading.full_behind.is_some() {
                    break;
                }
                let sql = self.sql(chunk, left);
                work.query_each(&sql, |row| reading.take(&row)).await?;
            }
            work.run(super::connection::COMMIT).await?;
            version
        };
        let covered = match reading.full_behind {
            Some(behind) => behind,
            None if reading.count >= size => reading.rows.last().unwrap_or(0),
            None => u64::MAX,
        };
        if let Some(average) = reading.page.bytes().checked_div(reading.page.len()) {
            // Down by steps: one small event among large ones must not call for a thousand of them.
            state.event_bytes = average.max(state.event_bytes / 4);
        }
        state.is_quiet = reading.count == 0;
        Ok(Answer {
            events: reading.page.finish(),
            rows: reading.rows,
            covered,
            shares_version,
        })
    }

    /// The answer where there is no row of these numbers, by one statement. It is a read like any
    /// other: all of them are seen at one moment.
    async fn look(
        &self,
        work: &mut Work,
        numbers: &[(u64, u64)],
        seen: i64,
    ) -> Result<Option<Answer>, StoreError> {
        let numbers = condition(numbers).replace("{seq}", "o.seq");
        let exists = format!(", exists (select 1 from posthaste_outbox as o where {numbers})");
        let header = work.query(&self.header(&exists)).await?;
        let header = heed(header, seen)?;
        if header.flag(2)? {
            return Ok(None);
        }
        Ok(Some(Answer {
            events: Vec::new(),
            rows: Ranges::default(),
            covered: u64::MAX,
            shares_version: header.get(0)?,
        }))
    }

    /// `more`: further columns.
    fn header(&self, more: &str) -> String {
        format!(
            "select d.shares_version, c.ver{more} from posthaste_cursors as c \
             join posthaste_destinations as d on d.id = c.destination_id \
             where c.id = {} and c.epoch = {} and c.relay = '{}'",
            self.guard.cursor_id(),
            self.guard.epoch(),
            self.guard.registration(),
        )
    }

    fn sql(&self, numbers: &[(u64, u64)], size: usize) -> String {
        let numbers = condition(numbers);
        if self.slots.are_all() {
            return format!(
                "select {OUTBOX} from posthaste_outbox as o where {} order by o.seq limit {size}",
                numbers.replace("{seq}", "o.seq")
            );
        }
        // Of the others the number alone: a row that was left out would look like a hole.
        let mask = self.slots.mask();
        let columns = OUTBOX.replacen("o.seq, o.slot", "s.seq, s.slot", 1);
        format!(
            "select {columns} from (\
                 select f.seq, f.slot from posthaste_outbox as f where {} \
                 order by f.seq limit {size}\
             ) as s left join posthaste_outbox as o on o.seq = s.seq \
                 and substr('{mask}', (s.slot * {} div 16384) + 1, 1) = '1' \
             order by s.seq",
            numbers.replace("{seq}", "f.seq"),
            self.slots.count(),
        )
    }
}

/// Nothing behind the header counts when the claim is not the newest, or when the server has lost
/// changes that this relay was told were made: numbers that were read may be given again.
fn heed(header: Vec<mysql_async::Row>, seen: i64) -> Result<Fields, StoreError> {
    let row = header.into_iter().next().ok_or(StoreError::Fenced {
        operation: OPERATION,
    })?;
    let header = Fields::of(OPERATION, row);
    match header.get::<i64>(1)? < seen {
        true => Err(StoreError::IncarnationChanged {
            operation: OPERATION,
        }),
        false => Ok(header),
    }
}

/// The ranges, as SQL.
pub(super) fn condition(numbers: &[(u64, u64)]) -> String {
    let (mut single, mut parts) = (Vec::new(), Vec::new());
    for &(first, last) in numbers {
        if last == u64::MAX {
            parts.push(format!("{{seq}} >= {first}"));
        } else if first == last {
            single.push(first.to_string());
        } else {
            parts.push(format!("{{seq}} between {first} and {last}"));
        }
    }
    if !single.is_empty() {
        parts.push(format!("{{seq}} in ({})", single.join(",")));
    }
    match parts.is_empty() {
        true => "false".to_owned(),
        false => format!("({})", parts.join(" or ")),
    }
}

/// The largest size that fits both budgets; rows beyond them would be sent for nothing.
pub(super) fn page_size(event_bytes: usize, budget: Budget) -> usize {
    let by_bytes = match event_bytes {
        0 => FIRST_PAGE_SIZE,
        // Half as many again: an average is not a bound, and a short page costs a round trip.
        bytes => (budget.bytes / bytes).saturating_mul(3) / 2,
    };
    budget.events.min(by_bytes).clamp(1, PAGE_SIZE_MAX)
}

/// A page as its rows come.
struct Reading<'a> {
    plan: Arc<Mutex<Plan>>,
    wanted: &'a Wanted,
    budget: Budget,
    page: posthaste_engine::PageBuilder,
    rows: Ranges,
    count: usize,
    /// The page has no room for what lies behind this number.
    full_behind: Option<u64>,
}

impl Reading<'_> {
    fn take(&mut self, row: &mysql_async::Row) -> Result<(), StoreError> {
        if self.full_behind.is_some() {
            return Ok(());
        }
        let (seq, slot) = row::place(OPERATION, row)?;
        let ours = {
            let plan = self.plan.lock().unwrap_or_else(PoisonError::into_inner);
            plan.brings(seq, slot)
        };
        if ours
            && row::has_event(row)
            && row::push(&mut self.page, self.budget, OPERATION, row)? == Pushed::NoRoom
        {
            // Numbers before the last row that was taken are decided by this read, no others.
            self.full_behind = Some(self.rows.last().unwrap_or(0));
            return Ok(());
        }
        debug_assert!(self.wanted.numbers.contains(seq));
        self.rows.push((seq, seq));
        self.count += 1;
        Ok(())
    }
}
