//! Topics of a test's own.

use std::sync::Arc;

use posthaste_engine::Sink;
use posthaste_sinks::open;
use posthaste_testkit::{
    servers::moto::MotoServer,
    sink_suite::{SuiteEvent, WireRecord},
    unique_name,
};

use crate::aws::read;

/// A topic, and a queue with what was published there.
pub(super) struct Place<'a> {
    server: &'a MotoServer,
    pub(super) name: String,
}

impl<'a> Place<'a> {
    /// A topic whose name ends so.
    pub(super) fn new(server: &'a MotoServer, suffix: &str) -> Self {
        let name = unique_name("sink") + suffix;
        server.create_topic(&name);
        Self { server, name }
    }

    /// The sink of the topic, with more options, each with an `&` before it.
    pub(super) fn sink_with(&self, options: &str) -> Arc<dyn Sink> {
        let Self { server, name } = self;
        let url = format!("sns://{}?{}{options}", server.arn(name), server.options());
        open(&url).unwrap()
    }

    pub(super) fn events(&self) -> Vec<SuiteEvent> {
        let messages = self.server.messages(&self.name);
        messages.into_iter().map(read::event).collect()
    }

    pub(super) fn records(&self) -> Vec<WireRecord> {
        let messages = self.server.messages(&self.name);
        messages.into_iter().map(read::record).collect()
    }
}
