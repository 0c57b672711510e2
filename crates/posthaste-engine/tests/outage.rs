//! An outage is not a poison event: what a destination cannot take now is nobody's fault.

#![allow(clippy::unwrap_used)]

#[cfg_attr(not(feature = "model"), allow(dead_code))] // Only one of its users is compiled then.
mod flow;
#[cfg(feature = "model")]
mod hour;
#[cfg(feature = "leave-out-rules")]
mod left_out;
mod paused;
mod places;
mod put_off;
mod refused;
mod steady;
mod suspects;

use std::{
    any::Any,
    cell::RefCell,
    collections::BTreeSet,
    ops::RangeInclusive,
    sync::Arc,
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use posthaste_engine::{
    Backoff, BreakerState, Cause, Change, Cursor, DeliveryPolicy, Due, FenceKind, Field, KeyOrder,
    Marker, Moment, Outcome, Page, PageBuilder, ParkedCopy, Parking, Pipeline, PipelineLimits,
    Record, RejectionKind, Router, Routes, Settlement, SideStep, SinkInfo, StoredFields,
    TopicParts, Verdict,
};
use uuid::Uuid;

const EVENTS: i64 = 40;

/// These events, over so many keys.
fn page(seqs: RangeInclusive<i64>, keys: i64) -> Page {
    page_of(seqs, keys, |_| "t")
}

fn page_of(seqs: RangeInclusive<i64>, keys: i64, topic: impl Fn(i64) -> &'static str) -> Page {
    any_page(seqs, keys, true, topic)
}

fn any_page(
    seqs: RangeInclusive<i64>,
    keys: i64,
    is_keyed: bool,
    topic: impl Fn(i64) -> &'static str,
) -> Page {
    let base: Arc<dyn Any + Send + Sync> = Arc::new(*seqs.end());
    let mut builder = PageBuilder::default();
    for seq in seqs {
        let key = is_keyed.then(|| (seq % keys).to_string());
        push(&mut builder, seq, topic(seq), key.as_deref());
    }
    Page {
        caught_up: true,
        ..Page::up_to(base, builder.finish())
    }
}

pub(crate) fn push(builder: &mut PageBuilder, seq: i64, topic: &str, key: Option<&str>) {
    let mut texts = [None; 9];
    texts[Field::Topic as usize] = Some(topic);
    texts[Field::Key as usize] = key;
    let fields = StoredFields {
        seq,
        id: Uuid::from_u128(u128::try_from(seq).unwrap()),
        occurred_at: 0,
        inserted_at: 0,
        slot: 0,
        texts,
        payload: None,
    };
    builder.push(&fields, std::iter::empty()).unwrap();
}

fn empty_page() -> Page {
    Page {
        caught_up: true,
        ..Page::up_to(Arc::new(()), Vec::new())
    }
}

fn pipeline() -> Pipeline {
    pipeline_with(KeyOrder::Pipelined)
}

fn pipeline_with(key_order: KeyOrder) -> Pipeline {
    pipeline_over(key_order, &[])
}

fn pipeline_over(key_order: KeyOrder, markers: &[Marker]) -> Pipeline {
    pipeline_that_probes(TICKS, key_order, markers)
}

const TICK: Duration = Duration::from_millis(1);

const TICKS: Backoff = Backoff {
    first: TICK,
    max: TICK,
    jitter: 0.0,
};

/// Six partitions of each topic. Those of topic `late` are known when they were asked for often.
#[derive(Debug, Default)]
struct Sixths {
    asked: AtomicUsize,
}

impl Sixths {
    const ASKED_OFTEN: usize = 90;

    fn are_known(&self, topic: &str) -> bool {
        topic != "late" || self.asked.load(Ordering::Relaxed) >= Self::ASKED_OFTEN
    }
}

impl TopicParts for Sixths {
    fn part(&self, record: &Record) -> Option<u32> {
        let seq = record.event().seq();
        let part = record.order_key().and(u32::try_from(seq % 6).ok());
        part.filter(|_| self.are_known(record.topic()))
    }

    fn knows(&self, topic: &str) -> bool {
        self.asked.fetch_add(1, Ordering::Relaxed);
        self.are_known(topic)
    }
}

fn pipeline_that_probes(probe: Backoff, key_order: KeyOrder, markers: &[Marker]) -> Pipeline {
    pipeline_of((probe, 10_000), key_order, markers)
}

fn pipeline_of(
    (probe, blocked_keys_max): (Backoff, usize),
    key_order: KeyOrder,
    markers: &[Marker],
) -> Pipeline {
    let (tick, backoff) = (TICK, TICKS);
    let limits = PipelineLimits {
        window_events: 10_000,
        window_bytes: 8 << 20,
        batch_events: 100,
        batch_bytes: 1 << 20,
        retry: backoff,
        probe,
        blocked_keys_max,
        blocked_keys_kept: 10_000,
        rejections_max: 100,
        advance_every: tick,
        settle: tick,
        poll_busy: tick,
        poll_idle: tick,
        due_every: tick,
    };
    pipeline_within(limits, key_order, markers)
}

fn pipeline_within(limits: PipelineLimits, key_order: KeyOrder, markers: &[Marker]) -> Pipeline {
    let info = SinkInfo {
        kind: "model",
        batch_events_max: 100,
        batch_bytes_max: 1 << 20,
        in_flight_events_max: 1_000,
        event_bytes_max: None,
        requests_max: None,
        deduplication: None,
        key_order,
        fence: FenceKind::Exact,
        single_lane: true,
        parts: (key_order == KeyOrder::Pipelined)
            .then(|| Arc::new(Sixths::default()) as Arc<dyn TopicParts>),
    };
    let router = Router {
        routes: Routes::default().for_destination("model", DeliveryPolicy::default()),
        topic: None,
        key: None,
    };
    Pipeline::new(limits, info, router, markers)
}

/// A device that is nearly full takes a probe's few events and refuses the batch behind them, as a
/// whole, until somebody frees space.
#[test]
fn a_batch_that_fails_as_a_whole_behind_accepted_probes_parks_nothing() {
    let mut pipeline = pipeline();
    let mut now = Moment(Duration::from_secs(1));
    pipeline.next_read(now).unwrap();
    pipeline.read(page(1..=EVENTS, 1), now);
    for _ in 0..EVENTS - 1 {
        now = now.after(Duration::from_secs(1));
        assert!(pipeline.wants_lane(now));
        pipeline.lane_opened();
        let mut room = 1;
        while let Some(batch) = pipeline.take_batch(now) {
            let outcome = |taken| match taken {
                true => Outcome::accepted(),
                false => Outcome::unavailable(Cause::Connection, "no space left"),
            };
            let verdicts = batch.iter().map(|record| {
                room -= 1;
                Verdict {
                    ticket: record.ticket(),
                    outcome: outcome(room >= 0),
                }
            });
            pipeline.verdicts(verdicts.collect(), now, 0.5);
        }
        assert!(pipeline.wants_abort());
        pipeline.lane_ended(now);
    }
    let counts = pipeline.counts();
    assert_eq!(
        (counts.accepted, counts.rejected),
        (EVENTS.unsigned_abs() - 1, 0)
    );
}

/// Delivers for a while to a destination that answers each record so, and ends its lane where it
/// answers that it is unavailable; every change is made at once. Answers the number of events that
/// were parked.
fn deliver(
    pipeline: &mut Pipeline,
    from: Moment,
    seconds: u64,
    answer: impl Fn(&Record) -> Outcome,
) -> usize {
    let answer = |record: &Record| Some(answer(record));
    let changes = deliver_with(pipeline, &mut Vec::new(), from, seconds, answer);
    let parked = changes.iter().map(|change| match change {
        Change::Park(events) => events.len(),
        _ => 0,
    });
    parked.sum()
}

fn make_changes(
    pipeline: &mut Pipeline,
    due: &mut Vec<ParkedCopy>,
    now: Moment,
    changes: &mut Vec<Change>,
) {
    while let Some(change) = pipeline.next_change(now, 0.5) {
        let answer = matches!(change, Change::Due { .. }).then(|| Due {
            events: std::mem::take(due),
            ..Due::default()
        });
        pipeline.change_done(answer, false, now);
        changes.push(change);
    }
}

/// The same where these copies are due at first, and where a lane falls silent without an answer.
/// Answers the changes.
fn deliver_with(
    pipeline: &mut Pipeline,
    due: &mut Vec<ParkedCopy>,
    from: Moment,
    seconds: u64,
    answer: impl Fn(&Record) -> Option<Outcome>,
) -> Vec<Change> {
    let mut changes = Vec::new();
    for tenth in 0..seconds * 10 {
        let now = from.after(Duration::from_millis(tenth * 100));
        if pipeline.wants_lane(now) {
            pipeline.lane_opened();
        }
        make_changes(pipeline, due, now, &mut changes);
        while let Some(batch) = pipeline.take_batch(now) {
            let (mut is_over, mut put_off) = (false, BTreeSet::new());
            let verdicts = batch.iter().map_while(|record| {
                let outcome = if is_over {
                    Outcome::unavailable(Cause::LaneEnded, "the lane ended")
                } else if put_off.contains(&record.order_key()) {
                    Outcome::unavailable(Cause::BehindFailure, "behind an event that was put off")
                } else {
                    answer(record)?
                };
                match &outcome {
                    Outcome::Later(_) => drop(put_off.insert(record.order_key())),
                    Outcome::Unavailable(why) => is_over |= why.cause != Cause::BehindFailure,
                    Outcome::Accepted(_) | Outcome::Rejected(_) => {}
                }
                let ticket = record.ticket();
                Some(Verdict { ticket, outcome })
            });
            let verdicts: Vec<_> = verdicts.collect();
            let is_silent = verdicts.len() < batch.len();
            pipeline.verdicts(verdicts, now, 0.5);
            if is_silent {
                pipeline.answer_is_late("no answer".to_owned(), now, 0.5);
            }
        }
        if pipeline.wants_abort() {
            pipeline.lane_ended(now);
        }
    }
    changes
}

fn broken() -> Outcome {
    Outcome::unavailable(Cause::Connection, "connection reset")
}

/// The kinds of failure of the attempts with parked events.
fn failures(changes: &[Change]) -> Vec<&'static str> {
    let kind = |change: &Change| match change {
        Change::Settle {
            settlement: Settlement::Failed { kind, .. },
            ..
        } => Some(*kind),
        _ => None,
    };
    changes.iter().filter_map(kind).collect()
}

