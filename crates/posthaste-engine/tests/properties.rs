//! Properties of the engine's small parts, for any input.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::{collections::BTreeSet, time::Duration};

use posthaste_engine::{Backoff, Batches, FailedKeys, Partitions};
use proptest::prelude::*;

fn any_duration() -> impl Strategy<Value = Duration> {
    let nanos = 0..1_000_000_000_u32;
    prop_oneof![
        (0..1_000_u64, nanos.clone()),
        (any::<u64>(), nanos),
        Just((u64::MAX, 999_999_999)),
        Just((0, 0)),
    ]
    .prop_map(|(seconds, nanos)| Duration::new(seconds, nanos))
}

fn any_backoff() -> impl Strategy<Value = Backoff> {
    let jitter = prop_oneof![0.0..=1.0, Just(0.0), Just(1.0), Just(7.0), Just(-1.0)];
    (any_duration(), any_duration(), jitter).prop_map(|(first, max, jitter)| Backoff {
        first,
        max,
        jitter,
    })
}

proptest! {
    #[test]
    fn waits_grow_up_to_the_longest_and_stay_within_the_jitter(
        backoff in any_backoff(),
        failures in prop_oneof![0..200_u32, any::<u32>()],
        random in prop_oneof![0.0..=1.0, Just(0.0), Just(0.5), Just(1.0), Just(9.0), Just(-9.0)],
    ) {
        let wait = backoff.delay(failures, random);
        prop_assert!(backoff.delay(failures.saturating_add(1), random) >= wait);
        let jitter = backoff.jitter.clamp(0.0, 1.0);
        let longest = backoff.max.as_secs_f64() * (1.0 + jitter);
        prop_assert!(wait.as_secs_f64() <= longest * 1.000_001);
        let even = Backoff { jitter: 0.0, ..backoff }.delay(failures, random).as_secs_f64();
        let least = even * (1.0 - jitter) * 0.999_999 - 1e-8;
        let most = even * (1.0 + jitter) * 1.000_001 + 1e-8;
        let within = least..=most;
        prop_assert!(within.contains(&wait.as_secs_f64()) || wait == Duration::MAX);
        if backoff.first > Duration::ZERO {
            let at_last = backoff.delay(u32::MAX, 0.5).as_secs_f64();
            let max = backoff.max.as_secs_f64();
            prop_assert!((at_last - max).abs() <= max * 1e-6, "{} after {}", at_last, max);
        }
    }

    /// The partitions are ranges of one size that cover the slots, each slot once.
    #[test]
    fn partitions_cut_the_slots(
        power in 0..=12_u32,
        inserted in prop::collection::vec(any::<u16>(), 0..60),
    ) {
        let count = 1_u16 << power;
        let mut some = Partitions::none_of(count).unwrap();
        let mut expected = BTreeSet::new();
        for partition in inserted {
            let partition = if partition % 3 == 0 { partition } else { partition % count };
            prop_assert_eq!(some.insert(partition), partition < count);
            if partition < count {
                expected.insert(partition);
            }
        }
        prop_assert!(some.iter().eq(expected.iter().copied()));
        prop_assert_eq!(usize::from(some.len()), expected.len());
        prop_assert_eq!(some.is_empty(), expected.is_empty());
        prop_assert_eq!(some.is_all(), expected.len() == usize::from(count));
        let flags = some.as_slice().iter().enumerate();
        let set = flags.filter(|(_, set)| **set).map(|(at, _)| at);
        prop_assert!(set.eq(expected.iter().map(|&p| usize::from(p))));
        let size = 16_384 / count;
        for slot in 0..16_384 {
            prop_assert_eq!(some.partition_of(slot), slot / size);
            prop_assert_eq!(some.contains_slot(slot), expected.contains(&(slot / size)));
        }
    }

    /// A record is refused if and only if a failure of its key was noted that its sender did not
    /// know; and forgetting what all senders know changes no answer.
    #[test]
    fn failed_keys_answer_as_the_list_of_failures(
        steps in prop::collection::vec(
            (any::<bool>(), prop::option::of(0..4_u64), 0..6_u64),
            0..60,
        ),
    ) {
        let (mut keys, mut failures, mut forgotten) = (FailedKeys::default(), Vec::new(), 0);
        for (note, key, unknown) in steps {
            let noted = failures.len() as u64;
            if note {
                failures.push(key);
                prop_assert_eq!(keys.note(key), noted + 1);
            } else {
                forgotten = forgotten.max(noted.saturating_sub(unknown));
                keys.forget(forgotten);
            }
            for seen in forgotten..=failures.len() as u64 {
                for key in [None, Some(0), Some(1), Some(2), Some(3)] {
                    let unseen = failures.iter().skip(usize::try_from(seen).unwrap());
                    let expected = key.is_some() && unseen.into_iter().any(|failed| *failed == key);
                    prop_assert_eq!(keys.refuses(key, seen), expected);
                }
            }
        }
    }

    /// The oldest batch that owes an answer is known, whatever the order of answers, late ones
    /// included.
    #[test]
    fn batches_know_the_oldest_that_is_open(
        steps in prop::collection::vec((0..8_u8, 0..12_u64, 1..4_usize), 0..80),
    ) {
        let mut batches = Batches::default();
        // By number: when it was begun, and how many of its records are open.
        let mut open: Vec<(usize, usize)> = Vec::new();
        for (now, (what, which, records)) in steps.into_iter().enumerate() {
            match what {
                0..=2 => {
                    prop_assert_eq!(batches.begin(now, records), open.len() as u64);
                    open.push((now, records));
                }
                3 if which == 0 => {
                    batches.clear();
                    open.iter_mut().for_each(|batch| batch.1 = 0);
                }
                _ => {
                    batches.answered(which);
                    if let Some(batch) = open.get_mut(usize::try_from(which).unwrap()) {
                        batch.1 = batch.1.saturating_sub(1);
                    }
                }
            }
            let oldest = open.iter().find(|batch| batch.1 > 0).map(|batch| batch.0);
            prop_assert_eq!(batches.oldest(), oldest);
            prop_assert_eq!(batches.next(), open.len() as u64);
        }
    }
}
