//! The needs of a model checker beside the public interface: to tell states of a
//! [`Pipeline`](crate::Pipeline) apart. Not part of the interface.

use std::any::Any;

use crate::StoredEvent;

/// A part of a description. Two values are the same when their descriptions are.
pub enum Part<'a> {
    /// Any number.
    Number(u64),
    /// Any text.
    Text(&'a str),
    /// An event.
    Event(&'a StoredEvent),
    /// A place of a store.
    Place(&'a (dyn Any + Send + Sync)),
    /// The last event of a place's page that counts as passed.
    Seq(i64),
}

/// Takes a description, part by part.
pub type Out<'a> = &'a mut dyn FnMut(Part<'_>);

/// A number that fits any counter.
pub(crate) fn number(n: usize) -> Part<'static> {
    Part::Number(n as u64)
}
