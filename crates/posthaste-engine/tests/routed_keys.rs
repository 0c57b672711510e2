//! Side reads and parked copies, step by step. An event that is read apart from the main group goes
//! only where a route takes it, too, and a key comes back to the main group once.

#![allow(clippy::unwrap_used)]

use std::{sync::Arc, time::Duration};

use posthaste_engine::{
    AfterFailure, Backoff, Change, Cursor, DeliveryPolicy, Due, FenceKind, KeyOrder, Marker,
    Moment, Outcome, Page, PageBuilder, ParkedCopy, Pipeline, PipelineLimits, Route, RouteAction,
    RouteMatch, Router, Routes, Settlement, SideStep, SinkInfo, StoredEvent, Verdict,
};

use crate::outage::push;

const NOW: Moment = Moment(Duration::from_secs(1));

/// Events of one key, of these topics.
fn events(topics: &[&str]) -> Vec<StoredEvent> {
    let mut builder = PageBuilder::default();
    for (seq, topic) in (1..).zip(topics) {
        push(&mut builder, seq, topic, Some("k"));
    }
    builder.finish()
}

fn page(events: Vec<StoredEvent>) -> Page {
    Page {
        caught_up: true,
        ..Page::up_to(Arc::new(()), events)
    }
}

/// Takes the topic `ours`; key `k` is marked.
fn pipeline(released: bool) -> Pipeline {
    let tick = Duration::from_millis(1);
    let backoff = Backoff {
        first: tick,
        max: tick,
        jitter: 0.0,
    };
    let limits = PipelineLimits {
        window_events: 1_000,
        window_bytes: 8 << 20,
        batch_events: 100,
        batch_bytes: 1 << 20,
        retry: backoff,
        probe: backoff,
        blocked_keys_max: 100,
        blocked_keys_kept: 100,
        rejections_max: 100,
        advance_every: tick,
        settle: tick,
        poll_busy: tick,
        poll_idle: tick,
        due_every: tick,
    };
    let info = SinkInfo {
        kind: "model",
        batch_events_max: 100,
        batch_bytes_max: 1 << 20,
        in_flight_events_max: 1_000,
        event_bytes_max: None,
        requests_max: None,
        deduplication: None,
        key_order: KeyOrder::Pipelined,
        fence: FenceKind::Exact,
        single_lane: true,
        parts: None,
    };
    let route = |topic: &str, to: &str| Route {
        matches: RouteMatch {
            topic: Some(topic.to_owned()),
            event_type: None,
            headers: Vec::new(),
        },
        action: RouteAction::To(vec![to.to_owned()]),
        attempts: None,
        on_dead: None,
    };
    let routes = Routes::new(vec![route("ours", "model"), route("theirs", "other")]).unwrap();
    let router = Router {
        routes: routes.for_destination("model", DeliveryPolicy::default()),
        topic: None,
        key: None,
    };
    let marker = Marker {
        key: "k".to_owned(),
        at: Cursor::whole(Arc::new(())),
        released,
    };
    let mut pipeline = Pipeline::new(limits, info, router, &[marker]);
    pipeline.next_read(NOW).unwrap();
    pipeline.read(page(Vec::new()), NOW);
    pipeline.lane_opened();
    pipeline
}

/// Delivers the next batch; answers the events in it.
fn deliver(pipeline: &mut Pipeline) -> Vec<u128> {
    let batch = pipeline.take_batch(NOW).unwrap_or_default();
    let accepted = |ticket| Verdict {
        ticket,
        outcome: Outcome::accepted(),
    };
    let verdicts = batch.iter().map(|record| accepted(record.ticket()));
    pipeline.verdicts(verdicts.collect(), NOW, 0.5);
    batch
        .iter()
        .map(|record| record.event().id().as_u128())
        .collect()
}

#[test]
fn a_side_read_sends_what_a_route_takes() {
    let mut pipeline = pipeline(true);
    assert!(matches!(pipeline.next_side_step(), Some(SideStep::Open(_))));
    pipeline.side_opened();
    assert!(matches!(
        pipeline.next_side_step(),
        Some(SideStep::Read { .. })
    ));
    pipeline.side_read(page(events(&["ours", "theirs", "nobody's", "ours"])));
    assert_eq!(deliver(&mut pipeline), [1, 4]);
    assert!(matches!(
        pipeline.next_side_step(),
        Some(SideStep::Advance { finished, .. }) if finished == [1, 2, 3, 4]
    ));
}

#[test]
fn the_store_is_not_asked_for_released_keys_while_keys_join() {
    let mut pipeline = pipeline(true);
    assert!(matches!(pipeline.next_side_step(), Some(SideStep::Open(_))));
    pipeline.side_opened();
    loop {
        match pipeline.next_side_step() {
            Some(SideStep::Read { .. }) => pipeline.side_read(page(Vec::new())),
            Some(SideStep::Join { .. }) => break,
            Some(step) => panic!("{step:?}"),
            None => {
                pipeline.next_change(NOW, 0.5).unwrap();
                pipeline.change_done(None, false, NOW);
            }
        }
    }
    // Something may have become due meanwhile.
    let later = Moment(NOW.0 * 2);
    while let Some(change) = pipeline.next_change(later, 0.5) {
        assert!(!matches!(change, Change::Due { .. }), "asked beside a join");
        pipeline.change_done(None, false, later);
    }
    pipeline.side_joined(later);
    until_asked(&mut pipeline, later);
}

/// Until the store is asked for due copies and released keys.
fn until_asked(pipeline: &mut Pipeline, now: Moment) {
    while !matches!(pipeline.next_change(now, 0.5).unwrap(), Change::Due { .. }) {
        pipeline.change_done(None, false, now);
    }
}

#[test]
fn followers_that_retention_set_aside_are_sent_where_a_route_takes_them() {
    let mut pipeline = pipeline(false);
    let copy = |(id, event)| ParkedCopy {
        id,
        event,
        attempts: 0,
        holds_key: true,
        // An operator has it tried again: it was routed here when it was refused.
        never_tried: id != 3,
    };
    let copies = (1..).zip(events(&["theirs", "ours", "theirs"])).map(copy);
    until_asked(&mut pipeline, NOW);
    let due = Due {
        events: copies.collect(),
        ..Due::default()
    };
    pipeline.change_done(Some(due), false, NOW);
    assert_eq!(deliver(&mut pipeline), [2, 3]);
    let mut settled = Vec::new();
    while let Some(Change::Settle { id, settlement }) = pipeline.next_change(NOW, 0.5) {
        settled.push((id, settlement));
        pipeline.change_done(None, false, NOW);
    }
    assert!(matches!(
        &settled[..],
        [
            (
                1,
                Settlement::Failed {
                    kind: "not_routed",
                    next: AfterFailure::Skip,
                    ..
                }
            ),
            (2, Settlement::Delivered),
            (3, Settlement::Delivered)
        ]
    ));
}