/// All events but the first are to be sent; a copy of that one, which was refused once, is due.
fn beside_a_refused_one() -> (Pipeline, Vec<ParkedCopy>, Moment) {
    let mut pipeline = pipeline();
    let now = Moment(Duration::from_secs(1));
    pipeline.next_read(now).unwrap();
    pipeline.read(page(2..=EVENTS, EVENTS), now);
    let refused = ParkedCopy {
        id: 1,
        event: page(1..=1, EVENTS).events.remove(0),
        attempts: 1,
        holds_key: true,
        never_tried: false,
    };
    (pipeline, vec![refused], now)
}

/// The destination takes all but the first event, over which it ends the connection.
fn all_but_the_first(record: &Record) -> Outcome {
    match record.event().seq() {
        1 => broken(),
        _ => Outcome::accepted(),
    }
}

/// Only those that pass before it show that it is the one.
#[test]
fn an_event_that_ends_every_lane_is_set_aside_and_delays_its_key_alone() {
    let mut pipeline = pipeline();
    let now = Moment(Duration::from_secs(1));
    pipeline.next_read(now).unwrap();
    pipeline.read(page(1..=EVENTS, EVENTS), now);
    let parked = deliver(&mut pipeline, now, 60, all_but_the_first);
    let others = EVENTS.unsigned_abs() - 1;
    assert_eq!((pipeline.counts().accepted, parked), (others, 1));
}

