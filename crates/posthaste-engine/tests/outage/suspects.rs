//! Events over which the destination ends the lane, many of them.

use std::cell::Cell;

use super::{
    flow::{Flow, LIMITS, PUBLISH_TIMEOUT},
    *,
};

/// A window of events, of which `bad` tells those that end every lane: in how many seconds all
/// others are delivered, and in how many the bad ones are parked as well. Once nothing else waits,
/// ten more events come in each second.
fn seconds(key_order: KeyOrder, bad: impl Fn(i64) -> bool) -> (u64, u64) {
    const EVENTS: i64 = 10_000;
    let mut pipeline = pipeline_of((PROBES, 20_000), key_order, &[]);
    let mut now = Moment(Duration::from_secs(1));
    pipeline.next_read(now).unwrap();
    pipeline.read(page(1..=EVENTS, EVENTS), now);
    let poison = (1..=EVENTS).filter(|seq| bad(*seq)).count();
    let others = u64::try_from(EVENTS).unwrap() - poison as u64;
    let (mut read, mut parked, mut others_in) = (EVENTS, 0, None);
    for second in 1..3_600 {
        parked += deliver(&mut pipeline, now, 1, |record| {
            let seq = record.event().seq();
            match seq <= EVENTS && bad(seq) {
                true => broken(),
                false => Outcome::accepted(),
            }
        });
        assert!(parked <= poison, "{parked} of {poison}");
        now = now.after(Duration::from_secs(1));
        if others_in.is_none() && pipeline.counts().accepted >= others {
            others_in = Some(second);
        }
        if let (Some(others_in), true) = (others_in, parked == poison) {
            return (others_in, second);
        }
        if others_in.is_some() && pipeline.next_read(now).is_some() {
            pipeline.read(page(read + 1..=read + 10, i64::MAX), now);
            read += 10;
        }
    }
    panic!(
        "{parked} of {poison} were parked, {others_in:?}, {:?}",
        pipeline.counts()
    );
}

/// As long as no more than 32 were remembered, 33 of them ended delivery for ever.
#[test]
fn any_number_of_events_that_end_lanes_take_others_no_more_than_a_part_of_their_time() {
    for order in [KeyOrder::OneAtATime, KeyOrder::Pipelined] {
        for poison in [1, 33, 100] {
            let in_a_row = seconds(order, |seq| seq <= poison);
            let scattered = seconds(order, |seq| seq % (10_000 / poison) == 0);
            let (others_max, parked_max) = (5 + 2 * poison, 5 + 4 * poison);
            for (others, parked) in [in_a_row, scattered] {
                let is_soon = others <= others_max.unsigned_abs();
                let ends = parked <= parked_max.unsigned_abs();
                assert!(is_soon && ends, "{poison}: {others} s, {parked} s");
            }
        }
    }
}

/// Each probe fails alone, and so makes a suspect of a good event.
#[test]
fn after_a_long_outage_of_a_sound_destination_all_flows_within_seconds() {
    const STEP: Duration = Duration::from_millis(50);
    for order in [KeyOrder::OneAtATime, KeyOrder::Pipelined] {
        let mut flow = Flow::new(LIMITS, order);
        flow.write((0..20_000).map(|n| ("t", Some(format!("k{n}")))));
        for _ in 0..3_600 {
            flow.step(Duration::from_secs(1), &|_| (STEP, broken()));
        }
        let healed = flow.now;
        while !flow.is_all_delivered() {
            flow.step(STEP, &|_| (STEP, Outcome::accepted()));
            let took = healed.until(flow.now);
            let counts = flow.pipeline.counts();
            assert!(took < Duration::from_secs(10), "{order:?}: {counts:?}");
        }
        assert_eq!(flow.statements.rows, 0, "nothing is parked");
    }
}

/// They fill lanes that last five seconds each.
#[test]
fn events_that_silence_lanes_leave_others_their_time() {
    const STEP: Duration = Duration::from_millis(10);
    let mut flow = Flow::new(LIMITS, KeyOrder::OneAtATime);
    let answer = |record: &Record| match record.topic() {
        "silent" => (2 * PUBLISH_TIMEOUT, Outcome::accepted()),
        _ => (STEP, Outcome::accepted()),
    };
    flow.write((0..10).map(|n| ("silent", Some(format!("s{n}")))));
    let begin = flow.now;
    for step in 0..12_000 {
        if step % 2 == 0 {
            flow.write([("t", Some(format!("k{step}")))]);
        }
        flow.step(STEP, &answer);
    }
    let waits = flow.waits("t", begin);
    let longest = waits.iter().max().unwrap();
    assert!(
        waits.len() > 5_000 && *longest < Duration::from_secs(30),
        "{longest:?}"
    );
}

