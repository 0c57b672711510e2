//! All memories that relays have come to, each once, and where each step led from them: millions of
//! states share a few thousand.

use std::{
    collections::HashMap,
    hash::Hash,
    sync::{Arc, Mutex, PoisonError},
};

use posthaste_stores::postgres::model::{Position, Snapshot};

use crate::{
    database::Event,
    relay::{Answered, Bounds, Found, Memory},
};

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Step {
    Read(Snapshot),
    Answer(Answered),
    Submit,
    Accepted(u64),
    Failed(u64, Vec<u64>),
    Cut,
    BeginAdvance,
    Advanced,
}

/// Memories that are known at a time: each takes some kilobytes.
const KNOWN_MAX: usize = 100_000;

/// A ticket and an event for each record.
type Records = Vec<(u64, Event)>;

/// Where a step leads, and the records that it submits; none: nowhere.
type To = Option<(Arc<Memory>, Records)>;

#[derive(Debug, Default)]
struct Known {
    /// By what tells them.
    memories: HashMap<u64, Arc<Memory>>,
    steps: HashMap<(u64, Step), To>,
}

/// All memories that relays have come to.
#[derive(Debug, Clone, Default)]
pub struct Memories(Arc<Mutex<Known>>);

impl Memories {
    fn step(
        &self,
        from: &Memory,
        step: Step,
        make: impl FnOnce(&Memory, &Step) -> Option<(Memory, Records)>,
    ) -> To {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let at = (from.name(), step);
        if let Some(to) = known.steps.get(&at) {
            return to.clone();
        }
        let to = make(from, &at.1).map(|(memory, records)| (known.keep(memory), records));
        known.steps.insert(at, to.clone());
        to
    }

    fn only(
        &self,
        from: &Memory,
        step: Step,
        make: impl FnOnce(&Memory, &Step) -> Option<Memory>,
    ) -> Option<Arc<Memory>> {
        let made = |from: &Memory, step: &Step| make(from, step).map(|memory| (memory, Vec::new()));
        self.step(from, step, made).map(|(memory, _)| memory)
    }
}

impl Memories {
    /// [`Memory::open`].
    #[must_use]
    pub fn open(
        &self,
        bounds: Bounds,
        stored: &Position,
        proven: i64,
        found: &Found,
    ) -> Arc<Memory> {
        self.keep(Memory::open(bounds, stored, proven, found))
    }

    /// The one of its kind.
    #[must_use]
    pub fn keep(&self, memory: Memory) -> Arc<Memory> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.keep(memory)
    }

    /// [`Memory::begin_read`].
    #[must_use]
    pub fn begin_read(&self, from: &Memory, snapshot: Snapshot) -> Option<Arc<Memory>> {
        self.only(from, Step::Read(snapshot), |from, step| match step {
            Step::Read(snapshot) => from.begin_read(snapshot.clone()),
            _ => None,
        })
    }

    /// [`Memory::answer`].
    #[must_use]
    pub fn answer(&self, from: &Memory, answered: Answered) -> Option<Arc<Memory>> {
        self.only(from, Step::Answer(answered), |from, step| match step {
            Step::Answer(answered) => from.answer(answered),
            _ => None,
        })
    }

    /// [`Memory::submit`].
    #[must_use]
    pub fn submit(&self, from: &Memory) -> Option<(Arc<Memory>, Records)> {
        self.step(from, Step::Submit, |from, _| from.submit())
    }

    /// [`Memory::accepted`].
    #[must_use]
    pub fn accepted(&self, from: &Memory, ticket: u64) -> Option<Arc<Memory>> {
        self.only(from, Step::Accepted(ticket), |from, _| {
            Some(from.accepted(ticket))
        })
    }

    /// [`Memory::failed`].
    #[must_use]
    pub fn failed(&self, from: &Memory, ticket: u64, behind: Vec<u64>) -> Option<Arc<Memory>> {
        let step = Step::Failed(ticket, behind);
        self.only(from, step, |from, step| match step {
            Step::Failed(ticket, behind) => Some(from.failed(*ticket, behind)),
            _ => None,
        })
    }

    /// [`Memory::cut`].
    #[must_use]
    pub fn cut(&self, from: &Memory) -> Option<Arc<Memory>> {
        self.only(from, Step::Cut, |from, _| Some(from.cut()))
    }

    /// [`Memory::begin_advance`].
    #[must_use]
    pub fn begin_advance(&self, from: &Memory) -> Option<Arc<Memory>> {
        self.only(from, Step::BeginAdvance, |from, _| from.begin_advance())
    }

    /// [`Memory::advanced`].
    #[must_use]
    pub fn advanced(&self, from: &Memory) -> Option<Arc<Memory>> {
        self.only(from, Step::Advanced, |from, _| Some(from.advanced()))
    }
}

impl Known {
    fn keep(&mut self, memory: Memory) -> Arc<Memory> {
        // States that are to be explored keep theirs.
        if self.memories.len() >= KNOWN_MAX {
            *self = Self::default();
        }
        let known = self.memories.entry(memory.name());
        Arc::clone(known.or_insert_with(|| Arc::new(memory)))
    }
}
