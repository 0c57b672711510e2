//! The type of a sink's row.

use std::sync::Arc;

use posthaste_engine::{PlugIn, Sink, SinkError, SinkMode};

use crate::address::Address;

/// The row of a sink. There is one for every sink, also for those that this build left out.
#[derive(Debug)]
pub struct SinkDescriptor {
    /// Names, address, options and feature.
    pub plug_in: PlugIn,
    /// Its promises, for each mode that its options choose.
    pub modes: &'static [SinkMode],
    /// Its promises in words, for the table of README.
    pub summary: SinkSummary,
    /// Whether events go to standard output, which then is not free for anything else.
    pub writes_to_stdout: bool,
    /// Opens it; added where this build lists its sinks. None: the build left it out.
    pub(crate) open: Option<OpenSink>,
}

/// Makes a sink of an address.
pub(crate) type OpenSink = fn(&Address) -> Result<Arc<dyn Sink>, SinkError>;

/// A sink's promises in a few words each, in Markdown.
#[derive(Debug, Clone, Copy)]
pub struct SinkSummary {
    /// The meaning of *accepted*.
    pub accepted: &'static str,
    /// The means that keeps the order of a key.
    pub order: &'static str,
    /// Where consumers find the event's id.
    pub id: &'static str,
    /// The means that keeps a relay out that has lost its right.
    pub fence: &'static str,
}

impl SinkDescriptor {
    /// Whether this build has the sink.
    #[must_use]
    pub fn is_built(&self) -> bool {
        self.open.is_some()
    }
}
