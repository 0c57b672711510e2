//! A part of a destination that takes nothing for now, or takes events again.

/// More places than this that take nothing are a destination that takes nothing.
pub(super) const PLACES_MAX: usize = 10_000;

/// A topic, or a part of one that fails alone ([`crate::TopicParts`]), by a hash.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Place(pub(super) u64);
