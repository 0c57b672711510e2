//! An outage is not a poison event: what a destination cannot take now is nobody's fault.

#![allow(clippy::unwrap_used)]

use std::{any::Any, sync::Arc, time::Duration};

use posthaste_engine::{
    Backoff, Cause, Cursor, DeliveryPolicy, FenceKind, Field, KeyOrder, Moment, Outcome, Page,
    PageBuilder, Pipeline, PipelineLimits, Router, Routes, SinkInfo, StoredFields, Verdict,
};
use uuid::Uuid;

const EVENTS: i64 = 40;

fn page() -> Page {
    let mut builder = PageBuilder::default();
    for seq in 1..=EVENTS {
        let mut texts = [None; 9];
        texts[Field::Topic as usize] = Some("t");
        texts[Field::Key as usize] = Some("k");
        let fields = StoredFields {
            seq,
            id: Uuid::from_u128(u128::try_from(seq).unwrap()),
            occurred_at: 0,
            inserted_at: 0,
            slot: 0,
            texts,
            payload: None,
        };
        builder.push(&fields, std::iter::empty()).unwrap();
    }
    let base: Arc<dyn Any + Send + Sync> = Arc::new(EVENTS);
    Page {
        events: builder.finish(),
        end: Cursor::whole(Arc::clone(&base)),
        base,
        joinable: true,
        caught_up: true,
        wants_advance: false,
    }
}

fn pipeline() -> Pipeline {
    let tick = Duration::from_millis(1);
    let backoff = Backoff {
        first: tick,
        max: tick,
        jitter: 0.0,
    };
    let limits = PipelineLimits {
        window_events: 100,
        window_bytes: 1 << 20,
        batch_events: 100,
        batch_bytes: 1 << 20,
        retry: backoff,
        probe: backoff,
        blocked_keys_max: 100,
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
        in_flight_events_max: 100,
        key_order: KeyOrder::Pipelined,
        fence: FenceKind::Exact,
        single_lane: true,
        deduplicates: false,
    };
    let router = Router {
        routes: Routes::default().for_destination("model", DeliveryPolicy::default()),
        topic: None,
        key: None,
    };
    Pipeline::new(limits, info, router, &[])
}

/// A device that is nearly full takes a probe's few events and refuses the batch behind them, as a
/// whole, until somebody frees space.
#[test]
fn a_batch_that_fails_as_a_whole_behind_accepted_probes_parks_nothing() {
    let mut pipeline = pipeline();
    let mut now = Moment(Duration::from_secs(1));
    pipeline.next_read(now).unwrap();
    pipeline.read(page(), now);
    for _ in 0..EVENTS - 1 {
        now = now.after(Duration::from_secs(1));
        assert!(pipeline.wants_lane(now));
        pipeline.lane_opened();
        let mut room = 1;
        while let Some(batch) = pipeline.take_batch(now) {
            let outcome = |taken| match taken {
                true => Outcome::Accepted(None),
                false => Outcome::unavailable(Cause::Connection, "no space left"),
            };
            let verdicts = batch.iter().map(|record| {
                room -= 1;
                Verdict {
                    ticket: record.ticket(),
                    outcome: outcome(room >= 0),
                }
            });
            pipeline.verdicts(verdicts.collect(), now, 0.5);
        }
        assert!(pipeline.wants_abort());
        pipeline.lane_ended(now);
    }
    let counts = pipeline.counts();
    assert_eq!(
        (counts.accepted, counts.rejected),
        (EVENTS.unsigned_abs() - 1, 0)
    );
}
