//! A destination that refuses events for their own sake, or refuses all.

use super::*;

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

#[test]
pub(super) fn a_destination_that_refuses_everything_parks_ten_thousand_in_an_hour_and_then_goes_on()
{
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
        let taken = |_: &Record| Outcome::accepted();
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
                    false => Outcome::accepted(),
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
            _ => Outcome::accepted(),
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
pub(super) fn released_keys_make_room_for_others_and_join_where_no_more_may_be_blocked() {
    let mut pipeline = pipeline_of((PROBES, 10), KeyOrder::OneAtATime, &[]);
    let now = Moment(Duration::from_secs(1));
    let answer = |record: &Record| match record.event().seq() {
        1..=20 => refused(),
        _ => Outcome::accepted(),
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
        _ => Outcome::accepted(),
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
            _ => Outcome::accepted(),
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
    deliver(&mut pipeline, now, 4, |_| Outcome::accepted());
    assert_eq!(pipeline.counts().accepted, 9_000 - parked as u64);
}