/// All others in memory were answered before the first lane failed: nobody is left to show that
/// the destination is there.
#[test]
fn a_window_that_was_delivered_behind_a_silent_event_is_read_on() {
    const STEP: Duration = Duration::from_millis(10);
    const OTHERS: usize = 30_000;
    for order in [KeyOrder::OneAtATime, KeyOrder::Pipelined] {
        let mut flow = Flow::new(LIMITS, order);
        let answer = |record: &Record| match record.topic() {
            "silent" => (2 * PUBLISH_TIMEOUT, Outcome::accepted()),
            _ => (STEP, Outcome::accepted()),
        };
        flow.write([("silent", Some("s".to_owned()))]);
        flow.write((0..OTHERS).map(|n| ("t", Some(format!("k{}", n % 3_000)))));
        let begin = flow.now;
        while flow.waits("t", begin).len() < OTHERS {
            flow.step(STEP, &answer);
            let took = begin.until(flow.now);
            assert!(
                took < Duration::from_secs(60),
                "{order:?}: {:?}",
                flow.pipeline.counts()
            );
        }
    }
}

/// All of the few others are in flight with some of the bad ones, so that all are suspects.
#[test]
fn many_events_that_end_lanes_in_front_of_a_few_keys_are_told_apart_within_seconds() {
    const STEP: Duration = Duration::from_millis(10);
    const OTHERS: usize = 48 * 50;
    for order in [KeyOrder::OneAtATime, KeyOrder::Pipelined] {
        let mut flow = Flow::new(LIMITS, order);
        let answer = |record: &Record| match record.topic() {
            "ends" => (STEP, broken()),
            _ => (2 * STEP, Outcome::accepted()),
        };
        flow.write((0..40).map(|n| ("ends", Some(format!("e{n}")))));
        flow.write((0..OTHERS).map(|n| ("t", Some(format!("k{}", n / 50)))));
        let begin = flow.now;
        while flow.waits("t", begin).len() < OTHERS {
            flow.step(STEP, &answer);
            let took = begin.until(flow.now);
            assert!(
                took < Duration::from_secs(12),
                "{order:?}: {:?}",
                flow.pipeline.counts()
            );
        }
    }
}

/// A topic ends a lane once, and from then on stays unanswered: a broker that stops to read gave it
/// a connection of its own.
#[test]
fn suspects_of_a_place_that_is_held_back_have_no_turn() {
    const STEP: Duration = Duration::from_millis(10);
    const KEYS: usize = 200;
    let ended = Cell::new(false);
    let mut flow = Flow::new(LIMITS, KeyOrder::OneAtATime);
    let answer = |record: &Record| match record.topic() {
        "lost" if !ended.replace(true) => (PUBLISH_TIMEOUT - STEP, broken()),
        "lost" => (PUBLISH_TIMEOUT - STEP, Outcome::silent("no answer")),
        _ => (PUBLISH_TIMEOUT, Outcome::accepted()),
    };
    let topic = |n| if n % 2 == 0 { "lost" } else { "t" };
    flow.write((0..KEYS).map(|n| (topic(n), Some(format!("k{n}")))));
    let begin = flow.now;
    flow.step(PUBLISH_TIMEOUT, &answer);
    flow.step(STEP, &answer);
    assert!(ended.get());
    let answer = |record: &Record| match record.topic() {
        "lost" => answer(record),
        _ => (STEP, Outcome::accepted()),
    };
    while flow.waits("t", begin).len() < KEYS / 2 {
        flow.step(STEP, &answer);
        let took = begin.until(flow.now);
        assert!(
            took < Duration::from_secs(20),
            "{:?}",
            flow.pipeline.counts()
        );
    }
}

#[test]
fn no_more_than_four_lanes_end_in_a_second() {
    const STEP: Duration = Duration::from_millis(1);
    let mut flow = Flow::new(LIMITS, KeyOrder::Pipelined);
    let answer = |record: &Record| match record.topic() {
        "ends" => (STEP, broken()),
        _ => (STEP, Outcome::accepted()),
    };
    flow.write((0..300).map(|n| ("ends", Some(format!("e{n}")))));
    for second in 1..6 {
        let before = flow.pipeline.counts().unavailable;
        for n in 0..1_000 {
            flow.write([("t", Some(format!("k{second}.{n}")))]);
            flow.step(STEP, &answer);
        }
        let lanes = flow.pipeline.counts().unavailable - before;
        assert!(lanes <= 5, "{lanes} in second {second}");
    }
}

#[test]
fn a_paused_destination_with_suspects_stops_at_once() {
    let mut pipeline = pipeline_of((PROBES, 20_000), KeyOrder::OneAtATime, &[]);
    let now = Moment(Duration::from_secs(1));
    pipeline.next_read(now).unwrap();
    pipeline.read(page(1..=100, 100), now);
    deliver(&mut pipeline, now, 1, all_but_the_first);
    pipeline.pause(true);
    pipeline.stop();
    let later = now.after(Duration::from_secs(1));
    deliver(&mut pipeline, later, 1, all_but_the_first);
    assert!(pipeline.is_stopped(later.after(Duration::from_secs(1))));
}
