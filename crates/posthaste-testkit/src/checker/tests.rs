use super::{Checker, Report};
use uuid::Uuid;

/// Delivered events as key and number, against numbers 1 to 5 of the keys a and b.
fn check(delivered: &[(&str, u64)]) -> Report {
    let mut checker = Checker::new();
    for key in ["a", "b"] {
        for n in 1..=5 {
            checker.committed(Some(key), n, id(key, n));
        }
    }
    for (key, n) in delivered {
        checker.delivered(Some(key), *n, id(key, *n));
    }
    checker.finish()
}

fn id(key: &str, n: u64) -> Uuid {
    let key = key.as_bytes()[0];
    Uuid::from_u64_pair(u64::from(key), n)
}

/// Both keys in order, with the numbers of key a given.
fn key_a(numbers: &[u64]) -> Vec<(&'static str, u64)> {
    let a = numbers.iter().map(|n| ("a", *n));
    a.chain((1..=5).map(|n| ("b", n))).collect()
}

#[test]
fn a_perfect_delivery_is_good() {
    let mixed = [1, 2, 3, 4, 5]
        .iter()
        .flat_map(|n| [("b", *n), ("a", *n)])
        .collect::<Vec<_>>();
    let report = check(&mixed);
    report.assert_good();
    assert_eq!(
        (report.committed, report.delivered, report.duplicates),
        (10, 10, 0)
    );
}

#[test]
fn a_dropped_event_is_lost_and_nothing_else() {
    for dropped in 1..=5 {
        let kept: Vec<_> = (1..=5).filter(|n| *n != dropped).collect();
        let report = check(&key_a(&kept));
        assert_eq!((report.lost, report.delivered), (1, 9));
        assert_eq!(
            (report.out_of_order, report.phantom, report.broken_replays),
            (0, 0, 0)
        );
        assert!(!report.is_good());
        assert!(
            report
                .to_string()
                .contains(&format!("lost: key Some(\"a\"), n {dropped}"))
        );
    }
}

#[test]
fn a_naive_reader_that_trusts_the_sequence_loses_the_late_commit() {
    // `WHERE seq > last` on a table where seq 2 commits after seq 3 was read. The truth is in
    // commit order: 1, 3, 2, each with a key of its own.
    let mut checker = Checker::new();
    for (key, n) in [("a", 1), ("c", 3), ("b", 2)] {
        checker.committed(Some(key), n, id(key, n));
    }
    let mut last_seq = 0;
    for visible in [vec![("a", 1), ("c", 3)], vec![("a", 1), ("b", 2), ("c", 3)]] {
        for (key, n) in visible
            .into_iter()
            .filter(|(_, seq)| *seq > last_seq)
            .collect::<Vec<_>>()
        {
            checker.delivered(Some(key), n, id(key, n));
            last_seq = last_seq.max(n);
        }
    }
    let report = checker.finish();
    assert_eq!((report.lost, report.is_good()), (1, false));
}

#[test]
fn swapped_events_are_out_of_order() {
    let report = check(&key_a(&[1, 3, 2, 4, 5]));
    assert_eq!(
        (report.out_of_order, report.lost, report.is_good()),
        (1, 0, false)
    );
    // The same two events of different keys are not.
    let apart = check(&[("b", 1), ("a", 1), ("a", 2), ("b", 2), ("b", 3), ("a", 3)]);
    assert_eq!(apart.out_of_order, 0);
    let reversed = check(&key_a(&[5, 4, 3, 2, 1]));
    assert_eq!(reversed.out_of_order, 4);
}

#[test]
fn an_invented_event_is_a_phantom() {
    let mut delivered = key_a(&[1, 2, 3, 4, 5]);
    delivered.push(("a", 6));
    let report = check(&delivered);
    assert_eq!(
        (report.phantom, report.lost, report.is_good()),
        (1, 0, false)
    );
}

#[test]
fn an_event_under_another_key_or_number_is_a_phantom_and_its_own_is_lost() {
    for (key, n) in [("b", 1), ("a", 2)] {
        let mut checker = Checker::new();
        checker.committed(Some("a"), 1, id("a", 1));
        checker.delivered(Some(key), n, id("a", 1));
        let report = checker.finish();
        assert_eq!(
            (report.phantom, report.lost, report.is_good()),
            (1, 1, false)
        );
    }
}

#[test]
fn a_contiguous_replay_is_good_and_counted() {
    let report = check(&key_a(&[1, 2, 3, 2, 3, 2, 3, 4, 5]));
    report.assert_good();
    assert_eq!((report.duplicates, report.longest_repeat_run), (4, 4));
    assert_eq!(report.delivered, 10);
}

#[test]
fn a_shuffled_repeat_is_no_replay() {
    for shuffled in [
        &[1, 2, 3, 2, 1, 3, 4, 5][..],
        &[1, 2, 3, 1, 3, 4, 5],
        &[1, 2, 3, 4, 5, 4],
        &[1, 2, 3, 4, 5, 5, 4],
        &[1, 2, 3, 1, 4, 5],
    ] {
        let report = check(&key_a(shuffled));
        assert_eq!(
            (report.broken_replays, report.is_good()),
            (1, false),
            "{shuffled:?}"
        );
        assert_eq!(
            (report.lost, report.out_of_order, report.phantom),
            (0, 0, 0)
        );
    }
}

#[test]
fn a_repeat_that_ends_up_last_is_counted_as_such() {
    for (numbers, stale) in [
        (&[1, 2, 3, 4, 5, 3, 4, 5][..], 0),
        (&[1, 2, 3, 4, 5, 3], 1),
        (&[1, 2, 3, 1, 3, 4, 5], 0),
    ] {
        assert_eq!(check(&key_a(numbers)).stale_last, stale, "{numbers:?}");
    }
}

#[test]
fn repeats_are_counted_for_each_life_of_the_relay() {
    let mut checker = Checker::new();
    for n in 1..=5 {
        checker.committed(Some("a"), n, id("a", n));
    }
    let lives = [&[1, 2, 3][..], &[1, 2, 3, 4], &[3, 4, 5]];
    for numbers in lives {
        checker.restarted();
        for n in numbers {
            checker.delivered(Some("a"), *n, id("a", *n));
        }
    }
    let report = checker.finish();
    report.assert_good();
    assert_eq!((report.duplicates, report.most_repeats_in_one_life), (5, 3));
    assert_eq!(report.longest_repeat_run, 3);
}

#[test]
fn events_without_key_have_no_order_but_cannot_be_lost() {
    let mut checker = Checker::new();
    for n in 1..=3 {
        checker.committed(None, n, id("-", n));
    }
    for n in [3, 1, 3] {
        checker.delivered(None, n, id("-", n));
    }
    let report = checker.finish();
    assert_eq!(
        (report.lost, report.duplicates, report.out_of_order),
        (1, 1, 0)
    );
    assert_eq!(report.broken_replays, 0);
}
