//! Streams of a test's own.

use std::sync::Arc;

use posthaste_engine::{Cause, LaneScope, LaneSpec, Outcome, Partitions, RejectionKind, Sink};
use posthaste_sinks::open;
use posthaste_testkit::{
    servers::redis::{RedisServer, Reply},
    sink_suite::{SuiteEvent, WireRecord, lane_spec},
    unique_name,
};

use super::read;

/// Streams whose keys begin with its name. Keys that have it are removed when it is dropped.
pub(super) struct Place<'a> {
    server: &'a RedisServer,
    pub(super) name: String,
}

impl<'a> Place<'a> {
    pub(super) fn new(server: &'a RedisServer) -> Self {
        let name = unique_name("sink");
        Self { server, name }
    }

    /// The sink's address at a server's: a stream for each topic.
    pub(super) fn on(&self, url: &str) -> String {
        format!("{url}?stream={}:{{topic}}", self.name)
    }

    pub(super) fn sink(&self) -> Arc<dyn Sink> {
        open(&self.on(&self.server.url())).unwrap()
    }

    /// The stream of this topic; the place's only one, where that is empty.
    pub(super) fn stream(&self, topic: &str) -> String {
        match topic {
            "" => self.name.clone(),
            topic => format!("{}:{topic}", self.name),
        }
    }

    /// All keys that the name is part of.
    pub(super) fn keys(&self) -> Vec<String> {
        let pattern = format!("*{}*", self.name);
        let Reply::List(Some(keys)) = self.server.client().ask(&["KEYS", &pattern]) else {
            panic!("no keys");
        };
        let keys = keys.into_iter().map(|key| match key {
            Reply::Bytes(Some(key)) => String::from_utf8(key).unwrap(),
            other => panic!("{other:?}"),
        });
        let mut keys: Vec<_> = keys.collect();
        keys.sort_unstable();
        keys
    }

    /// How many entries the stream of a topic has.
    pub(super) fn count(&self, topic: &str) -> i64 {
        let stream = self.stream(topic);
        self.server.client().number(&["XLEN", &stream])
    }

    /// The records of the only stream.
    pub(super) fn records(&self) -> Vec<WireRecord> {
        let entries = self.server.client().entries(&self.name);
        entries.into_iter().map(read::record).collect()
    }

    /// The events of the stream of a topic.
    pub(super) fn events(&self, topic: &str) -> Vec<SuiteEvent> {
        let entries = self.server.client().entries(&self.stream(topic));
        entries.into_iter().map(read::event).collect()
    }
}

/// A lane of this scope, of which each has a greater token.
pub(super) fn spec(scope: &Arc<LaneScope>, epoch: u64, number: u64) -> LaneSpec {
    LaneSpec {
        scope: Arc::clone(scope),
        epoch,
        ..lane_spec(number)
    }
}

/// The scope of another relay that owns these partitions of the same destination.
pub(super) fn other_owner(scope: &LaneScope, partitions: Partitions) -> Arc<LaneScope> {
    let other = lane_spec(0).scope;
    Arc::new(LaneScope {
        registration: other.registration,
        partitions,
        ..scope.clone()
    })
}

/// Expects that the destination is at fault: why, and the words.
pub(super) fn cause(outcome: &Outcome) -> (Cause, &str) {
    match outcome {
        Outcome::Unavailable(why) => (why.cause, &why.reason),
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
pub(super) fn put_off(outcome: &Outcome) -> &str {
    match outcome {
        Outcome::Later(why) => &why.reason,
        other => panic!("{other:?}"),
    }
}
