//! An outage is not a poison event: what a destination cannot take now is nobody's fault.

#![allow(clippy::unwrap_used)]

use std::{
    any::Any, cell::RefCell, collections::BTreeSet, ops::RangeInclusive, sync::Arc, time::Duration,
};

use posthaste_engine::{
    Backoff, BreakerState, Cause, Change, Cursor, DeliveryPolicy, Due, FenceKind, Field, KeyOrder,
    Marker, Moment, Outcome, Page, PageBuilder, ParkedCopy, Parking, Pipeline, PipelineLimits,
    Record, RejectionKind, Router, Routes, Settlement, SideStep, SinkInfo, StoredFields, Verdict,
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
        let key = (seq % keys).to_string();
        let mut texts = [None; 9];
        texts[Field::Topic as usize] = Some(topic(seq));
        texts[Field::Key as usize] = is_keyed.then_some(&key);
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
    Page {
        caught_up: true,
        ..Page::up_to(base, builder.finish())
    }
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
    let info = SinkInfo {
        kind: "model",
        batch_events_max: 100,
        batch_bytes_max: 1 << 20,
        in_flight_events_max: 1_000,
        key_order,
        fence: FenceKind::Exact,
        single_lane: true,
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
                true => Outcome::Accepted(None),
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
        event: page(1..=1, 1).events.remove(0),
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
        _ => Outcome::Accepted(None),
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
        _ => Some(Outcome::Accepted(None)),
    };
    let changes = deliver_with(&mut pipeline, &mut due, now, 60, answer);
    assert_eq!(pipeline.counts().accepted, EVENTS.unsigned_abs() - 2);
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
    deliver(&mut pipeline, now, 10, |_| Outcome::Accepted(None));
    assert_eq!(pipeline.counts().accepted, EVENTS.unsigned_abs());
}

fn refused() -> Outcome {
    Outcome::rejected(RejectionKind::Unroutable, "no such topic")
}

/// The key may be blocked by another event meanwhile.
#[test]
fn a_death_says_whether_the_key_waits_for_this_event() {
    for holds_key in [true, false] {
        let mut pipeline = pipeline();
        let now = Moment(Duration::from_secs(1));
        pipeline.next_read(now).unwrap();
        pipeline.read(page(2..=2, 1), now);
        assert_eq!(deliver(&mut pipeline, now, 1, |_| refused()), 1);
        assert_eq!(pipeline.blocked_keys(), 1);
        let mended_by_people = pipeline.take_refused();
        assert_eq!(mended_by_people.len(), 1);
        assert!(!mended_by_people[0].is_dead && mended_by_people[0].key_waits);
        let last_attempt = ParkedCopy {
            id: 1,
            event: page(1..=1, 1).events.remove(0),
            attempts: 1_000,
            holds_key,
            never_tried: false,
        };
        let later = now.after(Duration::from_secs(10));
        let answer = |_: &Record| Some(refused());
        deliver_with(&mut pipeline, &mut vec![last_attempt], later, 1, answer);
        let died = pipeline.take_refused();
        let died: Vec<_> = died
            .iter()
            .map(|one| (one.is_dead, one.key_waits))
            .collect();
        assert_eq!(died, [(true, holds_key)]);
    }
}

/// Nothing follows that would be accepted.
#[test]
fn a_destination_that_refused_the_probe_alone_is_there() {
    let mut pipeline = pipeline();
    let now = Moment(Duration::from_secs(1));
    pipeline.begin_with_a_probe();
    pipeline.next_read(now).unwrap();
    pipeline.read(page(1..=1, 1), now);
    let too_large = |_: &Record| Outcome::rejected(RejectionKind::TooLarge, "too large");
    assert_eq!(deliver(&mut pipeline, now, 1, too_large), 1);
    let later = now.after(Duration::from_secs(1));
    assert_eq!(pipeline.breaker(later), (BreakerState::Closed, None));
}

