//! Topics of a test's own.

use std::sync::Arc;

use posthaste_engine::Sink;
use posthaste_sinks::open;
use posthaste_testkit::{
    servers::pubsub::{PROJECT, PubSubMessage, PubSubServer},
    sink_suite::SuiteEvent,
    unique_name,
};
use serde_json::json;

use super::read;

/// A topic.
pub(super) struct Place<'a> {
    pub(super) server: &'a PubSubServer,
    pub(super) name: String,
}

impl<'a> Place<'a> {
    pub(super) fn new(server: &'a PubSubServer) -> Self {
        let place = Self {
            server,
            name: unique_name("sink"),
        };
        place.make();
        place
    }

    pub(super) fn make(&self) {
        self.server.create_topic(&self.name, json!({}));
    }

    pub(super) fn sink(&self) -> Arc<dyn Sink> {
        self.sink_at(&self.server.options())
    }

    /// The sink of the topic, with these options.
    pub(super) fn sink_at(&self, options: &str) -> Arc<dyn Sink> {
        open(&format!("pubsub://{PROJECT}/{}?{options}", self.name)).unwrap()
    }

    pub(super) fn messages(&self) -> Vec<PubSubMessage> {
        self.server.messages(&self.name)
    }

    pub(super) fn events(&self) -> Vec<SuiteEvent> {
        self.messages().into_iter().map(read::event).collect()
    }
}

/// The sink whose topics begin with this text, with one for each topic.
pub(super) fn of_each_topic(server: &PubSubServer, name: &str) -> Arc<dyn Sink> {
    let url = format!("pubsub://{PROJECT}/{name}-{{topic}}?{}", server.options());
    open(&url).unwrap()
}
