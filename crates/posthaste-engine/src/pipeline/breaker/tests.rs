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
    Breaker::new(probe)
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
    breaker.accepted();
    assert_eq!(breaker.state(now), BreakerState::Closed);
    assert_eq!(breaker.last_error(), None);
}

#[test]
fn a_probe_that_is_refused_closes_it() {
    let mut breaker = breaker();
    breaker.unavailable("away".into(), None, at(100), 0.5);
    breaker.answered();
    assert!(
        matches!(breaker.state(at(100)), BreakerState::Open { .. }),
        "what was in flight beside the failure says nothing"
    );
    assert_eq!(breaker.state(at(101)), BreakerState::HalfOpen);
    breaker.answered();
    assert_eq!(breaker.state(at(101)), BreakerState::Closed);
    assert_eq!(breaker.last_error(), None);
}

#[test]
fn no_destination_asks_for_more_than_five_minutes() {
    let mut breaker = breaker();
    breaker.unavailable("busy".into(), Some(Duration::MAX), at(100), 0.5);
    assert_eq!(
        breaker.state(at(399)),
        BreakerState::Open { until: at(400) }
    );
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
