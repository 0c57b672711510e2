use std::collections::VecDeque;

/// Batches that were submitted and not wholly answered, oldest first: since when, and how many
/// records are open. A number names a batch for good. Time is whatever its user measures in.
#[derive(Debug, Clone)]
pub struct Batches<T> {
    first: u64,
    open: VecDeque<(T, usize)>,
}

impl<T> Default for Batches<T> {
    fn default() -> Self {
        Self {
            first: 0,
            open: VecDeque::new(),
        }
    }
}

impl<T: Copy> Batches<T> {
    /// The number that the next batch gets.
    #[must_use]
    pub fn next(&self) -> u64 {
        self.first + self.open.len() as u64
    }

    /// Begins a batch of so many records. Answers its number.
    pub fn begin(&mut self, at: T, records: usize) -> u64 {
        let number = self.next();
        self.open.push_back((at, records));
        number
    }

    /// A record of this batch was answered; a batch that was cleared is passed over.
    pub fn answered(&mut self, batch: u64) {
        let index = batch
            .checked_sub(self.first)
            .and_then(|index| usize::try_from(index).ok());
        if let Some((_, open)) = index.and_then(|index| self.open.get_mut(index)) {
            *open = open.saturating_sub(1);
        }
        while self.open.front().is_some_and(|&(_, open)| open == 0) {
            self.open.pop_front();
            self.first += 1;
        }
    }

    /// When the oldest batch that owes an answer was begun.
    #[must_use]
    pub fn oldest(&self) -> Option<T> {
        self.open.front().map(|&(at, _)| at)
    }

    /// Nothing is open any more.
    pub fn clear(&mut self) {
        self.first = self.next();
        self.open.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_unanswered_batch_counts() {
        let mut batches = Batches::default();
        let first = batches.begin(0, 2);
        let second = batches.begin(1, 1);
        batches.answered(second);
        assert_eq!(batches.oldest(), Some(0));
        batches.answered(first);
        assert_eq!(batches.oldest(), Some(0));
        batches.answered(first);
        assert_eq!(batches.oldest(), None);
        let third = batches.begin(2, 1);
        assert_eq!(batches.oldest(), Some(2));
        batches.answered(third);
        assert_eq!(batches.oldest(), None);
    }

    #[test]
    fn late_answers_to_a_cleared_batch_say_nothing() {
        let mut batches = Batches::default();
        let cleared = batches.begin(0, 1);
        batches.clear();
        let next = batches.begin(1, 1);
        assert_ne!(cleared, next);
        batches.answered(cleared);
        assert_eq!(batches.oldest(), Some(1));
    }
}
