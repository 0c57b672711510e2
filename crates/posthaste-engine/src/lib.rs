//! The rules of Posthaste: the contracts of stores and sinks, and every decision of the relay as a
//! pure state machine.
//!
//! Nothing here reads a clock, draws a random number or opens a socket: a moment is an argument
//! ([`Moment`]), a jitter is an argument, I/O stays behind [`Store`] and [`Sink`]. That wall is
//! what lets model, simulation and production run the same code.

mod backoff;
mod batches;
mod check;
mod event;
mod failed_keys;
mod lane_records;
#[cfg(feature = "memory-tables")]
#[doc(hidden)]
pub mod memory_tables;
#[cfg(feature = "model")]
#[doc(hidden)]
pub mod model;
mod order;
mod outcome;
mod partitions;
mod pipeline;
mod plug_in;
mod record;
mod route;
mod router;
#[doc(hidden)]
pub mod rule;
mod sharing;
mod sink;
mod store;
mod template;
mod time;
mod wire_id;

pub use backoff::Backoff;
pub use batches::Batches;
pub use check::{CheckReport, CheckedPart, Fact, Finding, Severity};
pub use event::{EventRef, Field, HeaderIter, PageBuilder, PageFull, StoredEvent, StoredFields};
pub use failed_keys::FailedKeys;
pub use lane_records::{Decision, LaneRecords, NextSlot, VerdictBatch, WaitingRecord};
pub use order::{KEY_AND_TOPIC_TARGETS, ORDER_KEY_SEPARATOR, OrderBy};
pub use outcome::{
    Acceptance, Cause, Outcome, Postponement, Rejection, RejectionKind, Unavailability, Verdict,
};
pub use partitions::Partitions;
pub use pipeline::{
    BreakerState, Change, Counts, HeldPlace, Pipeline, PipelineLimits, Refused, SideStep,
};
pub use plug_in::{
    AddressForm, Feature, NoSuchScheme, OptionDefault, OptionSpec, OptionValue, PlugIn, SinkMode,
    is_plain_name, nearest, parse_duration, parse_file_mode, shown,
};
pub use record::{GivenHeader, OwnHeaders, Record};
pub use route::{
    DeliveryPolicy, DestinationRoutes, OnDead, Route, RouteAction, RouteDecision, RouteError,
    RouteMatch, Routes,
};
pub use router::Router;
pub use sharing::{ShareStep, Sharing};
pub use sink::{
    DedupWindow, Deduplication, FenceKind, KeyOrder, Lane, LaneScope, LaneSpec, Sink, SinkError,
    SinkInfo, StoredProgress, TopicParts,
};
pub use store::*;
pub use template::{MissingField, Template, TemplateError};
pub use time::Moment;
pub use wire_id::{ForeignId, ForeignIdError, WireIdRoom, wire_id_room};
