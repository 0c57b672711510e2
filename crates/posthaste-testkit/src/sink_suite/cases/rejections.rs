//! An event at fault delays its own key and nothing else (I7).

use posthaste_engine::{KeyOrder, Outcome, RejectionKind};

use super::super::{SuiteEvent, bench::Bench, flight::Log};

/// Many good events around one bad one, at this place. Keys 0 to 6, one event in eight without a
/// key.
fn with_one_bad(bench: &Bench, count: usize, bad: usize) -> Vec<SuiteEvent> {
    let mut events: Vec<SuiteEvent> = (0..count)
        .map(|n| {
            let key = format!("key-{}", n % 7);
            SuiteEvent::new((n % 8 != 0).then_some(&*key), format!("{n}"))
        })
        .collect();
    events[bad] = bench.fixture.spoil(events[bad].clone());
    events
}

fn expect_rejected(bench: &Bench, log: &Log, at: usize) {
    match log.outcome(at) {
        Outcome::Rejected(why) => {
            assert_eq!(Some(why.kind), bench.expected.rejects);
            assert!(!why.reason.is_empty());
        }
        other => panic!("the bad event should be rejected: {other:?}"),
    }
}

fn is_accepted(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Accepted(_))
}

pub(super) async fn a_bad_event_is_rejected_alone(bench: Bench) {
    const BAD: usize = 45;
    let events = with_one_bad(&bench, 200, BAD);
    let mut flight = bench.lane().await;
    flight.submit(&events).await;
    flight.settle().await;
    let log = flight.log();
    expect_rejected(&bench, log, BAD);
    for (at, event) in events.iter().enumerate() {
        let follows = at > BAD && event.key == events[BAD].key;
        if at != BAD && !follows {
            assert!(
                is_accepted(log.outcome(at)),
                "{event:?}: {:?}",
                log.outcome(at)
            );
        }
        assert!(
            at == BAD || !matches!(log.outcome(at), Outcome::Rejected(_)),
            "{event:?} is not at fault: {:?}",
            log.outcome(at)
        );
    }
    let accepted = log.accepted();
    bench.expect_arrivals(&events, &accepted).await;
}

/// One more byte is too large.
pub(super) async fn the_largest_event_is_the_declared_one(bench: Bench) {
    let limit = bench.expected.event_bytes_max.expect("the case needs it");
    let limit = usize::try_from(limit).expect("a limit of the suite is small");
    let events = [0, 1].map(|more| SuiteEvent::new(None, vec![b'x'; limit + more]));
    let mut flight = bench.lane().await;
    for event in &events {
        flight.submit(std::slice::from_ref(event)).await;
    }
    flight.settle().await;
    let log = flight.log();
    assert!(is_accepted(log.outcome(0)), "{:?}", log.outcome(0));
    match log.outcome(1) {
        Outcome::Rejected(why) => assert_eq!(why.kind, RejectionKind::TooLarge),
        other => panic!("{other:?}"),
    }
    let accepted = log.accepted();
    bench.expect_arrivals(&events, &accepted).await;
}

/// In the same batch, and in later ones that were submitted before the verdict could be known.
pub(super) async fn followers_in_flight_are_not_accepted(bench: Bench) {
    const BAD: usize = 5;
    let events = with_one_bad(&bench, 120, BAD);
    let mut flight = bench.lane().await;
    for batch in events.chunks(40) {
        flight.submit(batch).await;
    }
    flight.settle().await;
    let log = flight.log();
    expect_rejected(&bench, log, BAD);
    log.expect_no_gap_in_a_key();
    let accepted = log.accepted();
    bench.expect_arrivals(&events, &accepted).await;
}

pub(super) async fn followers_pass_once_the_verdict_is_known(bench: Bench) {
    let bad = bench.fixture.spoil(SuiteEvent::new(Some("k"), "bad"));
    let followers: Vec<SuiteEvent> = (0..5)
        .map(|n| SuiteEvent::new(Some("k"), format!("{n}")))
        .collect();
    let mut flight = bench.lane().await;
    flight.submit(std::slice::from_ref(&bad)).await;
    if bench.expected.key_order == KeyOrder::Pipelined {
        flight.submit(&followers).await;
    }
    flight.settle().await;
    expect_rejected(&bench, flight.log(), 0);
    let refused = flight.log().sent.len();
    if bench.expected.key_order == KeyOrder::Pipelined {
        flight.log().expect_unavailable(1);
    }
    flight.submit(&followers).await;
    flight.settle().await;
    for at in refused..flight.log().sent.len() {
        assert!(is_accepted(flight.log().outcome(at)));
    }
    let accepted = flight.log().accepted();
    // The refused sending must not have arrived, so it does not count as sent.
    bench.expect_arrivals(&followers, &accepted).await;
}

/// A second follower, sent after the first failure's verdict but before the refused follower's own,
/// must not overtake that follower.
pub(super) async fn followers_wait_for_the_verdict_to_be_handed_out(bench: Bench) {
    let bad = bench.fixture.spoil(SuiteEvent::new(Some("k"), "bad"));
    let events = [
        bad,
        SuiteEvent::new(Some("k"), "first follower"),
        SuiteEvent::new(Some("k"), "second follower"),
        SuiteEvent::new(Some("other"), "not concerned"),
    ];
    let mut flight = bench.lane().await;
    for event in &events[..2] {
        flight.submit(std::slice::from_ref(event)).await;
    }
    // Answers the bad event, and possibly the first follower with it.
    flight.next().await;
    let knew_all = flight.log().is_settled();
    for event in &events[2..] {
        flight.submit(std::slice::from_ref(event)).await;
    }
    flight.settle().await;
    expect_rejected(&bench, flight.log(), 0);
    assert!(!is_accepted(flight.log().outcome(1)));
    assert_eq!(is_accepted(flight.log().outcome(2)), knew_all);
    assert!(is_accepted(flight.log().outcome(3)));
}
