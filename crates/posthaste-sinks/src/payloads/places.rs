//! The places of a destination whose large payloads lie elsewhere.

use std::sync::Arc;

use posthaste_engine::{Record, TopicParts};

/// The part of each topic to which events with stored payloads belong: they wait for the storage,
/// and others do not.
const STORED: u32 = u32::MAX;
const STORED_NAME: &str = "claim-check";

/// The parts of the sink, and another one for what is stored.
#[derive(Debug)]
pub(super) struct Places {
    pub(super) inner: Option<Arc<dyn TopicParts>>,
    /// Larger payloads are stored.
    pub(super) bytes_max: usize,
}

impl TopicParts for Places {
    fn part(&self, record: &Record) -> Option<u32> {
        match record
            .value()
            .is_some_and(|value| value.len() > self.bytes_max)
        {
            true => Some(STORED),
            false => self.inner.as_ref()?.part(record),
        }
    }

    fn knows(&self, topic: &str) -> bool {
        self.inner.as_ref().is_none_or(|inner| inner.knows(topic))
    }

    fn name(&self, part: u32) -> String {
        match part {
            STORED => STORED_NAME.to_owned(),
            part => part.to_string(),
        }
    }

    fn named(&self, name: &str) -> Option<u32> {
        match name {
            STORED_NAME => Some(STORED),
            name => name.parse().ok(),
        }
    }
}
