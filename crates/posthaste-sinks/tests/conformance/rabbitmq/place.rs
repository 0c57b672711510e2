//! An exchange and a queue of a test's own.

use std::sync::Arc;

use posthaste_engine::Sink;
use posthaste_sinks::open;
use posthaste_testkit::{
    servers::rabbitmq::{Argument, RabbitMqServer},
    sink_suite::{SuiteEvent, WireRecord},
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

    /// The messages of the queue as records, which are taken from it.
    pub(super) fn records(&self) -> Vec<WireRecord> {
        let messages = self.server.client("/").consume(&self.name);
        messages.into_iter().map(read::record).collect()
    }

    /// The messages of the queue, which are taken from it.
    pub(super) fn events(&self) -> Vec<SuiteEvent> {
        let messages = self.server.client("/").consume(&self.name);
        messages.into_iter().map(read::event).collect()
    }
}
