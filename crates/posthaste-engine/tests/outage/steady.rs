//! A hundred keys that a broker never answers, beside a steady stream.

use super::{
    flow::{Answer, Flow, LIMITS, PUBLISH_TIMEOUT, Written},
    *,
};

const STEP: Duration = Duration::from_millis(5);
const SILENT_KEYS: usize = 100;
const MINUTES: u32 = 2;
const MINUTE: Duration = Duration::from_secs(60);

/// Each second come five hundred healthy events and one of each silent key, for this topic.
fn stream(silent_topic: impl Fn(usize) -> &'static str) -> Flow {
    let mut flow = Flow::new(LIMITS, KeyOrder::OneAtATime);
    let answer = |record: &Record| -> Answer {
        match record.key().is_some_and(|key| key.starts_with(b"silent")) {
            true => (PUBLISH_TIMEOUT - STEP, Outcome::silent("no answer")),
            false => (STEP, Outcome::accepted()),
        }
    };
    for step in 0..usize::try_from(MINUTES).unwrap() * 60 * 200 {
        let healthy = (step * 5 / 2..(step + 1) * 5 / 2).map(|n| {
            let key = format!("healthy {}", n % 1_000);
            ("t", Some(key))
        });
        let silent = (step.div_ceil(2)..(step + 1).div_ceil(2)).map(|n| {
            let key = n % SILENT_KEYS;
            (silent_topic(key), Some(format!("silent {key}")))
        });
        let written: Vec<Written> = healthy.chain(silent).collect();
        flow.write(written);
        flow.step(STEP, &answer);
    }
    flow
}

fn p99(mut waits: Vec<Duration>) -> Duration {
    waits.sort_unstable();
    waits[waits.len() * 99 / 100]
}

/// Behind the first minute.
fn check_the_stream(flow: &Flow) {
    let waits = flow.waits("t", Moment(Duration::from_secs(1)).after(MINUTE));
    assert!(
        waits.len() + 10 >= usize::try_from(MINUTES - 1).unwrap() * 60 * 500,
        "{}",
        waits.len()
    );
    let p99 = p99(waits);
    assert!(p99 <= Duration::from_secs(1), "{p99:?}");
}

/// Their topic takes all others: nobody knows of a place that is silent.
#[test]
fn silent_keys_of_a_topic_delay_no_steady_stream_of_it() {
    check_the_stream(&stream(|_| "t"));
}

/// Each of them is a place.
#[test]
fn silent_topics_delay_no_steady_stream() {
    let topics: Vec<&'static str> = (0..SILENT_KEYS)
        .map(|key| &*Box::leak(format!("silent {key}").into_boxed_str()))
        .collect();
    check_the_stream(&stream(|key| topics[key]));
}
