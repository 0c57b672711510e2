//! An address of a test's own.

use std::sync::Arc;

use posthaste_engine::{Outcome, Postponement, RejectionKind, Sink, Unavailability};
use posthaste_sinks::open;
use posthaste_testkit::{
    servers::artemis::{ArtemisMessage, ArtemisServer},
    sink_suite::{SuiteEvent, WireRecord},
    unique_name,
};

use super::read;

/// An address with a queue.
pub(super) struct Place<'a> {
    server: &'a ArtemisServer,
    pub(super) name: String,
}

impl<'a> Place<'a> {
    pub(super) fn new(server: &'a ArtemisServer) -> Self {
        Self::named(server, "auto.")
    }

    /// With such a beginning of its name, which says what its broker does.
    pub(super) fn named(server: &'a ArtemisServer, start: &str) -> Self {
        let name = format!("{start}{}", unique_name("sink"));
        server.client().make(&name);
        Self { server, name }
    }

    /// The sink's address: this one at a broker's.
    pub(super) fn on(&self, url: &str) -> String {
        format!("{url}/{}", self.name)
    }

    pub(super) fn sink(&self) -> Arc<dyn Sink> {
        open(&self.on(&self.server.url())).unwrap()
    }

    pub(super) fn messages(&self) -> Vec<ArtemisMessage> {
        self.server.client().messages(&self.name)
    }

    pub(super) fn count(&self) -> usize {
        self.messages().len()
    }

    pub(super) fn records(&self) -> Vec<WireRecord> {
        self.messages().into_iter().map(read::record).collect()
    }

    pub(super) fn events(&self) -> Vec<SuiteEvent> {
        self.messages().into_iter().map(read::event).collect()
    }
}

/// Expects that the destination is at fault.
pub(super) fn fault(outcome: &Outcome) -> &Unavailability {
    match outcome {
        Outcome::Unavailable(why) => why,
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

pub(super) fn rejection(outcome: &Outcome) -> (RejectionKind, &str) {
    match outcome {
        Outcome::Rejected(why) => (why.kind, &why.reason),
        other => panic!("{other:?}"),
    }
}