#[test]
fn an_event_that_is_tried_again_within_seconds_is_told_of_when_it_dies() {
    let mut pipeline = pipeline();
    let now = Moment(Duration::from_secs(1));
    pipeline.next_read(now).unwrap();
    pipeline.read(page(1..=1, 1), now);
    let invalid = |_: &Record| Outcome::rejected(RejectionKind::Invalid, "no JSON");
    assert_eq!(deliver(&mut pipeline, now, 1, invalid), 1);
    assert_eq!(pipeline.take_refused(), []);
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
fn a_destination_that_refuses_everything_parks_ten_thousand_in_an_hour_and_then_goes_on() {
    for is_keyed in [true, false] {
        let mut pipeline = refusing(KeyOrder::Pipelined);
        let mut now = Moment(Duration::from_secs(1));
        let events = (100_000, is_keyed);
        let parked = read_and_deliver(&mut pipeline, events, now, 3_600, |_| refused());
        assert!((9_000..=10_100).contains(&parked), "{parked} were parked");
        let attempts = pipeline.counts().rejected;
        assert!(attempts <= 45_000, "{attempts} attempts");
        now = now.after(Duration::from_secs(3_600));
        let (state, error) = pipeline.breaker(now);
        assert_ne!(state, BreakerState::Closed);
        let error = error.unwrap();
        assert!(error.contains("no such topic") && error.contains("dead retry --all"));
        let taken = |_: &Record| Outcome::Accepted(None);
        deliver(&mut pipeline, now, 10, taken);
        let read = pipeline.counts().read;
        assert_eq!(pipeline.counts().accepted, read - parked as u64);
        let later = now.after(Duration::from_secs(10));
        assert_eq!(pipeline.breaker(later), (BreakerState::Closed, None));
    }
}

/// A burst of events at fault looks like a broken destination; the healthy ones behind it must get
/// their turn all the same.
#[test]
fn healthy_events_behind_more_refused_ones_than_the_window_holds_are_delivered() {
    for is_keyed in [true, false] {
        for (order, all) in [
            (KeyOrder::Pipelined, 12_200),
            (KeyOrder::OneAtATime, 14_700),
        ] {
            let mut pipeline = refusing(order);
            let now = Moment(Duration::from_secs(1));
            let burst = all - 200;
            read_and_deliver(&mut pipeline, (all, is_keyed), now, 60, |record| {
                match record.event().seq() <= burst {
                    true => refused(),
                    false => Outcome::Accepted(None),
                }
            });
            assert_eq!(pipeline.counts().accepted, 200, "{order:?} {is_keyed}");
        }
    }
}

#[test]
fn an_event_that_ends_lanes_among_refused_ones_is_found_and_others_pass() {
    let mut pipeline = refusing(KeyOrder::OneAtATime);
    let now = Moment(Duration::from_secs(1));
    let parked = read_and_deliver(
        &mut pipeline,
        (2_100, true),
        now,
        120,
        |record| match record.event().seq() {
            1 => broken(),
            2..=2_000 => refused(),
            _ => Outcome::Accepted(None),
        },
    );
    assert_eq!((pipeline.counts().accepted, parked), (100, 2_000));
}

/// The main and the side group of a destination of which as many keys are blocked as may be: these
/// are released. Answers how many events were parked meanwhile.
fn release(
    pipeline: &mut Pipeline,
    keys: RangeInclusive<i64>,
    from: Moment,
    mut side: Vec<Page>,
    answer: impl Fn(&Record) -> Outcome,
) -> usize {
    let mut released: Vec<String> = keys.map(|key| key.to_string()).collect();
    let (mut parked, mut now) = (0, from);
    for _ in 0..600 {
        now = now.after(Duration::from_secs(1));
        if pipeline.wants_lane(now) {
            pipeline.lane_opened();
        }
        while let Some(change) = pipeline.next_change(now, 0.5) {
            let due = matches!(change, Change::Due { .. }).then(|| Due {
                released: std::mem::take(&mut released),
                ..Due::default()
            });
            parked += match change {
                Change::Park(events) => events.len(),
                _ => 0,
            };
            pipeline.change_done(due, false, now);
        }
        if pipeline.next_read(now).is_some() {
            pipeline.read(empty_page(), now);
        }
        match pipeline.next_side_step() {
            Some(SideStep::Open(_)) => pipeline.side_opened(),
            Some(SideStep::Read { .. }) => {
                pipeline.side_read(side.pop().unwrap_or_else(empty_page));
            }
            Some(SideStep::Advance { .. }) => pipeline.side_advanced(),
            Some(SideStep::Join { .. }) => drop(pipeline.side_joined(now)),
            None => {}
        }
        while let Some(batch) = pipeline.take_batch(now) {
            let verdicts = batch.iter().map(|record| Verdict {
                ticket: record.ticket(),
                outcome: answer(record),
            });
            pipeline.verdicts(verdicts.collect(), now, 0.5);
        }
    }
    parked
}

#[test]
fn released_keys_make_room_for_others_and_join_where_no_more_may_be_blocked() {
    let mut pipeline = pipeline_of((PROBES, 10), KeyOrder::OneAtATime, &[]);
    let now = Moment(Duration::from_secs(1));
    let answer = |record: &Record| match record.event().seq() {
        1..=20 => refused(),
        _ => Outcome::Accepted(None),
    };
    pipeline.next_read(now).unwrap();
    pipeline.read(page(1..=20, 20), now);
    assert_eq!(deliver(&mut pipeline, now, 10, answer), 10);
    let (_, error) = pipeline.breaker(now);
    assert!(error.unwrap().contains("10 keys are blocked"));
    let later = now.after(Duration::from_secs(10));
    assert_eq!(
        release(&mut pipeline, 1..=10, later, Vec::new(), answer),
        10
    );
    assert_eq!(pipeline.blocked_keys(), 10, "the others");
    // Of a released key the next event is refused, too.
    let later = later.after(Duration::from_secs(1_000));
    let side = vec![page(31..=39, 20)];
    let answer = |record: &Record| match record.event().seq() {
        31 => refused(),
        _ => Outcome::Accepted(None),
    };
    assert_eq!(release(&mut pipeline, 11..=19, later, side, answer), 1);
    assert_eq!(pipeline.counts().accepted, 8);
    assert_eq!(pipeline.blocked_keys(), 2, "that one and the last");
}

/// A mended destination that a lane's end hides.
#[test]
fn refused_events_are_tried_again_beside_one_that_ends_lanes() {
    let mut pipeline = pipeline_of((PROBES, 10), KeyOrder::OneAtATime, &[]);
    let now = Moment(Duration::from_secs(1));
    pipeline.next_read(now).unwrap();
    pipeline.read(page(1..=30, 1_000), now);
    let parked = deliver(&mut pipeline, now, 120, |record| {
        match record.event().seq() {
            15 => broken(),
            _ => refused(),
        }
    });
    let now = now.after(Duration::from_secs(120));
    deliver(&mut pipeline, now, 60, |record| {
        match record.event().seq() {
            15 => broken(),
            _ => Outcome::Accepted(None),
        }
    });
    assert_eq!(pipeline.counts().accepted, 30 - parked as u64);
}

/// A mended destination is noticed although nothing new comes.
#[test]
fn what_was_refused_and_may_not_be_parked_is_tried_again_within_seconds() {
    let mut pipeline = refusing(KeyOrder::Pipelined);
    let now = Moment(Duration::from_secs(1));
    let events = (9_000, true);
    let parked = read_and_deliver(&mut pipeline, events, now, 100, |_| refused());
    let now = now.after(Duration::from_secs(100));
    deliver(&mut pipeline, now, 4, |_| Outcome::Accepted(None));
    assert_eq!(pipeline.counts().accepted, 9_000 - parked as u64);
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
            outcome: Outcome::Accepted(None),
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
    deliver(&mut pipeline, now, 1, |_| Outcome::Accepted(None));
    assert_eq!(pipeline.counts().repeated, EVENTS.unsigned_abs());
}

/// Both queues behind an exchange are sent what one of them refuses, so that each attempt repeats
/// it in the other.
#[test]
fn a_full_queue_is_tried_with_one_event_each_time_and_all_others_are_delivered() {
    let mut pipeline = pipeline_with(KeyOrder::OneAtATime);
    let mut now = Moment(Duration::from_secs(1));
    pipeline.next_read(now).unwrap();
    let topic = |seq| if seq <= 2_000 { "full" } else { "healthy" };
    pipeline.read(page_of(1..=2_005, 2_005, topic), now);
    let attempts = RefCell::new(Vec::new());
    let full = |record: &Record| {
        if record.topic() == "healthy" {
            return Outcome::Accepted(None);
        }
        attempts.borrow_mut().push(record.event().seq());
        Outcome::later("a queue is full")
    };
    // The first lane had a batch before anybody knew.
    assert_eq!(deliver(&mut pipeline, now, 1, full), 0);
    assert_eq!(pipeline.counts().accepted, 5);
    attempts.borrow_mut().clear();
    now = now.after(Duration::from_secs(1));
    deliver(&mut pipeline, now, 50, full);
    let tried = attempts.take();
    // Each tenth of a second here.
    assert!(
        (300..=500).contains(&tried.len()),
        "{} were tried",
        tried.len()
    );
    let different: BTreeSet<i64> = tried.iter().copied().collect();
    assert_eq!(different.len(), tried.len());
    // Later events that do not go there are not held up.
    now = now.after(Duration::from_secs(50));
    pipeline.next_read(now).unwrap();
    pipeline.read(page_of(2_006..=2_100, 10_000, topic), now);
    deliver(&mut pipeline, now, 2, full);
    assert_eq!(pipeline.counts().accepted, 100);
    now = now.after(Duration::from_secs(2));
    deliver(&mut pipeline, now, 2, |_| Outcome::Accepted(None));
    assert_eq!(pipeline.counts().accepted, 2_100);
}

/// Under one topic some go to the full queue and some do not, as by an exchange that looks at
/// headers.
#[test]
fn events_of_a_full_queues_topic_that_do_not_go_there_have_their_turn() {
    let mut pipeline = pipeline_with(KeyOrder::OneAtATime);
    let now = Moment(Duration::from_secs(1));
    pipeline.next_read(now).unwrap();
    pipeline.read(page(1..=400, 400), now);
    deliver(&mut pipeline, now, 60, |record| {
        match record.event().seq() {
            1..=200 => Outcome::later("a queue is full"),
            _ => Outcome::Accepted(None),
        }
    });
    assert_eq!(pipeline.counts().accepted, 200);
}

/// The follower of what is held back goes to another topic, and must not overtake it.
#[test]
fn what_follows_in_its_key_waits_behind_what_is_held_back() {
    for order in [KeyOrder::Pipelined, KeyOrder::OneAtATime] {
        let mut pipeline = pipeline_with(order);
        let now = Moment(Duration::from_secs(1));
        pipeline.next_read(now).unwrap();
        let topic = |seq| if seq <= 10 { "full" } else { "healthy" };
        pipeline.read(page_of(1..=30, 10, topic), now);
        deliver(&mut pipeline, now, 60, |record| match record.topic() {
            "full" => Outcome::later("a queue is full"),
            _ => Outcome::Accepted(None),
        });
        assert_eq!(pipeline.counts().accepted, 0, "{order:?}");
    }
}

/// A new event each second keeps the destination busy, and what it refused is tried all the same.
#[test]
fn a_queue_that_has_room_again_is_served_beside_others() {
    let mut pipeline = pipeline_with(KeyOrder::OneAtATime);
    let mut now = Moment(Duration::from_secs(1));
    let topic = |seq| if seq <= 100 { "full" } else { "healthy" };
    pipeline.next_read(now).unwrap();
    pipeline.read(page_of(1..=100, 100, topic), now);
    for second in 0..20 {
        deliver(&mut pipeline, now, 1, |record| match record.topic() {
            "full" if second < 10 => Outcome::later("a queue is full"),
            _ => Outcome::Accepted(None),
        });
        now = now.after(Duration::from_secs(1));
        pipeline.next_read(now).unwrap();
        let next = 101 + second;
        pipeline.read(page_of(next..=next, 1_000, topic), now);
    }
    assert_eq!(pipeline.counts().accepted, 119);
}

/// Events whose topic takes others all the same.
#[test]
fn keys_that_stay_unanswered_leave_the_window_and_are_at_fault_in_the_end() {
    let mut pipeline = pipeline_with(KeyOrder::OneAtATime);
    let mut now = Moment(Duration::from_secs(1));
    let answer = |record: &Record| {
        let seq = record.event().seq();
        let is_silent = (1..=100).contains(&(seq % 1_000));
        assert!(
            seq <= 100 || !is_silent,
            "{seq} overtook the first of its key"
        );
        Some(match is_silent {
            true => Outcome::silent("no answer"),
            false => Outcome::Accepted(None),
        })
    };
    pipeline.next_read(now).unwrap();
    pipeline.read(page(1..=2_000, 1_000), now);
    let mut copies = Vec::new();
    let changes = deliver_with(&mut pipeline, &mut copies, now, 100, answer);
    assert_eq!(pipeline.counts().accepted, 1_800, "all others");
    assert_eq!(pipeline.blocked_keys(), 100);
    assert_eq!(settlements(&changes), [""; 0]);
    // Attempts in a row use up nothing, but for the fifth.
    let mut kinds = Vec::new();
    for round in 0..6 {
        now = now.after(Duration::from_secs(100));
        pipeline.next_read(now).unwrap();
        let other = 2_101 + round;
        pipeline.read(page(other..=other, 1_000), now);
        let mut copies = copies_of(1..=1);
        let changes = deliver_with(&mut pipeline, &mut copies, now, 10, answer);
        kinds.extend(settlements(&changes).into_iter().map(str::to_owned));
    }
    let (put_off, at_fault) = ("not_now", "fails_alone");
    assert_eq!(
        kinds,
        [put_off, put_off, put_off, at_fault, put_off, put_off]
    );
}

/// A quorum queue without its majority.
#[test]
fn a_topic_that_leaves_all_unanswered_is_held_back_and_uses_up_no_attempt() {
    let mut pipeline = pipeline_with(KeyOrder::OneAtATime);
    let mut now = Moment(Duration::from_secs(1));
    let topic = |seq| if seq <= 2_000 { "silent" } else { "healthy" };
    let sent = RefCell::new(0);
    let answer = |record: &Record| match record.topic() {
        "silent" => {
            *sent.borrow_mut() += 1;
            Outcome::silent("no answer")
        }
        _ => Outcome::Accepted(None),
    };
    pipeline.next_read(now).unwrap();
    pipeline.read(page_of(1..=2_000, 2_500, topic), now);
    assert_eq!(
        deliver(&mut pipeline, now, 1, answer),
        1,
        "before the second"
    );
    now = now.after(Duration::from_secs(1));
    pipeline.next_read(now).unwrap();
    pipeline.read(page_of(2_001..=2_500, 2_500, topic), now);
    deliver(&mut pipeline, now, 10, answer);
    assert_eq!(pipeline.counts().accepted, 500);
    assert!(*sent.borrow() <= 300, "{} were sent", sent.borrow());
    now = now.after(Duration::from_secs(10));
    deliver(&mut pipeline, now, 10, |_| Outcome::Accepted(None));
    assert_eq!(pipeline.counts().accepted, 2_499);
    assert_eq!(pipeline.counts().rejected, 0);
}

/// They are more than are held back at a time.
#[test]
fn many_silent_topics_use_up_no_attempt() {
    const TOPICS: i64 = 1_500;
    let topic = |seq: i64| &*Box::leak(seq.to_string().into_boxed_str());
    let mut pipeline = refusing(KeyOrder::OneAtATime);
    let mut now = Moment(Duration::from_secs(1));
    pipeline.next_read(now).unwrap();
    pipeline.read(page_of(1..=TOPICS, 100_000, topic), now);
    let silent = |_: &Record| Some(Outcome::silent("no answer"));
    let mut events = Vec::new();
    for _ in 0..8 {
        now = now.after(Duration::from_secs(100));
        let copies = copies_of_page(page_of(1..=TOPICS, 100_000, topic));
        let mut due = std::mem::replace(&mut events, copies);
        deliver_with(&mut pipeline, &mut due, now, 20, silent);
    }
    assert_eq!(pipeline.counts().rejected, 0);
}

/// One of six partitions has no leader.
#[test]
fn a_partition_that_takes_nothing_delays_no_other_of_its_topic() {
    let mut pipeline = refusing(KeyOrder::Pipelined);
    let now = Moment(Duration::from_secs(1));
    let parked = read_and_deliver(&mut pipeline, (20_000, true), now, 120, |record| {
        match record.event().seq() % 6 {
            0 => Outcome::later("partition 0 has no leader"),
            _ => Outcome::Accepted(None),
        }
    });
    assert_eq!((pipeline.counts().accepted, parked), (16_667, 3_333));
}

#[test]
fn thousands_of_topics_that_take_nothing_hold_up_no_other() {
    const TOPICS: i64 = 3_000;
    let names: Vec<&'static str> = (0..TOPICS)
        .map(|n| &*Box::leak(format!("away{n}").into_boxed_str()))
        .collect();
    let topic = |seq: i64| match seq % 2 {
        0 => "well",
        _ => names[usize::try_from(seq / 2 % TOPICS).unwrap()],
    };
    let mut pipeline = refusing(KeyOrder::OneAtATime);
    let mut now = Moment(Duration::from_secs(1));
    for page in 0..60 {
        let _ = pipeline.next_read(now).unwrap();
        let first = 1 + 100 * page;
        pipeline.read(page_of(first..=first + 99, 2 * TOPICS, topic), now);
        deliver(&mut pipeline, now, 1, |record| match record.topic() {
            "well" => Outcome::Accepted(None),
            _ => Outcome::later("no stream takes the subject"),
        });
        now = now.after(Duration::from_secs(1));
    }
    assert_eq!(pipeline.counts().accepted, 3_000);
}

/// A single one of them may hold up what is done behind it.
#[test]
fn few_events_for_a_full_queue_leave_the_window_before_it_fills_behind_them() {
    let mut pipeline = pipeline_with(KeyOrder::OneAtATime);
    let mut now = Moment(Duration::from_secs(1));
    let topic = |seq| if seq <= 3 { "full" } else { "healthy" };
    let mut parked = 0;
    for page in 0..300 {
        if pipeline.next_read(now).is_some() {
            let first = 1 + 100 * page;
            pipeline.read(page_of(first..=first + 99, 100_000, topic), now);
        }
        parked += deliver(&mut pipeline, now, 1, |record| match record.topic() {
            "full" => Outcome::later("a queue is full"),
            _ => Outcome::Accepted(None),
        });
        now = now.after(Duration::from_millis(100));
    }
    assert_eq!((pipeline.counts().accepted, parked), (29_997, 3));
}

/// Copies of these events, each of a key of its own.
fn copies_of(seqs: RangeInclusive<i64>) -> Vec<ParkedCopy> {
    copies_of_page(page(seqs, 1_000))
}

fn copies_of_page(Page { events, .. }: Page) -> Vec<ParkedCopy> {
    let copy = |event: posthaste_engine::StoredEvent| ParkedCopy {
        id: event.seq(),
        event,
        attempts: 0,
        holds_key: true,
        never_tried: false,
    };
    events.into_iter().map(copy).collect()
}

/// The kinds of the attempts that these changes settled.
fn settlements(changes: &[Change]) -> Vec<&str> {
    let settled = changes.iter().filter_map(|change| match change {
        Change::Settle { settlement, .. } => Some(settlement.attempted().kind),
        _ => None,
    });
    settled.collect()
}

/// The copies that these changes made, and whether each is what a key waits for.
fn put_off(changes: &[Change]) -> Vec<(i64, Duration)> {
    let parkings = changes.iter().flat_map(|change| match change {
        Change::Park(parkings) => parkings.as_slice(),
        _ => &[],
    });
    let one = |parking: &Parking| {
        assert_eq!((parking.attempts, parking.kind), (0, "not_now"));
        assert!(parking.reason.contains("topic `full`: a queue is full"));
        (parking.event.seq(), parking.next.retry_in().unwrap())
    };
    parkings.map(one).collect()
}

/// For as long as a queue is full, events for others go through the window.
#[test]
fn what_fills_the_window_for_a_full_queue_leaves_it_key_by_key() {
    let mut pipeline = pipeline_with(KeyOrder::OneAtATime);
    let mut now = Moment(Duration::from_secs(1));
    let topic = |seq| if seq <= 9_900 { "full" } else { "healthy" };
    pipeline.next_read(now).unwrap();
    pipeline.read(page_of(1..=9_900, 50, topic), now);
    let full = |record: &Record| match record.topic() {
        "full" => Some(Outcome::later("a queue is full")),
        _ => Some(Outcome::Accepted(None)),
    };
    let changes = deliver_with(&mut pipeline, &mut Vec::new(), now, 1, full);
    let mut left = put_off(&changes);
    left.sort_unstable();
    let seqs: Vec<i64> = left.iter().map(|(seq, _)| *seq).collect();
    assert_eq!(seqs, (1..=50).collect::<Vec<_>>(), "the first of each key");
    assert_eq!(pipeline.blocked_keys(), 50);
    now = now.after(Duration::from_secs(1));
    pipeline.next_read(now).expect("the window has room");
    pipeline.read(page_of(9_901..=9_999, 10_000, topic), now);
    deliver_with(&mut pipeline, &mut Vec::new(), now, 1, full);
    assert_eq!(pipeline.counts().accepted, 99);
}

#[test]
fn few_events_for_a_full_queue_stay_for_a_minute() {
    let mut pipeline = pipeline_with(KeyOrder::OneAtATime);
    let now = Moment(Duration::from_secs(1));
    pipeline.next_read(now).unwrap();
    pipeline.read(page_of(1..=3, 3, |_| "full"), now);
    let full = |_: &Record| Some(Outcome::later("a queue is full"));
    let changes = deliver_with(&mut pipeline, &mut Vec::new(), now, 59, full);
    assert_eq!(put_off(&changes), []);
    let later = now.after(Duration::from_secs(59));
    let changes = deliver_with(&mut pipeline, &mut Vec::new(), later, 3, full);
    assert_eq!(put_off(&changes).len(), 3);
}

/// One tries the queue, the other falls due again later; no attempt is used up.
#[test]
fn copies_for_a_full_queue_are_put_off_and_hold_up_no_others() {
    let mut pipeline = pipeline_with(KeyOrder::OneAtATime);
    let now = Moment(Duration::from_secs(1));
    let topic = |seq| if seq <= 2 { "full" } else { "healthy" };
    pipeline.next_read(now).unwrap();
    pipeline.read(empty_page(), now);
    let copies = page_of(1..=3, 3, topic).events.into_iter().enumerate();
    let mut due = copies
        .map(|(id, event)| ParkedCopy {
            id: i64::try_from(id).unwrap(),
            event,
            attempts: 0,
            holds_key: true,
            never_tried: false,
        })
        .collect();
    let full = |record: &Record| match record.topic() {
        "full" => Some(Outcome::later("a queue is full")),
        _ => Some(Outcome::Accepted(None)),
    };
    let settled = |changes: &[Change]| {
        let settled = changes.iter().filter_map(|change| match change {
            Change::Settle { id, settlement } => {
                Some((*id, settlement.attempted().kind.to_owned()))
            }
            _ => None,
        });
        settled.collect::<Vec<_>>()
    };
    let changes = deliver_with(&mut pipeline, &mut due, now, 1, full);
    let [(2, accepted), (put_off, kind)] = &settled(&changes)[..] else {
        panic!("{changes:?}");
    };
    assert_eq!((&**accepted, &**kind), ("accepted", "not_now"));
    let later = now.after(Duration::from_secs(1));
    let accept = |_: &Record| Some(Outcome::Accepted(None));
    let changes = deliver_with(&mut pipeline, &mut Vec::new(), later, 1, accept);
    assert_eq!(settled(&changes), [(1 - put_off, "accepted".to_owned())]);
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
        _ => Outcome::Accepted(None),
    };
    deliver(&mut pipeline, now, 1, full);
    now = now.after(Duration::from_secs(1));
    pipeline.next_read(now).expect("the main group reads on");
    pipeline.read(page(2..=EVENTS, EVENTS), now);
    deliver(&mut pipeline, now, 10, full);
    assert_eq!(pipeline.counts().accepted, EVENTS.unsigned_abs() - 1);
    now = now.after(Duration::from_secs(10));
    deliver(&mut pipeline, now, 10, |_| Outcome::Accepted(None));
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
    deliver(&mut pipeline, now, 10, |_| Outcome::Accepted(None));
    assert_eq!(pipeline.counts().accepted, EVENTS.unsigned_abs());
    join(&mut pipeline, now.after(Duration::from_secs(10)));
}
