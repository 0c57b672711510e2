//! The sink `null`: its fixture.

use std::sync::Arc;

use async_trait::async_trait;
use posthaste_engine::Sink;
use posthaste_sinks::NullSink;
use posthaste_testkit::sink_suite::{Expected, Fixture, Row};

use crate::expected;

pub(crate) fn rows() -> Vec<Row> {
    vec![Row {
        expected: Expected {
            // It keeps nothing, cannot be away, and refuses nothing.
            readable: false,
            ..expected("null")
        },
        fixture: null,
    }]
}

struct NullFixture(Arc<NullSink>);

fn null() -> Box<dyn Fixture> {
    Box::new(NullFixture(Arc::default()))
}

#[async_trait]
impl Fixture for NullFixture {
    fn sink(&self) -> Arc<dyn Sink> {
        Arc::clone(&self.0) as Arc<dyn Sink>
    }

    async fn trace(&self) -> String {
        format!("{:?}", self.0.taken())
    }
}