#[test]
fn a_parked_event_that_ends_every_lane_gathers_attempts_and_delays_nobody() {
    let (mut pipeline, mut due, now) = beside_a_refused_one();
    let answer = |record: &Record| Some(all_but_the_first(record));
    let changes = deliver_with(&mut pipeline, &mut due, now, 60, answer);
    assert_eq!(pipeline.counts().accepted, EVENTS.unsigned_abs() - 1);
    assert_eq!(failures(&changes), ["fails_alone"]);
}

/// A destination that hangs over an event, one that waits for its first attempt and one that was
/// refused before.
#[test]
fn events_that_silence_every_lane_delay_nobody() {
    let (mut pipeline, mut due, now) = beside_a_refused_one();
    let answer = |record: &Record| match record.event().seq() {
        1 | 2 => None,
        _ => Some(Outcome::accepted()),
    };
    let mut changes = deliver_with(&mut pipeline, &mut due, now, 60, answer);
    assert_eq!(pipeline.counts().accepted, EVENTS.unsigned_abs() - 2);
    // There were too few to show that both are at fault; more come by and by.
    for n in 1..=20 {
        let now = now.after(Duration::from_secs(60) * u32::try_from(n).unwrap());
        pipeline.next_read(now).unwrap();
        pipeline.read(page(EVENTS + n..=EVENTS + n, i64::MAX), now);
        changes.extend(deliver_with(&mut pipeline, &mut due, now, 30, answer));
    }
    assert_eq!(failures(&changes), ["fails_alone"]);
    let is_parking = |change: &&Change| matches!(change, Change::Park(_));
    assert_eq!(changes.iter().filter(is_parking).count(), 1);
}

