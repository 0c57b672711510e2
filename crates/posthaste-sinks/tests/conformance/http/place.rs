//! Endpoints of a test's own.

use std::{sync::Arc, time::Duration};

use posthaste_engine::{Cause, Lane, LaneSpec, Outcome, Postponement, RejectionKind, Sink};
use posthaste_sinks::open;
use posthaste_testkit::{
    servers::http::{WebhookRequest, WebhookServer},
    sink_suite::{SuiteEvent, WireRecord, lane_spec, records},
    unique_name,
};
use serde_json::Value;

use super::read;

/// As `openssl rand -base64 32` makes it.
pub(super) const SECRET: &str = "whsec_8pEY1cYeWSbsNMbO2hJWR6zKhJmGXPoFpQ5pxlYkTzM=";

/// A place of a server.
pub(super) struct Place<'a> {
    server: &'a WebhookServer,
    pub(super) name: String,
}

impl<'a> Place<'a> {
    pub(super) fn new(server: &'a WebhookServer) -> Self {
        let name = unique_name("sink");
        Self { server, name }
    }

    /// The sink of its only endpoint.
    pub(super) fn sink(&self) -> Arc<dyn Sink> {
        self.sink_with("")
    }

    /// The same with more options, each with an `&` before it.
    pub(super) fn sink_with(&self, options: &str) -> Arc<dyn Sink> {
        let url = self.server.url(&self.name);
        open(&format!("{url}?allow_private=true{options}")).unwrap()
    }

    /// The sink of an endpoint for each topic.
    pub(super) fn sink_of_topics(&self) -> Arc<dyn Sink> {
        let url = self.server.url(&self.name);
        open(&format!("{url}/{{topic}}?allow_private=true")).unwrap()
    }

    pub(super) fn fail(&self, fault: &Value) {
        self.server.fail(&self.name, fault);
    }

    pub(super) fn heal(&self) {
        self.server.heal(&self.name);
    }

    pub(super) fn requests(&self) -> Vec<WebhookRequest> {
        self.server.requests(&self.name)
    }

    pub(super) fn events(&self) -> Vec<SuiteEvent> {
        self.requests().into_iter().map(read::event).collect()
    }

    pub(super) fn records(&self) -> Vec<WireRecord> {
        self.requests().into_iter().map(read::record).collect()
    }

    /// The values of this header of all requests.
    pub(super) fn told(&self, header: &str) -> Vec<String> {
        let requests = self.requests();
        let values = requests.iter().map(|request| request.header(header));
        values
            .map(|value| value.unwrap_or_default().to_owned())
            .collect()
    }
}

/// A lane that waits for a second at the most.
pub(super) fn short(number: u64) -> LaneSpec {
    LaneSpec {
        publish_timeout: Duration::from_secs(1),
        ..lane_spec(number)
    }
}

/// Expects that the destination is at fault: why, the words, and how long it asks to wait.
pub(super) fn cause(outcome: &Outcome) -> (Cause, &str, Option<Duration>) {
    match outcome {
        Outcome::Unavailable(why) => (why.cause, &why.reason, why.wait),
        other => panic!("{other:?}"),
    }
}

/// Why it was rejected, and the words.
pub(super) fn rejection(outcome: &Outcome) -> (RejectionKind, &str) {
    match outcome {
        Outcome::Rejected(why) => (why.kind, &why.reason),
        other => panic!("{other:?}"),
    }
}

/// Why it was put off.
pub(super) fn put_off(outcome: &Outcome) -> &Postponement {
    match outcome {
        Outcome::Later(why) => why,
        other => panic!("{other:?}"),
    }
}

/// The outcome of an event beside which others are accepted, one after the other, until it has one.
pub(super) async fn beside(
    lane: &mut Box<dyn Lane>,
    event: &SuiteEvent,
    other: impl Fn() -> SuiteEvent,
) -> Outcome {
    lane.submit(records(std::slice::from_ref(event), 0)).await;
    for ticket in 1.. {
        lane.submit(records(&[other()], ticket)).await;
        let mut is_accepted = false;
        while !is_accepted {
            for verdict in lane.outcomes().await {
                if verdict.ticket == 0 {
                    return verdict.outcome;
                }
                is_accepted = matches!(verdict.outcome, Outcome::Accepted(_));
                assert!(is_accepted, "{verdict:?}");
            }
        }
    }
    panic!("it had no outcome")
}
