//! Topics of a test's own, and a subscriber to them.

use std::sync::{Arc, Mutex};

use posthaste_engine::{Cause, LaneScope, LaneSpec, Outcome, Postponement, RejectionKind, Sink};
use posthaste_sinks::open;
use posthaste_testkit::{
    servers::mqtt::{MqttClient, MqttMessage, MqttServer},
    sink_suite::{SuiteEvent, WireRecord, lane_spec},
    unique_name,
};

use super::read;

/// Topics that begin with its name.
pub(super) struct Place<'a> {
    server: &'a MqttServer,
    pub(super) name: String,
    subscriber: Mutex<Subscriber>,
}

struct Subscriber {
    client: MqttClient,
    arrived: Vec<MqttMessage>,
}

impl<'a> Place<'a> {
    pub(super) fn new(server: &'a MqttServer) -> Self {
        let name = unique_name("sink");
        let mut client = server.client(&name);
        client.subscribe(&format!("{name}/#"), 1);
        Self {
            server,
            name,
            subscriber: Mutex::new(Subscriber {
                client,
                arrived: Vec::new(),
            }),
        }
    }

    /// The sink's address: these topics at a server's.
    pub(super) fn on(&self, url: &str) -> String {
        format!("{url}?topic={}/{{topic}}", self.name)
    }

    pub(super) fn sink(&self) -> Arc<dyn Sink> {
        self.sink_with("")
    }

    /// The same with more options, each with an `&` before it.
    pub(super) fn sink_with(&self, options: &str) -> Arc<dyn Sink> {
        open(&format!("{}{options}", self.on(&self.server.url()))).unwrap()
    }

    /// The subscriber comes back, after its server did.
    pub(super) fn subscribe_again(&self) {
        self.subscriber.lock().unwrap().client = self.server.client(&self.name);
    }

    /// All messages that have arrived, in their order.
    pub(super) fn messages(&self) -> Vec<MqttMessage> {
        let mut subscriber = self.subscriber.lock().unwrap();
        let messages = subscriber.client.messages(&format!("{}/marker", self.name));
        subscriber.arrived.extend(messages);
        subscriber.arrived.clone()
    }

    /// The records of the messages.
    pub(super) fn records(&self) -> Vec<WireRecord> {
        self.messages().into_iter().map(read::record).collect()
    }

    /// The events of the messages.
    pub(super) fn events(&self) -> Vec<SuiteEvent> {
        let start = format!("{}/", self.name);
        let events = self.messages().into_iter();
        events.map(|message| read::event(message, &start)).collect()
    }
}

/// A lane of this scope.
pub(super) fn spec(scope: &Arc<LaneScope>, number: u64) -> LaneSpec {
    LaneSpec {
        scope: Arc::clone(scope),
        ..lane_spec(number)
    }
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
pub(super) fn put_off(outcome: &Outcome) -> &Postponement {
    match outcome {
        Outcome::Later(why) => why,
        other => panic!("{other:?}"),
    }
}
