//! Queues of a test's own.

use std::sync::{Arc, Mutex};

use posthaste_engine::Sink;
use posthaste_sinks::open;
use posthaste_testkit::{
    servers::sqs::{Message, SqsServer},
    sink_suite::{SuiteEvent, WireRecord},
    unique_name,
};

use crate::aws::read;

/// A queue, and the messages that were taken from it.
pub(super) struct Place<'a> {
    server: &'a SqsServer,
    pub(super) name: String,
    url: String,
    taken: Mutex<Vec<Message>>,
}

impl<'a> Place<'a> {
    /// A queue whose name ends so.
    pub(super) fn new(server: &'a SqsServer, suffix: &str) -> Self {
        let name = unique_name("sink") + suffix;
        let url = server.client().create_queue(&name, &[]);
        Self {
            server,
            name,
            url,
            taken: Mutex::default(),
        }
    }

    /// The sink of the queue.
    pub(super) fn sink(&self) -> Arc<dyn Sink> {
        open(&format!("sqs://{}?{}", self.name, self.server.options())).unwrap()
    }

    pub(super) fn delete(&self) {
        self.server.client().delete_queue(&self.url);
    }

    pub(super) fn make_again(&self) {
        let _ = self.server.client().create_queue(&self.name, &[]);
    }

    /// How many messages the queue has and had.
    pub(super) fn trace(&self) -> String {
        let told = self.server.client().attributes(&self.url);
        let taken = self.taken.lock().unwrap().len();
        let left = &told["ApproximateNumberOfMessages"];
        format!("{left} messages behind {taken}")
    }

    /// All that has come, in its order.
    fn messages(&self) -> Vec<Message> {
        let mut taken = self.taken.lock().unwrap();
        taken.extend(self.server.client().drain(&self.url));
        taken.clone()
    }

    pub(super) fn events(&self) -> Vec<SuiteEvent> {
        self.messages().into_iter().map(read::event).collect()
    }

    pub(super) fn records(&self) -> Vec<WireRecord> {
        self.messages().into_iter().map(read::record).collect()
    }
}
