//! Each rule of places and of refused events is left out once, and a test has to miss it. The same
//! test passes with the rule in place, by itself.

use std::panic::catch_unwind;

use posthaste_engine::rule::{Rule, leave_out};

use super::{
    flow::{Answer, Flow, LIMITS},
    places, refused, *,
};

/// One of each hundred is healthy; the others are of as many keys.
#[test]
fn a_place_that_is_away_gets_few_events_and_the_others_pass() {
    let mut flow = Flow::new(LIMITS, KeyOrder::OneAtATime);
    let quick = Duration::from_millis(5);
    let away = |record: &Record| -> Answer {
        let outcome = match record.topic() {
            "away" => Outcome::later("it is away"),
            _ => Outcome::accepted(),
        };
        (quick, outcome)
    };
    flow.write((1..=5_000).map(|n| {
        let topic = if n % 100 == 0 { "healthy" } else { "away" };
        (topic, Some(n.to_string()))
    }));
    for _ in 0..600 {
        flow.step(Duration::from_millis(100), &away);
    }
    // A first batch, and then one with each probe.
    let counts = flow.pipeline.counts();
    assert!(counts.later <= 1_100, "{} attempts", counts.later);
    assert_eq!(counts.accepted, 50);
}

/// More than the window holds, and not all may be parked.
#[test]
fn refused_events_are_sent_behind_others() {
    let limits = PipelineLimits {
        blocked_keys_max: 10,
        ..LIMITS
    };
    let mut flow = Flow::new(limits, KeyOrder::OneAtATime);
    let quick = Duration::from_millis(5);
    flow.write((1..=5_000).map(|n| {
        let topic = if n > 4_800 { "healthy" } else { "refused" };
        (topic, Some(n.to_string()))
    }));
    for _ in 0..600 {
        flow.step(Duration::from_millis(100), &|record| match record.topic() {
            "healthy" => (quick, Outcome::accepted()),
            _ => (quick, refused()),
        });
    }
    assert_eq!(flow.pipeline.counts().accepted, 200);
}

/// Each rule, and a test that misses it.
const MISSED: [(Rule, fn()); 9] = [
    (
        Rule::PlaceIsHeldBack,
        a_place_that_is_away_gets_few_events_and_the_others_pass,
    ),
    (
        Rule::ProbesRotate,
        places::events_of_a_full_queues_topic_that_do_not_go_there_have_their_turn,
    ),
    (
        Rule::PassedOverIsNotOvertaken,
        places::what_follows_in_its_key_waits_behind_what_is_held_back,
    ),
    (
        Rule::LongWaitLeavesWindow,
        places::what_fills_the_window_for_a_full_queue_leaves_it_key_by_key,
    ),
    (
        Rule::BlockedKeysAreBounded,
        refused::released_keys_make_room_for_others_and_join_where_no_more_may_be_blocked,
    ),
    (
        Rule::StepsOfRefusalsDouble,
        refused::a_destination_that_refuses_everything_parks_ten_thousand_in_an_hour_and_then_goes_on,
    ),
    (Rule::RefusedGoLast, refused_events_are_sent_behind_others),
    (
        Rule::SilentEventGoesAlone,
        places::keys_that_stay_unanswered_leave_the_window_and_are_at_fault_in_the_end,
    ),
    (
        Rule::SilentPlaceIsHeldBack,
        places::a_topic_that_leaves_all_unanswered_is_held_back_and_uses_up_no_attempt,
    ),
];

#[test]
fn every_rule_of_places_and_refusals_that_is_left_out_is_missed() {
    for (rule, test) in MISSED {
        let missed = leave_out(rule, || catch_unwind(test)).is_err();
        assert!(missed, "nobody missed {rule:?}");
    }
}
