//! The rows of the database about refused events: their copies and the markers of their keys.

use std::sync::Arc;

use posthaste_stores::postgres::model::{Number, Position};

use crate::database::Event;

/// The copy of a refused event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Copied {
    pub(crate) event: Event,
    pub(crate) seq: i64,
    pub(crate) state: CopyState,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CopyState {
    /// It waits for an operator.
    Dead,
    /// It is to be tried again.
    Due,
    /// Delivered, or left behind by an operator.
    Settled,
}

/// Parked events and the markers of their keys.
#[derive(Debug, Clone, Default)]
pub(crate) struct Aside {
    /// By event.
    pub(crate) copies: Vec<Copied>,
    /// By key.
    pub(crate) markers: Vec<(u8, Arc<Position>)>,
}

impl Aside {
    pub(crate) fn marker(&self, key: u8) -> Option<&Position> {
        let mut markers = self.markers.iter();
        markers.find(|(of, _)| *of == key).map(|(_, at)| &**at)
    }

    pub(crate) fn set_marker(&mut self, key: u8, at: Position) {
        self.markers.retain(|(of, _)| *of != key);
        self.markers.push((key, Arc::new(at)));
        self.markers.sort_by_key(|(of, _)| *of);
    }

    pub(crate) fn copy_mut(&mut self, event: Event) -> Option<&mut Copied> {
        self.copies.iter_mut().find(|copy| copy.event == event)
    }

    /// Copies that wait, for their next attempt or for an operator.
    pub(crate) fn waiting(&self) -> impl Iterator<Item = &Copied> {
        let copies = self.copies.iter();
        copies.filter(|copy| copy.state != CopyState::Settled)
    }

    pub(crate) fn waits(&self, event: Event) -> bool {
        self.waiting().any(|copy| copy.event == event)
    }

    /// Nothing is set aside any more.
    pub(crate) fn is_empty(&self) -> bool {
        self.markers.is_empty() && self.waiting().next().is_none()
    }

    /// Describes copies and markers; `name` tells an event.
    pub(crate) fn describe(&self, name: &impl Fn(Event) -> Number, numbers: &mut Vec<Number>) {
        let Self { copies, markers } = self;
        numbers.push(Number::Plain(copies.len() as u64));
        for Copied { event, seq, state } in copies {
            let state = Number::Plain(*state as u64);
            numbers.extend([name(*event), state, Number::Seq(*seq)]);
        }
        for (key, at) in markers {
            numbers.push(Number::Plain((*key).into()));
            at.describe(&mut |number| numbers.push(number));
        }
    }
}
