//! Places that an operator has paused.

use posthaste_engine::{StoredEvent, Unavailability};

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
    assert_eq!(flow.pipeline.counts().rejected, 0);
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
        until_all_is_delivered(&mut flow, 60);
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
    // It may go to any of them.
    flow.write([("t", None), ("u", None), ("v", None)]);
    for _ in 0..STEPS_A_MINUTE / 2 {
        flow.step(STEP, &but_not(|event| event.seq() < 603));
    }
    assert_eq!(flow.waits("v", Moment::default()).len(), 1);
    pause(&mut flow, &[]);
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
    assert_eq!(
        (&*told[0].reason, told[0].is_paused),
        ("a queue is full", false)
    );
    assert!(told[0].held_for <= 15 * 4 * STEP, "since the pause ended");
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

/// Events that follow it in its key wait with it, wherever they go.
#[test]
fn nobody_is_called_for_what_follows_a_paused_event_in_its_key() {
    let mut flow = Flow::new(LIMITS, KeyOrder::OneAtATime);
    pause(&mut flow, &["paused"]);
    let key = || Some("k".to_owned());
    flow.write([("paused", key()), ("healthy", key()), ("healthy", None)]);
    for _ in 0..4 {
        flow.step(STEP, &takes_all);
    }
    assert!(flow.pipeline.is_idle());
}

/// A probe would find nothing but paused events in a window that is full of them.
#[test]
fn a_paused_place_fills_no_window_while_its_destination_is_away() {
    for order in [KeyOrder::OneAtATime, KeyOrder::Pipelined] {
        let mut flow = Flow::new(LIMITS, order);
        pause(&mut flow, &["paused"]);
        flow.write([("healthy", None)]);
        let away = |_: &Record| (QUICK, broken());
        for step in 0..2 * STEPS_A_MINUTE {
            let paused = (0..100).map(|n| ("paused", Some(format!("{}", (100 * step + n) % 500))));
            flow.write(paused.collect::<Vec<Written>>());
            flow.step(STEP, &away);
        }
        flow.write((0..10).map(|n| ("healthy", Some(format!("healthy {n}")))));
        for _ in 0..STEPS_A_MINUTE {
            flow.step(STEP, &takes_all);
        }
        assert_eq!(flow.waits("healthy", Moment::default()).len(), 11);
        pause(&mut flow, &[]);
        until_all_is_delivered(&mut flow, 60);
    }
}

/// As long as nothing is sent, no copy of it stays in memory.
#[test]
fn what_is_discarded_during_a_pause_is_not_sent_when_it_ends() {
    let pauses: [fn(&mut Flow, bool) -> bool; 2] = [
        |flow, on| pause(flow, if on { &["paused"] } else { &[] }),
        |flow, on| flow.pipeline.pause(on),
    ];
    for pauses in pauses {
        let mut flow = Flow::new(LIMITS, KeyOrder::OneAtATime);
        flow.write((0..30).map(|n| ("paused", Some(format!("{n}")))));
        let full = |_: &Record| (QUICK, Outcome::later("a queue is full"));
        for _ in 0..2 * STEPS_A_MINUTE {
            flow.step(STEP, &full);
        }
        assert!(pauses(&mut flow, true));
        for _ in 0..10 * STEPS_A_MINUTE {
            flow.step(STEP, &takes_all);
        }
        assert_eq!((flow.statements.rows, flow.discard_all()), (30, 30));
        assert!(pauses(&mut flow, false));
        for _ in 0..10 * STEPS_A_MINUTE {
            flow.step(STEP, &takes_all);
        }
        assert_eq!(flow.pipeline.counts().accepted, 0);
    }
}

/// Else the next start would send again what was delivered behind them.
#[test]
fn a_planned_stop_sets_aside_what_waits_for_a_paused_place() {
    use KeyOrder::{OneAtATime, Pipelined};
    for (order, is_all_paused, is_resumed) in [
        (OneAtATime, false, false),
        (Pipelined, true, false),
        (OneAtATime, true, true),
        (Pipelined, true, true),
    ] {
        let mut flow = Flow::new(LIMITS, order);
        pause(&mut flow, &["paused"]);
        let paused = (0..30).map(|n| ("paused", Some(format!("{}", n % 3))));
        let healthy = (0..500).map(|n| ("healthy", Some(format!("healthy {n}"))));
        flow.write(paused.chain(healthy).collect::<Vec<Written>>());
        for _ in 0..4 {
            flow.step(STEP, &takes_all);
        }
        assert_eq!((flow.stored(), flow.statements.parks), (0, 0));
        flow.pipeline.pause(is_all_paused);
        if is_resumed {
            pause(&mut flow, &[]);
            for _ in 0..40 {
                flow.step(STEP, &but_not(|_| true));
            }
        }
        flow.pipeline.stop();
        for _ in 0..4 {
            flow.step(STEP, &takes_all);
        }
        assert!(flow.pipeline.is_stopped(flow.now));
        assert_eq!((flow.stored(), flow.statements.rows), (530, 3));
    }
}

