//! An exchange and a queue of a test's own.

use std::sync::Arc;

use posthaste_engine::{Lane, Outcome, Sink, SinkError};
use posthaste_sinks::open;
use posthaste_testkit::{
    servers::rabbitmq::{Argument, RabbitMqServer},
    sink_suite::{SuiteEvent, lane_spec, records},
    unique_name,
};

use super::read;

/// A topic exchange with one durable queue behind it, bound to topics of one word. Removed when
/// dropped, if its server still runs.
pub(super) struct Place<'a> {
    server: &'a RabbitMqServer,
    pub(super) name: String,
}

impl<'a> Place<'a> {
    pub(super) fn new(server: &'a RabbitMqServer) -> Self {
        Self::with_queue(server, &[])
    }

    pub(super) fn with_queue(
        server: &'a RabbitMqServer,
        arguments: &[(&str, Argument<'_>)],
    ) -> Self {
        let name = unique_name("sink");
        let client = server.client("/");
        client.declare_exchange(&name, "topic");
        client.declare_queue(&name, arguments);
        client.bind(&name, &name, "*");
        Self { server, name }
    }

    /// The sink's address: this exchange at a server's.
    pub(super) fn on(&self, url: &str) -> String {
        format!("{url}?exchange={}", self.name)
    }

    pub(super) fn sink(&self) -> Arc<dyn Sink> {
        open(&self.on(&self.server.url("/"))).unwrap()
    }

    /// The messages of the queue, which are taken from it.
    pub(super) fn events(&self) -> Vec<SuiteEvent> {
        let messages = self.server.client("/").consume(&self.name);
        messages.into_iter().map(read::event).collect()
    }
}

/// A lane under the relay's default times.
pub(super) async fn lane(sink: &Arc<dyn Sink>) -> Box<dyn Lane> {
    sink.open_lane(lane_spec(1)).await.unwrap()
}

/// Why no lane is given.
pub(super) async fn refusal(sink: &Arc<dyn Sink>) -> SinkError {
    match sink.open_lane(lane_spec(1)).await {
        Ok(_) => panic!("a lane was given"),
        Err(error) => error,
    }
}

/// Submits all and waits for all verdicts, in the order of the events.
pub(super) async fn send(lane: &mut Box<dyn Lane>, events: &[SuiteEvent]) -> Vec<Outcome> {
    lane.submit(records(events, 0)).await;
    settle(lane, events.len()).await
}

/// Waits for the verdicts of tickets 0 to `count`, and answers them in this order.
pub(super) async fn settle(lane: &mut Box<dyn Lane>, count: usize) -> Vec<Outcome> {
    let mut verdicts = Vec::new();
    while verdicts.len() < count {
        verdicts.extend(lane.outcomes().await);
    }
    verdicts.sort_by_key(|verdict| verdict.ticket);
    let tickets: Vec<u64> = verdicts.iter().map(|verdict| verdict.ticket).collect();
    assert_eq!(tickets, (0..count as u64).collect::<Vec<_>>());
    verdicts
        .into_iter()
        .map(|verdict| verdict.outcome)
        .collect()
}

pub(super) fn accepted(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Accepted(_))
}

/// Sends these and expects each to be accepted.
pub(super) async fn accept(lane: &mut Box<dyn Lane>, events: &[SuiteEvent]) {
    for outcome in send(lane, events).await {
        assert!(accepted(&outcome), "{outcome:?}");
    }
}

pub(super) fn plain(count: usize) -> Vec<SuiteEvent> {
    (0..count)
        .map(|n| SuiteEvent::new(Some(&format!("key-{n}")), format!("{n}")))
        .collect()
}
