//! Places that an operator has paused.

use posthaste_engine::StoredEvent;

use super::{
    flow::{Answer, Flow, LIMITS, Written},
    *,
};

const STEP: Duration = Duration::from_millis(250);
const STEPS_A_MINUTE: usize = 240;
const QUICK: Duration = Duration::from_millis(5);

fn pause(flow: &mut Flow, places: &[&str]) -> bool {
    let names = places.iter().map(|&name| name.to_owned()).collect();
    flow.pipeline.pause_places(&names, flow.now)
}

fn takes_all(_: &Record) -> Answer {
    (QUICK, Outcome::accepted())
}

/// A destination that takes everything, of which a part is never to be asked.
fn but_not(is_paused: impl Fn(&StoredEvent) -> bool) -> impl Fn(&Record) -> Answer {
    move |record| {
        assert!(!is_paused(record.event()), "{record:?} was sent");
        takes_all(record)
    }
}

fn until_all_is_delivered(flow: &mut Flow, seconds: u64) {
    let until = flow.now.after(Duration::from_secs(seconds));
    while !flow.is_all_delivered() {
        flow.step(Duration::from_millis(20), &takes_all);
        assert!(flow.now < until, "{:?}", flow.pipeline.counts());
    }
    let counts = flow.pipeline.counts();
    assert_eq!((counts.rejected, counts.repeated), (0, 0));
}

#[test]
fn a_paused_place_gets_nothing_and_all_others_flow() {
    for order in [KeyOrder::OneAtATime, KeyOrder::Pipelined] {
        let mut flow = Flow::new(LIMITS, order);
        assert!(pause(&mut flow, &["paused"]));
        assert!(!pause(&mut flow, &["paused"]), "it is no news");
        for step in 0..10 * STEPS_A_MINUTE {
            let key = |name: &str, n| Some(format!("{name} {n}"));
            let paused = (0..20).map(|n| ("paused", key("paused", (20 * step + n) % 50)));
            let healthy = (0..5).map(|n| ("healthy", key("healthy", (5 * step + n) % 100)));
            let written: Vec<Written> = paused.chain(healthy).collect();
            flow.write(written);
            flow.step(STEP, &but_not(|event| event.topic() == "paused"));
        }
        let waits = flow.waits("healthy", Moment::default());
        let longest = waits.iter().copied().max().unwrap();
        assert!(longest <= 2 * STEP, "{longest:?}");
        assert!(
            2 * flow.peak.unstored <= LIMITS.window_events,
            "{:?}",
            flow.peak
        );
        // The first of each key; what follows it waits behind its marker.
        assert_eq!(flow.statements.rows, 50);
        assert!(flow.statements.settlements < 50 * 20);
        let (places, told) = flow.pipeline.held_places(9, flow.now);
        assert_eq!((places, &*told[0].name), (1, "paused"));
        assert!(told[0].is_paused && !told[0].returns);
        assert_eq!(
            (&*told[0].reason, told[0].set_aside),
            ("paused by an operator", 50)
        );
        assert!(pause(&mut flow, &[]));
        until_all_is_delivered(&mut flow, 400);
    }
}

/// It fills nothing: what was read stays in memory, and goes on at once.
#[test]
fn a_short_pause_of_a_place_sets_nothing_aside() {
    for order in [KeyOrder::OneAtATime, KeyOrder::Pipelined] {
        let mut flow = Flow::new(LIMITS, order);
        pause(&mut flow, &["paused"]);
        flow.write((0..30).map(|n| ("paused", Some(format!("{}", n % 3)))));
        for _ in 0..STEPS_A_MINUTE / 2 {
            flow.step(STEP, &but_not(|_| true));
        }
        assert!(flow.pipeline.is_idle(), "nobody is to be called");
        let (_, told) = flow.pipeline.held_places(9, flow.now);
        assert_eq!((told[0].in_memory, flow.statements.parks), (30, 0));
        pause(&mut flow, &[]);
        until_all_is_delivered(&mut flow, 2);
    }
}

#[test]
fn one_partition_is_paused_by_its_number() {
    let mut flow = Flow::new(LIMITS, KeyOrder::Pipelined);
    pause(&mut flow, &["t/2", "u/0"]);
    flow.write((0..600).map(|n| ("t", Some(format!("{}", n % 6)))));
    for _ in 0..STEPS_A_MINUTE / 2 {
        flow.step(STEP, &but_not(|event| event.seq() % 6 == 2));
    }
    assert_eq!(flow.waits("t", Moment::default()).len(), 500);
    pause(&mut flow, &["u/0"]);
    until_all_is_delivered(&mut flow, 2);
}

/// It was held back before, and still is when the pause ends.
#[test]
fn a_paused_place_is_not_tried_before_the_pause_ends() {
    let mut flow = Flow::new(LIMITS, KeyOrder::OneAtATime);
    flow.write((0..30).map(|n| ("full", Some(format!("{n}")))));
    let full = |_: &Record| (QUICK, Outcome::later("a queue is full"));
    for _ in 0..STEPS_A_MINUTE / 4 {
        flow.step(STEP, &full);
    }
    pause(&mut flow, &["full"]);
    for _ in 0..STEPS_A_MINUTE / 4 {
        flow.step(STEP, &but_not(|_| true));
    }
    pause(&mut flow, &[]);
    for _ in 0..STEPS_A_MINUTE / 4 {
        flow.step(STEP, &full);
    }
    let (_, told) = flow.pipeline.held_places(9, flow.now);
    assert!(!told[0].is_paused && told[0].held_for > 40 * 4 * STEP);
    until_all_is_delivered(&mut flow, 10);
}

/// Events that wait at one for hours do not send those of another one out of memory at once.
#[test]
fn a_long_pause_of_a_place_shortens_no_others_stay() {
    let mut flow = Flow::new(LIMITS, KeyOrder::OneAtATime);
    pause(&mut flow, &["paused"]);
    for _ in 0..5 * STEPS_A_MINUTE {
        flow.step(STEP, &takes_all);
    }
    flow.write((0..30).map(|n| ("full", Some(format!("{n}")))));
    let full = |_: &Record| (QUICK, Outcome::later("a queue is full"));
    for _ in 0..STEPS_A_MINUTE / 2 {
        flow.step(STEP, &full);
    }
    assert_eq!(flow.statements.parks, 0);
    until_all_is_delivered(&mut flow, 10);
}
