//! A newer lane ends an older one by its client id, and a check ends none.

use std::sync::Arc;

use libtest_mimic::Trial;
use posthaste_engine::{Cause, Lane, LaneScope, Sink};
use posthaste_testkit::{servers::mqtt::MqttServer, sink_suite::lane_spec};

use super::{
    place::{Place, cause, spec},
    trial,
};
use crate::driving::{accept, plain, send};

pub(super) fn trials() -> Vec<Trial> {
    vec![
        trial(
            "the_next_lane_ends_the_former",
            the_next_lane_ends_the_former,
        ),
        trial(
            "a_successor_ends_the_lanes_of_former_owners",
            a_successor_ends_the_lanes_of_former_owners,
        ),
        trial("lanes_of_other_relays_go_on", lanes_of_other_relays_go_on),
        trial("a_check_ends_no_lane", a_check_ends_no_lane),
    ]
}

async fn open(sink: &Arc<dyn Sink>, scope: &Arc<LaneScope>, number: u64) -> Box<dyn Lane> {
    sink.open_lane(spec(scope, number)).await.unwrap()
}

/// This broker closes the connection only, with MQTT 5 too; others say why.
async fn expect_ended(lane: &mut Box<dyn Lane>) {
    for outcome in send(lane, &plain(3)).await {
        let (why, words) = cause(&outcome);
        assert_eq!(why, Cause::Connection, "{words}");
        assert!(words.contains("closed the connection"), "{words}");
    }
}

async fn the_next_lane_ends_the_former() {
    for options in ["", "&qos=2", "&version=3.1.1"] {
        let place = Place::new(MqttServer::shared());
        let sink = place.sink_with(options);
        let scope = lane_spec(0).scope;
        let mut old = open(&sink, &scope, 1).await;
        accept(&mut old, &plain(3)).await;
        let mut new = open(&sink, &scope, 2).await;
        expect_ended(&mut old).await;
        accept(&mut new, &plain(3)).await;
        assert_eq!(place.events().len(), 6);
    }
}

async fn a_successor_ends_the_lanes_of_former_owners() {
    let place = Place::new(MqttServer::shared());
    let sink = place.sink();
    let (first, second) = (lane_spec(0).scope, lane_spec(0).scope);
    let of = |former: &[&Arc<LaneScope>]| {
        Arc::new(LaneScope {
            registration: lane_spec(0).scope.registration,
            former: former.iter().map(|scope| scope.registration).collect(),
            ..(*first).clone()
        })
    };
    let second = Arc::new(LaneScope {
        registration: second.registration,
        ..(*first).clone()
    });
    let mut one = open(&sink, &first, 1).await;
    let mut two = open(&sink, &second, 2).await;
    accept(&mut one, &plain(3)).await;
    accept(&mut two, &plain(3)).await;
    let third = of(&[&first, &second]);
    let mut three = open(&sink, &third, 3).await;
    // It may have lost its right meanwhile: opening alone ends nobody.
    accept(&mut one, &plain(3)).await;
    assert_eq!(three.take_over().await.unwrap(), None);
    expect_ended(&mut one).await;
    expect_ended(&mut two).await;
    accept(&mut three, &plain(3)).await;
    assert_eq!(place.events().len(), 12);
}

/// They own other partitions of the same destination.
async fn lanes_of_other_relays_go_on() {
    let place = Place::new(MqttServer::shared());
    let sink = place.sink();
    let mut lanes = Vec::new();
    for number in 1..4 {
        let mut lane = open(&sink, &lane_spec(0).scope, number).await;
        lane.take_over().await.unwrap();
        lanes.push(lane);
    }
    for lane in &mut lanes {
        accept(lane, &plain(3)).await;
    }
    assert_eq!(place.events().len(), 9);
}

async fn a_check_ends_no_lane() {
    let place = Place::new(MqttServer::shared());
    let sink = place.sink();
    let mut lane = open(&sink, &lane_spec(0).scope, 1).await;
    accept(&mut lane, &plain(3)).await;
    for _ in 0..2 {
        sink.check().await.unwrap();
    }
    accept(&mut lane, &plain(3)).await;
    assert_eq!(place.events().len(), 6);
}
