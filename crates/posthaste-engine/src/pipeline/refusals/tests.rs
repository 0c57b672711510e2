use super::*;

fn at(seconds: u64) -> Moment {
    Moment(Duration::from_secs(seconds))
}

fn refusals() -> Refusals {
    let probe = Backoff {
        first: Duration::from_millis(500),
        max: Duration::from_secs(3),
        jitter: 0.0,
    };
    Refusals::new(probe, 100, 10_000)
}

/// Whether the destination is broken after one more rejection.
fn reject(refusals: &mut Refusals, kind: RejectionKind, topic: u64, now: Moment) -> bool {
    refusals.rejected(kind, topic, "refused", now);
    refusals.is_broken()
}

#[test]
fn some_poison_among_many_is_no_broken_destination() {
    let mut refusals = refusals();
    for _ in 0..1_000 {
        assert!(!refusals.accepted(2, at(1)));
        assert!(!reject(&mut refusals, RejectionKind::TooLarge, 0, at(1)));
        assert!(refusals.park());
    }
}

#[test]
fn a_destination_that_rejects_everything_is_broken_until_it_accepts() {
    let mut refusals = refusals();
    let mut rejected = 0..1_000;
    let tripped = rejected.position(|_| reject(&mut refusals, RejectionKind::Invalid, 0, at(1)));
    assert_eq!(tripped, Some(100));
    assert!(reject(&mut refusals, RejectionKind::Invalid, 0, at(100)));
    assert!(refusals.accepted(1, at(110)) && !refusals.is_broken());
    assert!(!reject(&mut refusals, RejectionKind::Invalid, 0, at(110)));
}

/// How many rejections, of so many topics in turn, it takes.
fn trips_at(topics: u64) -> Option<usize> {
    let mut refusals = refusals();
    (0..30_000_u64)
        .position(|n| reject(&mut refusals, RejectionKind::Unroutable, n % topics, at(1)))
}

#[test]
fn many_topics_that_are_missing_are_no_broken_destination() {
    for topics in [102, 1_000, 10_000] {
        assert_eq!(trips_at(topics), None, "{topics}");
    }
    for topics in [1, 5, 100] {
        assert_eq!(trips_at(topics), Some(100), "{topics}: all that it has");
    }
    assert_eq!(trips_at(20_000), Some(10_000), "nothing is bound any more");
}

#[test]
fn one_of_many_topics_that_is_refused_again_and_again_is_a_broken_destination() {
    let (mut refusals, unroutable) = (refusals(), RejectionKind::Unroutable);
    for topic in 1..=200 {
        assert!(!reject(&mut refusals, unroutable, topic, at(1)));
    }
    let tripped = (0..1_000).position(|_| reject(&mut refusals, unroutable, 0, at(1)));
    assert_eq!(tripped, Some(200));
}

/// How many may be parked at a destination that has refused everything for so long.
fn parked_within(seconds: u64) -> usize {
    let mut refusals = refusals();
    while !reject(&mut refusals, RejectionKind::Invalid, 0, at(0)) {}
    let mut parked = 0;
    for second in 0..=seconds {
        let room = refusals.room(at(second));
        parked += (0..room).filter(|_| refusals.park()).count();
        assert!(!refusals.park());
    }
    parked
}

#[test]
fn a_broken_destination_parks_more_in_ever_longer_steps() {
    let steps = [
        (0, 1),
        (1, 2),
        (2, 2),
        (3, 3),
        (60, 6),
        (3_600, 12),
        (86_400, 17),
    ];
    for (seconds, steps) in steps {
        assert_eq!(parked_within(seconds), steps * 833, "{seconds}s");
    }
}

#[test]
fn a_few_that_were_refused_are_tried_again_ever_more_slowly() {
    let mut refusals = refusals();
    let mut now = at(100);
    for wait in [500, 1_000, 2_000, 3_000, 3_000] {
        assert!(refusals.probe(now) && !refusals.probe(now));
        let next = now.after(Duration::from_millis(wait));
        assert_eq!(refusals.next_turn(now), Some(next));
        now = next;
    }
    refusals.mended();
    assert!(refusals.probe(now));
    let next = now.after(Duration::from_millis(500));
    assert_eq!(refusals.next_turn(now), Some(next));
}
