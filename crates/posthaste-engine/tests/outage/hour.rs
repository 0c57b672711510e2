//! A place that is away for an hour, beside a healthy one.

use posthaste_testkit::long_form;

use super::{
    flow::{Answer, Flow, LIMITS, Written},
    *,
};

const MINUTES: usize = 60;
const STEP: Duration = Duration::from_millis(250);
const STEPS_A_MINUTE: usize = 240;
/// Events for the healthy place in a step.
const HEALTHY: usize = 5;
/// A broker's answer takes so long.
const QUICK: Duration = Duration::from_millis(5);

/// Numbers, texts and events in memory for each event of the window, and for each parked one.
const PARTS_OF_AN_EVENT: usize = 6;
const PARTS_OF_A_ROW: usize = 24;
/// A copy is put off so often at the most: its waits double to five minutes.
const PUT_OFF_MAX: usize = 20;
/// The parts of the topic that is away, at the most.
const PARTS: usize = 6;

/// Events for the place that is away. In the short form they are fewer, and the hour is as long.
fn events_away() -> usize {
    if long_form() { 1_000_000 } else { 100_000 }
}

fn away(record: &Record) -> Answer {
    let outcome = match record.topic() {
        "away" => Outcome::later("it is away"),
        _ => Outcome::accepted(),
    };
    (QUICK, outcome)
}

/// The hour: so many events for the place that is away, and their keys. Answers how much the
/// pipeline remembered in each minute.
fn hour(flow: &mut Flow, events: usize, key: impl Fn(usize) -> Option<String>) -> Vec<usize> {
    let steps = MINUTES * STEPS_A_MINUTE;
    let minutes = (0..MINUTES).map(|minute| {
        for step in minute * STEPS_A_MINUTE..(minute + 1) * STEPS_A_MINUTE {
            let numbers = events * step / steps..events * (step + 1) / steps;
            let away_ones = numbers.map(|n| ("away", key(n)));
            let healthy = (0..HEALTHY).map(|n| {
                let key = format!("healthy {}", (HEALTHY * step + n) % 100);
                ("healthy", Some(key))
            });
            let written: Vec<Written> = away_ones.chain(healthy).collect();
            flow.write(written);
            flow.step(STEP, &away);
        }
        flow.remembered()
    });
    minutes.collect()
}

/// The place takes all again: everything is delivered as fast as ten keys can be, one event of each
/// at a time, although each copy is due at a time of its own.
fn heal(flow: &mut Flow) {
    let seconds = 30 + events_away() as u64 / 1_000;
    let until = flow.now.after(Duration::from_secs(seconds));
    while !flow.is_all_delivered() {
        flow.step(QUICK, &|_| (QUICK, Outcome::accepted()));
        let counts = flow.pipeline.counts();
        assert!(flow.now < until, "{counts:?} after it healed");
    }
    let counts = flow.pipeline.counts();
    assert_eq!((counts.rejected, counts.repeated), (0, 0));
}

/// Healthy events flow, and what is held stays within bounds: at most so many rows, one for each
/// that is parked, and so many parts of memory for each.
fn check_the_hour(flow: &Flow, remembered: &[usize], rows: usize) {
    let (peak, statements) = (flow.peak, flow.statements);
    let waits = flow.waits("healthy", Moment::default());
    let longest = waits.iter().copied().max().unwrap();
    assert!(longest <= 2 * STEP, "{longest:?}");
    // They leave once as much as half of it is read and not stored, and that may be by one read.
    let most = LIMITS.window_events / 2 + LIMITS.batch_events;
    assert!(peak.unstored <= most, "{peak:?}");
    assert!(2 * peak.unstored_bytes <= LIMITS.window_bytes);
    check_memory(flow, remembered, rows);
    assert_eq!(statements.side_steps, 0);
}

fn check_memory(flow: &Flow, remembered: &[usize], rows: usize) {
    let (peak, statements) = (flow.peak, flow.statements);
    let most = PARTS_OF_AN_EVENT * peak.unstored + PARTS_OF_A_ROW * rows;
    let remembers = remembered.iter().copied().max().unwrap();
    assert!(remembers <= most, "{remembers}, not {most}");
    assert!(peak.markers <= peak.parked_rows && peak.parked_rows <= rows);
    assert_eq!(statements.rows, peak.parked_rows, "each is parked once");
    // One is tried at each turn of each place.
    let turns = PARTS * MINUTES * 60 / usize::try_from(PROBES.max.as_secs()).unwrap();
    let settlements = PUT_OFF_MAX * rows + turns;
    assert!(statements.settlements <= settlements, "{statements:?}");
    // Every five seconds, behind each change, at each turn, and when a copy falls due.
    let looks = MINUTES * 60 / 5 + statements.settlements + turns + 3 * rows;
    assert!(statements.dues <= looks, "{statements:?}");
    assert!(statements.reports <= MINUTES * 60);
}

/// So many keys share the events.
fn keys_wait(order: KeyOrder, keys: usize) {
    let limits = PipelineLimits {
        blocked_keys_max: keys,
        ..LIMITS
    };
    let mut flow = Flow::new(limits, order);
    let events = events_away();
    let remembered = hour(&mut flow, events, |n| Some(format!("away {}", n % keys)));
    check_the_hour(&flow, &remembered, keys);
    let max = |minutes: &[usize]| minutes.iter().copied().max();
    assert!(max(&remembered[30..]) <= max(&remembered[10..30]), "flat");
    heal(&mut flow);
    assert_eq!(
        flow.statements.rows, keys,
        "nothing is parked that the side read sends"
    );
}

#[test]
fn a_million_events_of_few_keys_wait_for_an_hour_and_fill_no_window() {
    for order in [KeyOrder::OneAtATime, KeyOrder::Pipelined] {
        keys_wait(order, 10);
    }
}

#[test]
fn a_million_events_of_as_many_keys_as_may_be_blocked_fill_no_window() {
    let keys = if long_form() { 10_000 } else { 300 };
    for order in [KeyOrder::OneAtATime, KeyOrder::Pipelined] {
        keys_wait(order, keys);
    }
}

/// Each of them is parked by itself.
#[test]
fn as_many_events_without_keys_as_may_be_parked_fill_no_window() {
    let rows = if long_form() { 10_000 } else { 300 };
    for order in [KeyOrder::OneAtATime, KeyOrder::Pipelined] {
        let mut flow = Flow::new(
            PipelineLimits {
                blocked_keys_max: rows,
                ..LIMITS
            },
            order,
        );
        let remembered = hour(&mut flow, rows, |_| None);
        check_the_hour(&flow, &remembered, rows);
        heal(&mut flow);
    }
}

/// The others fill the window: what goes elsewhere waits with them, and nothing grows.
#[test]
fn a_million_events_without_keys_take_no_more_memory_and_rows_than_may_be_parked() {
    const ROWS: usize = 1_000;
    let limits = PipelineLimits {
        blocked_keys_max: ROWS,
        ..LIMITS
    };
    let mut flow = Flow::new(limits, KeyOrder::OneAtATime);
    let remembered = hour(&mut flow, events_away(), |_| None);
    check_memory(&flow, &remembered, ROWS);
    assert!(flow.peak.unstored <= LIMITS.window_events);
    heal(&mut flow);
}