#[test]
fn an_outage_that_begins_at_a_retry_burns_no_attempt() {
    let (mut pipeline, mut due, mut now) = beside_a_refused_one();
    pipeline.lane_opened();
    make_changes(&mut pipeline, &mut due, now, &mut Vec::new());
    // The retry goes out with the others, which pass; and then the destination goes away.
    let mut batch = pipeline.take_batch(now).unwrap();
    batch.sort_by_key(|record| record.event().seq() == 1);
    let verdicts = batch.iter().map(|record| Verdict {
        ticket: record.ticket(),
        outcome: all_but_the_first(record),
    });
    pipeline.verdicts(verdicts.collect(), now, 0.5);
    pipeline.lane_ended(now);
    now = now.after(Duration::from_secs(1));
    let changes = deliver_with(&mut pipeline, &mut Vec::new(), now, 10, |_| Some(broken()));
    assert_eq!(failures(&changes), [""; 0]);
    now = now.after(Duration::from_secs(10));
    deliver(&mut pipeline, now, 10, |_| Outcome::accepted());
    assert_eq!(pipeline.counts().accepted, EVENTS.unsigned_abs());
}

fn refused() -> Outcome {
    Outcome::rejected(RejectionKind::Unroutable, "no such topic")
}

/// The default waits.
const PROBES: Backoff = Backoff {
    first: Duration::from_millis(500),
    max: Duration::from_secs(3),
    jitter: 0.0,
};

fn refusing(key_order: KeyOrder) -> Pipeline {
    pipeline_that_probes(PROBES, key_order, &[])
}

/// [`deliver`] with so many events, each of a key of its own or without one, of which as many are
/// read as there is room for.
fn read_and_deliver(
    pipeline: &mut Pipeline,
    (events, is_keyed): (i64, bool),
    from: Moment,
    seconds: u64,
    answer: impl Fn(&Record) -> Outcome,
) -> usize {
    let mut parked = 0;
    let mut read = 0;
    for second in 0..seconds {
        let mut now = from.after(Duration::from_secs(second));
        while read < events
            && let Some(budget) = pipeline.next_read(now)
        {
            let last = events.min(read + i64::try_from(budget.events).unwrap());
            let page = any_page(read + 1..=last, events, is_keyed, |_| "t");
            let caught_up = last == events;
            pipeline.read(Page { caught_up, ..page }, now);
            read = last;
            now = now.after(Duration::from_millis(1));
        }
        parked += deliver(pipeline, now, 1, &answer);
    }
    parked
}