/// One of two keys that come back by a side read waits for another place, and leaves it at the
/// stop.
#[test]
fn a_planned_stop_stores_what_was_delivered_behind_a_key_that_leaves_its_side_read() {
    for order in [KeyOrder::OneAtATime, KeyOrder::Pipelined] {
        let mut flow = Flow::new(LIMITS, order);
        pause(&mut flow, &["first"]);
        let key = |name: &str| Some(name.to_owned());
        let of_a = ["first", "late", "t"].map(|topic| (topic, key("a")));
        let of_b = ["first", "t", "t"].map(|topic| (topic, key("b")));
        flow.write(of_a.into_iter().chain(of_b));
        for _ in 0..2 * STEPS_A_MINUTE {
            flow.step(STEP, &takes_all);
        }
        assert_eq!(flow.pipeline.blocked_keys(), 2);
        pause(&mut flow, &["late"]);
        for _ in 0..STEPS_A_MINUTE / 4 {
            flow.step(STEP, &but_not(|event| event.topic() == "late"));
        }
        assert_eq!(flow.pipeline.counts().accepted, 4, "all but two of a");
        flow.pipeline.stop();
        for _ in 0..8 {
            flow.step(STEP, &takes_all);
        }
        assert!(flow.pipeline.is_stopped(flow.now));
        flow.begin_anew();
        until_all_is_delivered(&mut flow, 10);
    }
}

/// It has asked to be left alone for five minutes.
#[test]
fn a_destination_is_tried_at_once_when_its_pause_ends() {
    let mut flow = Flow::new(LIMITS, KeyOrder::OneAtATime);
    flow.write([("healthy", Some("key".to_owned()))]);
    let gone = |_: &Record| {
        let why = Unavailability {
            wait: Some(Duration::from_secs(300)),
            ..Unavailability::new(Cause::Misconfigured, "it is gone".to_owned())
        };
        (QUICK, Outcome::Unavailable(why.into()))
    };
    for _ in 0..STEPS_A_MINUTE {
        flow.step(STEP, &gone);
    }
    for _ in 0..2 {
        flow.step(STEP, &but_not(|_| true));
    }
    flow.pipeline.pause(true);
    flow.step(STEP, &but_not(|_| true));
    flow.pipeline.pause(false);
    until_all_is_delivered(&mut flow, 10);
}

/// Copies are looked for when the destination returns.
#[test]
fn a_pause_that_ends_while_the_destination_is_away_leaves_no_copy_waiting() {
    let mut flow = Flow::new(LIMITS, KeyOrder::OneAtATime);
    pause(&mut flow, &["paused"]);
    flow.write((0..3_000).map(|n| ("paused", Some(format!("{n}")))));
    for _ in 0..10 * STEPS_A_MINUTE {
        flow.step(STEP, &but_not(|_| true));
    }
    flow.write([("healthy", None)]);
    for step in 0..STEPS_A_MINUTE {
        if step == STEPS_A_MINUTE / 2 {
            pause(&mut flow, &[]);
        }
        flow.step(STEP, &|_| (QUICK, broken()));
    }
    assert_eq!(flow.statements.rows, 3_000);
    until_all_is_delivered(&mut flow, 20);
}

/// Nobody has seen that the pause ended.
#[test]
fn what_was_set_aside_is_sent_by_the_next_relay_once_the_pause_has_ended() {
    for order in [KeyOrder::OneAtATime, KeyOrder::Pipelined] {
        let mut flow = Flow::new(LIMITS, order);
        pause(&mut flow, &["paused", "other"]);
        let topics = |n| if n % 50 == 0 { "other" } else { "paused" };
        flow.write((0..2_000).map(|n| (topics(n), Some(format!("{}", n % 700)))));
        flow.write([("healthy", None)]);
        for _ in 0..4 {
            flow.step(STEP, &but_not(|event| event.topic() != "healthy"));
        }
        flow.pipeline.stop();
        for _ in 0..4 {
            flow.step(STEP, &but_not(|event| event.topic() != "healthy"));
        }
        assert_eq!((flow.stored(), flow.statements.rows), (2_001, 700));
        flow.begin_anew();
        pause(&mut flow, &["other"]);
        for _ in 0..40 {
            flow.step(STEP, &but_not(|event| event.topic() == "other"));
        }
        // Events behind one of the paused topic in their key wait with it.
        assert!(flow.waits("paused", Moment::default()).len() > 1_900);
        pause(&mut flow, &[]);
        until_all_is_delivered(&mut flow, 20);
    }
}

/// Before that, all that goes to the topic waits, and is set aside.
#[test]
fn one_partition_is_paused_of_a_topic_whose_partitions_are_known_late() {
    let mut flow = Flow::new(LIMITS, KeyOrder::Pipelined);
    pause(&mut flow, &["late/2"]);
    flow.write((0..600).map(|n| ("late", Some(format!("{}", n % 6)))));
    for _ in 0..STEPS_A_MINUTE {
        flow.step(STEP, &but_not(|_| true));
    }
    for _ in 0..STEPS_A_MINUTE {
        flow.step(STEP, &but_not(|event| event.seq() % 6 == 2));
    }
    assert_eq!(flow.statements.rows, 6);
    assert_eq!(flow.waits("late", Moment::default()).len(), 500);
    pause(&mut flow, &[]);
    until_all_is_delivered(&mut flow, 20);
}
