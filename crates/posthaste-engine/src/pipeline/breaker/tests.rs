use super::*;

fn at(seconds: u64) -> Moment {
    Moment(Duration::from_secs(seconds))
}

fn breaker() -> Breaker {
    let second = Duration::from_secs(1);
    let probe = Backoff {
        first: second,
        max: 5 * second,
        jitter: 0.0,
    };
    Breaker::new(probe, 100)
}

#[test]
fn an_outage_is_probed_ever_more_slowly_and_forgotten_at_the_first_success() {
    let mut breaker = breaker();
    let mut now = at(100);
    for wait in [1, 2, 4, 5, 5] {
        breaker.unavailable("away".into(), None, now, 0.5);
        let until = now.after(Duration::from_secs(wait));
        assert_eq!(breaker.state(now), BreakerState::Open { until });
        assert_eq!(breaker.state(until), BreakerState::HalfOpen);
        now = until;
    }
    breaker.accepted(1, now);
    assert_eq!(breaker.state(now), BreakerState::Closed);
    assert_eq!(breaker.last_error(), None);
}

#[test]
fn a_probe_that_is_refused_alone_closes_it() {
    let mut breaker = breaker();
    breaker.unavailable("away".into(), None, at(100), 0.5);
    assert!(!breaker.rejected(RejectionKind::TooLarge, 0, "too large", at(100), 0.5));
    assert!(
        matches!(breaker.state(at(100)), BreakerState::Open { .. }),
        "what was in flight beside the failure says nothing"
    );
    assert_eq!(breaker.state(at(101)), BreakerState::HalfOpen);
    assert!(!breaker.rejected(RejectionKind::TooLarge, 0, "too large", at(101), 0.5));
    assert_eq!(breaker.state(at(101)), BreakerState::Closed);
    assert_eq!(breaker.last_error(), None);
}

#[test]
fn some_poison_among_many_does_not_open_it() {
    let mut breaker = breaker();
    for _ in 0..1_000 {
        breaker.accepted(2, at(1));
        assert!(!breaker.rejected(RejectionKind::TooLarge, 0, "too large", at(1), 0.5));
    }
}

#[test]
fn a_destination_that_rejects_everything_is_broken() {
    let mut breaker = breaker();
    let tripped = (0..1_000)
        .position(|_| breaker.rejected(RejectionKind::Unroutable, 0, "no topic", at(1), 0.5));
    assert_eq!(tripped, Some(100));
    assert!(matches!(breaker.state(at(1)), BreakerState::Open { .. }));
}

/// How many rejections, of so many topics in turn, it takes.
fn trips_at(topics: u64) -> Option<usize> {
    let mut breaker = breaker();
    (0..30_000_u64)
        .position(|n| breaker.rejected(RejectionKind::Unroutable, n % topics, "none", at(1), 0.5))
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
    let mut breaker = breaker();
    for topic in 1..=200 {
        assert!(!breaker.rejected(RejectionKind::Unroutable, topic, "none", at(1), 0.5));
    }
    let tripped =
        (0..1_000).position(|_| breaker.rejected(RejectionKind::Unroutable, 0, "none", at(1), 0.5));
    assert_eq!(tripped, Some(200));
}

#[test]
fn a_broken_destination_stays_broken_for_longer_than_a_minute() {
    let mut breaker = breaker();
    for _ in 0..=100 {
        breaker.rejected(RejectionKind::Unroutable, 0, "no topic", at(1), 0.5);
    }
    assert_eq!(breaker.state(at(100)), BreakerState::HalfOpen);
    assert!(breaker.rejected(RejectionKind::Unroutable, 0, "no topic", at(100), 0.5));
    breaker.accepted(1, at(110));
    assert!(!breaker.rejected(RejectionKind::Unroutable, 0, "no topic", at(110), 0.5));
}

#[test]
fn a_probe_that_hung_is_not_waited_for_twice() {
    let mut breaker = breaker();
    breaker.unavailable("away".into(), None, at(100), 0.5);
    assert_eq!(breaker.state(at(101)), BreakerState::HalfOpen);
    breaker.unavailable("no answer".into(), None, at(106), 0.5);
    let until = at(106).after(Duration::from_millis(500));
    assert_eq!(breaker.state(at(106)), BreakerState::Open { until });
}