#[test]
fn a_destination_that_returns_is_filled_slowly() {
    let mut pipeline = pipeline();
    let mut now = Moment(Duration::from_secs(1));
    pipeline.begin_with_a_probe();
    pipeline.next_read(now).unwrap();
    pipeline.read(page(1..=5_000, 5_000), now);
    pipeline.lane_opened();
    let mut flights = Vec::new();
    for _ in 0..8 {
        now = now.after(Duration::from_millis(10));
        let flight: Vec<Record> = std::iter::from_fn(|| pipeline.take_batch(now))
            .flatten()
            .collect();
        flights.push(flight.len());
        let accepted = flight.iter().map(|record| Verdict {
            ticket: record.ticket(),
            outcome: Outcome::accepted(),
        });
        pipeline.verdicts(accepted.collect(), now, 0.5);
    }
    assert_eq!(flights, [10, 20, 40, 80, 160, 320, 640, 1_000]);
}

#[test]
fn events_sent_again_with_an_unknown_fate_are_counted_as_repeats() {
    let mut pipeline = pipeline();
    let mut now = Moment(Duration::from_secs(1));
    pipeline.next_read(now).unwrap();
    pipeline.read(page(1..=EVENTS, EVENTS), now);
    pipeline.lane_opened();
    assert_eq!(pipeline.take_batch(now).unwrap().len(), 40);
    pipeline.answer_is_late("no answer".to_owned(), now, 0.5);
    pipeline.lane_ended(now);
    assert_eq!(pipeline.counts().repeated, 0);
    now = now.after(Duration::from_secs(1));
    deliver(&mut pipeline, now, 1, |_| Outcome::accepted());
    assert_eq!(pipeline.counts().repeated, EVENTS.unsigned_abs());
}

/// The next step of the side read; the changes before it are made. Like a relay, it asks before
/// them and behind them.
fn next_side_step(pipeline: &mut Pipeline, now: Moment) -> Option<SideStep> {
    pipeline.next_side_step().or_else(|| {
        make_changes(pipeline, &mut Vec::new(), now, &mut Vec::new());
        pipeline.next_side_step()
    })
}

/// A pipeline that has read nothing, and reads a released key apart: that of these events.
fn beside_a_released_key(key_order: KeyOrder, now: Moment) -> Pipeline {
    let marker = Marker {
        key: "1".to_owned(),
        at: Cursor::whole(Arc::new(())),
        released: true,
    };
    let mut pipeline = pipeline_over(key_order, &[marker]);
    pipeline.next_read(now).unwrap();
    pipeline.read(empty_page(), now);
    let step = next_side_step(&mut pipeline, now);
    assert!(matches!(step, Some(SideStep::Open(_))), "{step:?}");
    pipeline.side_opened();
    read_apart(&mut pipeline, empty_page(), now);
    pipeline
}

fn read_apart(pipeline: &mut Pipeline, page: Page, now: Moment) {
    let step = next_side_step(pipeline, now);
    assert!(matches!(step, Some(SideStep::Read { .. })), "{step:?}");
    pipeline.side_read(page);
}

/// The same where the main group stands still for the key's join, and this event came for the key
/// before it did.
fn held_for_a_join(key_order: KeyOrder, topic: &'static str) -> (Pipeline, Moment) {
    let now = Moment(Duration::from_secs(1));
    let mut pipeline = beside_a_released_key(key_order, now);
    read_apart(&mut pipeline, page_of(1..=1, EVENTS, |_| topic), now);
    let later = now.after(Duration::from_secs(1));
    assert_eq!(pipeline.next_read(later), None, "the main group is held");
    (pipeline, later)
}

