//! A stream of a test's own.

use std::sync::Arc;

use posthaste_engine::{Cause, Outcome, Postponement, Sink};
use posthaste_sinks::open;
use posthaste_testkit::{
    servers::nats::NatsServer,
    sink_suite::{SuiteEvent, WireRecord},
    unique_name,
};
use serde_json::{Value, json};

use super::read;

/// A stream with all subjects below its name. Removed when dropped, if its server still runs.
pub(super) struct Place<'a> {
    server: &'a NatsServer,
    pub(super) name: String,
}

impl<'a> Place<'a> {
    pub(super) fn new(server: &'a NatsServer) -> Self {
        Self::with_stream(server, &json!({}))
    }

    pub(super) fn with_stream(server: &'a NatsServer, settings: &Value) -> Self {
        let name = unique_name("sink");
        let subjects = format!("{name}.>");
        server.client().create_stream(&name, &[&subjects], settings);
        Self { server, name }
    }

    /// The sink's address: this stream at a server's.
    pub(super) fn on(&self, url: &str) -> String {
        let name = &self.name;
        format!("{url}?stream={name}&subject={name}.{{topic}}")
    }

    pub(super) fn sink(&self) -> Arc<dyn Sink> {
        open(&self.on(&self.server.url())).unwrap()
    }

    /// How many messages the stream holds, and the number of the last.
    pub(super) fn state(&self) -> (u64, u64) {
        self.server.client().stream_state(&self.name)
    }

    /// The records of the stream.
    pub(super) fn records(&self) -> Vec<WireRecord> {
        let messages = self.server.client().messages(&self.name);
        messages.into_iter().map(read::record).collect()
    }

    /// The events of the stream.
    pub(super) fn events(&self) -> Vec<SuiteEvent> {
        let messages = self.server.client().messages(&self.name);
        let start = format!("{}.", self.name);
        let events = messages.into_iter().map(read::event);
        events
            .map(|event| SuiteEvent {
                topic: event.topic.strip_prefix(&start).unwrap().to_owned(),
                ..event
            })
            .collect()
    }
}

/// Expects that the destination is at fault: why, and the words.
pub(super) fn cause(outcome: &Outcome) -> (Cause, &str) {
    match outcome {
        Outcome::Unavailable(why) => (why.cause, &why.reason),
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
