//! Streams of a test's own.

use std::sync::Arc;

use posthaste_engine::Sink;
use posthaste_sinks::open;
use posthaste_testkit::{
    servers::moto::MotoServer,
    sink_suite::{SuiteEvent, WireRecord},
    unique_name,
};

use crate::lines;

/// A stream of two shards.
pub(super) struct Place<'a> {
    pub(super) server: &'a MotoServer,
    pub(super) name: String,
}

impl<'a> Place<'a> {
    pub(super) fn new(server: &'a MotoServer) -> Self {
        let place = Self {
            server,
            name: unique_name("sink"),
        };
        place.make();
        place
    }

    pub(super) fn make(&self) {
        self.server.create_stream(&self.name, 2);
    }

    pub(super) fn sink(&self) -> Arc<dyn Sink> {
        self.sink_with("")
    }

    /// The sink of the stream, with more options, each with an `&` before it.
    pub(super) fn sink_with(&self, options: &str) -> Arc<dyn Sink> {
        let Self { server, name } = self;
        open(&format!("kinesis://{name}?{}{options}", server.options())).unwrap()
    }

    pub(super) fn events(&self) -> Vec<SuiteEvent> {
        let records = self.server.stream_records(&self.name);
        let lines: Vec<u8> = records.into_iter().flat_map(|record| record.data).collect();
        // One after the other they are a file.
        lines::parse_all(&lines)
    }

    pub(super) fn records(&self) -> Vec<WireRecord> {
        let records = self.server.stream_records(&self.name);
        records
            .iter()
            .map(|record| lines::record(&record.data))
            .collect()
    }
}