/// Until the key joins.
fn join(pipeline: &mut Pipeline, now: Moment) {
    loop {
        match next_side_step(pipeline, now).unwrap() {
            SideStep::Read { .. } => pipeline.side_read(empty_page()),
            SideStep::Advance { .. } => pipeline.side_advanced(),
            SideStep::Join { keys, .. } => break assert_eq!(keys, ["1"]),
            step @ SideStep::Open(_) => panic!("{step:?}"),
        }
    }
    assert_eq!(pipeline.side_joined(now), 1);
    assert_eq!(pipeline.blocked_keys(), 0);
}

/// The main group is held, and nothing else is there that would pass.
#[test]
fn an_event_that_ends_every_lane_while_its_key_joins_delays_its_key_alone() {
    let (mut pipeline, mut now) = held_for_a_join(KeyOrder::Pipelined, "t");
    assert_eq!(deliver(&mut pipeline, now, 1, all_but_the_first), 0);
    now = now.after(Duration::from_secs(1));
    pipeline.next_read(now).expect("the main group reads on");
    pipeline.read(page(2..=EVENTS, EVENTS), now);
    let parked = deliver(&mut pipeline, now, 60, all_but_the_first);
    let others = EVENTS.unsigned_abs() - 1;
    assert_eq!((pipeline.counts().accepted, parked), (others, 1));
}

#[test]
fn a_full_queue_holds_up_no_other_topic_while_a_key_of_its_own_joins() {
    let (mut pipeline, mut now) = held_for_a_join(KeyOrder::OneAtATime, "full");
    let full = |record: &Record| match record.topic() {
        "full" => Outcome::later("a queue is full"),
        _ => Outcome::accepted(),
    };
    deliver(&mut pipeline, now, 1, full);
    now = now.after(Duration::from_secs(1));
    pipeline.next_read(now).expect("the main group reads on");
    pipeline.read(page(2..=EVENTS, EVENTS), now);
    deliver(&mut pipeline, now, 10, full);
    assert_eq!(pipeline.counts().accepted, EVENTS.unsigned_abs() - 1);
    now = now.after(Duration::from_secs(10));
    deliver(&mut pipeline, now, 10, |_| Outcome::accepted());
    assert_eq!(pipeline.counts().accepted, EVENTS.unsigned_abs());
    join(&mut pipeline, now.after(Duration::from_secs(10)));
}

/// Another event ends the lanes, and nobody knows yet that it is at fault: its failure may be told
/// from an outage only by what the main group reads.
#[test]
fn a_key_that_may_not_join_yet_is_read_as_far_as_the_others() {
    let mut now = Moment(Duration::from_secs(1));
    let mut pipeline = beside_a_released_key(KeyOrder::Pipelined, now);
    pipeline.lane_opened();
    now = now.after(Duration::from_secs(1));
    pipeline.next_read(now).unwrap();
    pipeline.read(page(2..=2, EVENTS), now);
    let batch = pipeline.take_batch(now).unwrap();
    let failed = batch.iter().map(|record| Verdict {
        ticket: record.ticket(),
        outcome: broken(),
    });
    pipeline.verdicts(failed.collect(), now, 0.5);
    pipeline.lane_ended(now);
    read_apart(&mut pipeline, empty_page(), now);
    assert!(next_side_step(&mut pipeline, now).is_none(), "it is there");
    now = now.after(Duration::from_secs(1));
    pipeline.next_read(now).expect("the main group reads on");
    pipeline.read(page(3..=EVENTS, EVENTS), now);
    read_apart(&mut pipeline, page(1..=1, EVENTS), now);
    deliver(&mut pipeline, now, 10, |_| Outcome::accepted());
    assert_eq!(pipeline.counts().accepted, EVENTS.unsigned_abs());
    join(&mut pipeline, now.after(Duration::from_secs(10)));
}
