//! The records in flight of one lane.

use super::Owed;

/// Records in flight, by numbers that are used again.
#[derive(Debug)]
pub(super) struct Slots<F> {
    slots: Vec<Option<(Owed, F)>>,
    free: Vec<usize>,
}

impl<F> Default for Slots<F> {
    fn default() -> Self {
        Self {
            slots: Vec::new(),
            free: Vec::new(),
        }
    }
}

impl<F> Slots<F> {
    pub(super) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// The number that the next record gets.
    pub(super) fn next(&self) -> usize {
        self.free.last().copied().unwrap_or(self.slots.len())
    }

    pub(super) fn add(&mut self, owed: Owed, note: F) {
        match self.free.pop() {
            Some(slot) => self.slots[slot] = Some((owed, note)),
            None => self.slots.push(Some((owed, note))),
        }
    }

    pub(super) fn get(&self, slot: usize) -> Option<&F> {
        let (_, note) = self.slots.get(slot)?.as_ref()?;
        Some(note)
    }

    pub(super) fn notes(&self) -> impl Iterator<Item = &F> {
        self.slots.iter().flatten().map(|(_, note)| note)
    }

    pub(super) fn remove(&mut self, slot: usize) -> Option<(Owed, F)> {
        let removed = self.slots.get_mut(slot)?.take()?;
        self.free.push(slot);
        Some(removed)
    }

    /// Takes all, in the order of submission.
    pub(super) fn take_all(&mut self) -> Vec<(Owed, F)> {
        let mut all: Vec<_> = self.slots.drain(..).flatten().collect();
        all.sort_unstable_by_key(|(owed, _)| owed.number);
        self.free.clear();
        all
    }
}
