//! The abilities that each sink must have.

use posthaste_engine::{Cause, Deduplication, FenceKind, KeyOrder, RejectionKind, SinkMode};

/// The capabilities of one sink: what it must declare, and what its fixture must offer. A sink
/// cannot leave out a case by declaring less.
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
    /// Records of an aborted lane may still arrive until the next lane has taken over.
    pub fenced_by_successor: bool,
    /// Declared: one lane at a time.
    pub single_lane: bool,
    /// Declared: requests of a lane under way at once.
    pub requests_max: Option<u32>,
    /// Declared: bytes of the largest value.
    pub event_bytes_max: Option<u64>,
    /// Declared: the receiver suppresses a repeated id.
    pub deduplication: Option<Deduplication>,
    /// The receiver says of a repeat that it is one.
    pub tells_repeats: bool,
    /// The receiver gives each record a number that grows with each record of a key.
    pub receipts: bool,
    /// Topics have three partitions, of which a record may name one.
    pub partitions: bool,
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

impl Expected {
    /// The promises of a sink in one of its modes. About the fixture it says the usual, which a row
    /// changes: what arrived can be read, the destination is always there, refuses nothing,
    /// has no limit for all events, gives no receipts and knows no partitions.
    #[must_use]
    pub fn of(kind: &'static str, promised: &SinkMode) -> Self {
        Self {
            sink: promised.name,
            kind,
            key_order: promised.key_order,
            fence: promised.fence,
            fenced_by_successor: false,
            single_lane: promised.single_lane,
            requests_max: promised.requests_max,
            event_bytes_max: None,
            deduplication: promised.deduplication,
            tells_repeats: true,
            receipts: false,
            partitions: false,
            readable: true,
            headers_in_order: true,
            breaks_with: None,
            stalls: false,
            rejects: None,
        }
    }
}

/// The demands of a case on a sink.
#[derive(Debug, Clone, Copy)]
pub(super) enum Need {
    Readable,
    Breakable,
    Stallable,
    Rejecting,
    ExactFence,
    Pipelined,
    Deduplicating,
    Limited,
    Roomy,
}

/// Bytes that a sink takes unless its protocol has a lower limit for good.
const ROOM: u64 = 10_000_000;

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
            Self::Limited => (
                expected.event_bytes_max.is_some(),
                "no limit of its own is the same for all events",
            ),
            Self::Roomy => (
                expected.event_bytes_max.is_none_or(|max| max >= ROOM),
                "it takes no event of ten megabytes",
            ),
            Self::Deduplicating => (
                expected.deduplication.is_some(),
                "its destination suppresses no repeats",
            ),
        };
        (!present).then_some(reason)
    }
}
