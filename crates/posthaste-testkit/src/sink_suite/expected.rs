//! What each sink must be able to do.

use posthaste_engine::{Cause, FenceKind, KeyOrder, RejectionKind};

/// The capabilities of one sink: what it must declare, and what its fixture must offer.
#[derive(Debug, Clone, Copy)]
pub struct Expected {
    /// The sink's name here: its kind, and its mode if it has several.
    pub sink: &'static str,
    /// [`SinkInfo::kind`](posthaste_engine::SinkInfo::kind).
    pub kind: &'static str,
    /// Declared order.
    pub key_order: KeyOrder,
    /// Declared fence.
    pub fence: FenceKind,
    /// What an aborted lane left may still arrive until the next lane has taken over.
    pub fenced_by_successor: bool,
    /// Declared: one lane at a time.
    pub single_lane: bool,
    /// The receiver suppresses a repeated id.
    pub deduplicates: bool,
    /// The fixture reads what arrived.
    pub readable: bool,
    /// The protocol keeps the order of headers; elsewhere the values of each name keep theirs.
    pub headers_in_order: bool,
    /// The fixture takes the destination away; then records end with this cause.
    pub breaks_with: Option<Cause>,
    /// The fixture keeps the destination from taking anything, without breaking it.
    pub stalls: bool,
    /// The fixture makes an event that is rejected so.
    pub rejects: Option<RejectionKind>,
}

/// One row for each sink. A sink cannot leave out a case by declaring less than its row.
pub const EXPECTED: &[Expected] = &[
    Expected {
        sink: "file",
        kind: "file",
        key_order: KeyOrder::Pipelined,
        fence: FenceKind::Exact,
        fenced_by_successor: false,
        single_lane: true,
        deduplicates: false,
        readable: true,
        headers_in_order: true,
        breaks_with: Some(Cause::Misconfigured),
        // A local device that takes nothing cannot be made without a kernel module.
        stalls: false,
        rejects: Some(RejectionKind::TooLarge),
    },
    Expected {
        sink: "stdout",
        kind: "stdout",
        key_order: KeyOrder::Pipelined,
        fence: FenceKind::Exact,
        fenced_by_successor: false,
        single_lane: true,
        deduplicates: false,
        readable: true,
        headers_in_order: true,
        breaks_with: Some(Cause::Connection),
        stalls: true,
        rejects: Some(RejectionKind::Invalid),
    },
    Expected {
        sink: "kafka",
        kind: "kafka",
        key_order: KeyOrder::Pipelined,
        fence: FenceKind::Timing,
        fenced_by_successor: false,
        single_lane: false,
        deduplicates: false,
        readable: true,
        headers_in_order: true,
        breaks_with: Some(Cause::Connection),
        stalls: true,
        rejects: Some(RejectionKind::TooLarge),
    },
    Expected {
        sink: "kafka-transactional",
        kind: "kafka",
        key_order: KeyOrder::Pipelined,
        fence: FenceKind::Exact,
        fenced_by_successor: true,
        single_lane: false,
        deduplicates: true,
        readable: true,
        headers_in_order: true,
        breaks_with: Some(Cause::Connection),
        stalls: true,
        rejects: Some(RejectionKind::TooLarge),
    },
    Expected {
        sink: "null",
        kind: "null",
        key_order: KeyOrder::Pipelined,
        fence: FenceKind::Exact,
        fenced_by_successor: false,
        single_lane: false,
        deduplicates: false,
        // It keeps nothing, cannot be away, and refuses nothing.
        readable: false,
        headers_in_order: true,
        breaks_with: None,
        stalls: false,
        rejects: None,
    },
    Expected {
        sink: "rabbitmq",
        kind: "rabbitmq",
        // A message that is returned or refused does not stop those behind it.
        key_order: KeyOrder::OneAtATime,
        fence: FenceKind::Timing,
        fenced_by_successor: false,
        single_lane: false,
        deduplicates: false,
        readable: true,
        // Headers are a table.
        headers_in_order: false,
        breaks_with: Some(Cause::Connection),
        stalls: true,
        rejects: Some(RejectionKind::Unroutable),
    },
    Expected {
        sink: "memory",
        kind: "memory",
        key_order: KeyOrder::Pipelined,
        fence: FenceKind::Exact,
        fenced_by_successor: false,
        single_lane: false,
        deduplicates: false,
        readable: true,
        headers_in_order: true,
        breaks_with: Some(Cause::Connection),
        // It answers within `submit`.
        stalls: false,
        rejects: Some(RejectionKind::TooLarge),
    },
];

/// What a case asks of a sink.
#[derive(Debug, Clone, Copy)]
pub(super) enum Need {
    Readable,
    Breakable,
    Stallable,
    Rejecting,
    ExactFence,
    Pipelined,
    Deduplicating,
}

impl Need {
    /// Why a sink with these capabilities is excused from the case.
    pub(super) fn lacking(self, expected: &Expected) -> Option<&'static str> {
        let (present, reason) = match self {
            Self::Readable => (
                expected.readable,
                "it keeps nothing that could be read again",
            ),
            Self::Breakable => (
                expected.breaks_with.is_some(),
                "its destination cannot be away",
            ),
            Self::Stallable => (expected.stalls, "its destination cannot be made to stall"),
            Self::Rejecting => (expected.rejects.is_some(), "it rejects no event"),
            Self::ExactFence => (
                expected.fence == FenceKind::Exact,
                "only time fences its lanes",
            ),
            Self::Pipelined => (
                expected.key_order == KeyOrder::Pipelined,
                "it is sent one event of a key at a time",
            ),
            Self::Deduplicating => (
                expected.deduplicates,
                "its destination suppresses no repeats",
            ),
        };
        (!present).then_some(reason)
    }
}
