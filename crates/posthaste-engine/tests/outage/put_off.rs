//! Keys that are put off for ever, beside others of their topic: a throttled shard of Kinesis, or a
//! message that a broker releases again and again.

use super::{
    flow::{Answer, Flow, LIMITS, Written},
    *,
};

const STEP: Duration = Duration::from_millis(10);
const QUICK: Duration = Duration::from_millis(5);

fn answer(record: &Record) -> Answer {
    let is_bad = record.key().is_some_and(|key| key.starts_with(b"bad"));
    let outcome = match is_bad {
        true => Outcome::later("its shard is throttled"),
        false => Outcome::accepted(),
    };
    (QUICK, outcome)
}

fn key(n: usize, keys: usize, bad: usize) -> Option<String> {
    let key = n % keys;
    let kind = if key < bad { "bad" } else { "good" };
    Some(format!("{kind} {key}"))
}

/// For so many minutes come twenty events a second of these keys, of which so many are bad.
fn stream(flow: &mut Flow, minutes: usize, (keys, bad): (usize, usize)) {
    for step in 0..minutes * 60 * 100 {
        let written: Vec<Written> = match step % 5 {
            0 => vec![("t", key(step / 5, keys, bad))],
            _ => Vec::new(),
        };
        flow.write(written);
        flow.step(STEP, &answer);
    }
}

/// Of the good ones, whether they are delivered or still wait.
fn longest_wait(flow: &Flow) -> Duration {
    let waits = flow.waits("t", Moment::default());
    let waits = waits
        .into_iter()
        .chain(flow.ages(|key| key.starts_with("good")));
    waits.max().unwrap()
}

#[test]
fn a_key_that_is_put_off_for_ever_delays_its_topic_by_seconds() {
    for order in [KeyOrder::OneAtATime, KeyOrder::Pipelined] {
        for of in [(11, 1), (40, 1), (40, 5)] {
            let mut flow = Flow::new(LIMITS, order);
            stream(&mut flow, 5, of);
            let waits = longest_wait(&flow);
            assert!(
                waits <= Duration::from_secs(15),
                "{order:?} {of:?}: {waits:?}"
            );
        }
    }
}

/// As much as the window holds, and three times of it, is there at once.
#[test]
fn a_backlog_drains_beside_keys_that_are_put_off_for_ever() {
    for order in [KeyOrder::OneAtATime, KeyOrder::Pipelined] {
        for (events, bad) in [(9_000, 1), (30_000, 1), (9_000, 5)] {
            let mut flow = Flow::new(LIMITS, order);
            flow.write((0..events).map(|n| ("t", key(n, 60, bad))));
            let until = flow.now.after(Duration::from_secs(180));
            while !flow.ages(|key| key.starts_with("good")).is_empty() {
                flow.step(STEP, &answer);
                assert!(flow.now < until, "{order:?} {events} {bad}");
            }
        }
    }
}

/// Copies that were set aside before are due at times of their own.
#[test]
fn another_relay_finds_what_good_keys_wait_with() {
    for order in [KeyOrder::OneAtATime, KeyOrder::Pipelined] {
        let mut flow = Flow::new(LIMITS, order);
        let nothing = |_: &Record| (QUICK, Outcome::later("its shard is throttled"));
        flow.write((0..3_000).map(|n| ("t", key(n, 30, 1))));
        for _ in 0..30_000 {
            flow.step(STEP, &nothing);
        }
        flow.begin_anew();
        stream(&mut flow, 2, (30, 1));
        let waits = flow.ages(|key| key.starts_with("good"));
        let longest = waits.iter().max();
        assert!(
            longest.is_none_or(|&wait| wait <= Duration::from_secs(15)),
            "{order:?}: {} wait, {longest:?}",
            waits.len()
        );
    }
}
