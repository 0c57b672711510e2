//! Records as CloudEvents, for the sinks whose receivers ask for them.

pub(crate) mod attributes;
pub(crate) mod structured;
