//! Which of a destination's partitions.

use std::fmt;

/// Slots of a key's hash ([`crate::StoredEvent::slot`]).
pub(crate) const SLOTS: u32 = 1 << 14;

/// A set of a destination's partitions. A partition is a range of slots of the keys' hash; a
/// destination has a power of two of them.
#[derive(Clone, PartialEq, Eq)]
pub struct Partitions {
    contained: Box<[bool]>,
}

impl Partitions {
    /// Partitions of a destination at the most.
    pub const COUNT_MAX: u16 = 4096;

    /// None of `count` partitions.
    ///
    /// # Errors
    /// A count that is not a power of two up to [`Self::COUNT_MAX`], in words.
    pub fn none_of(count: u16) -> Result<Self, String> {
        if !count.is_power_of_two() || count > Self::COUNT_MAX {
            let max = Self::COUNT_MAX;
            return Err(format!(
                "{count} partitions: a power of two up to {max} is needed"
            ));
        }
        let contained = vec![false; usize::from(count)].into();
        Ok(Self { contained })
    }

    /// All of `count` partitions.
    ///
    /// # Errors
    /// As [`none_of`](Self::none_of).
    pub fn all_of(count: u16) -> Result<Self, String> {
        let mut all = Self::none_of(count)?;
        all.contained.fill(true);
        Ok(all)
    }

    /// How many partitions the destination has.
    #[must_use]
    pub fn count(&self) -> u16 {
        u16::try_from(self.contained.len()).unwrap_or(Self::COUNT_MAX)
    }

    /// How many of them are in the set.
    #[must_use]
    pub fn len(&self) -> u16 {
        let contained = self.contained.iter().filter(|&&contained| contained);
        u16::try_from(contained.count()).unwrap_or(Self::COUNT_MAX)
    }

    /// Whether none is in the set.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        !self.contained.contains(&true)
    }

    /// Whether the destination's partitions are all in the set.
    #[must_use]
    pub fn is_all(&self) -> bool {
        !self.contained.contains(&false)
    }

    /// Puts a partition into the set. False: the destination has no such partition.
    pub fn insert(&mut self, partition: u16) -> bool {
        let place = self.contained.get_mut(usize::from(partition));
        place.map(|contained| *contained = true).is_some()
    }

    /// Whether a partition is in the set.
    #[must_use]
    pub fn contains(&self, partition: u16) -> bool {
        self.contained.get(usize::from(partition)) == Some(&true)
    }

    /// The partition of a slot.
    #[must_use]
    pub fn partition_of(&self, slot: u16) -> u16 {
        let partition = u32::from(slot) * u32::from(self.count()) / SLOTS;
        u16::try_from(partition).unwrap_or(u16::MAX)
    }

    /// Whether the partition of a slot is in the set.
    #[must_use]
    pub fn contains_slot(&self, slot: u16) -> bool {
        self.contains(self.partition_of(slot))
    }

    /// The partitions in the set, in order.
    pub fn iter(&self) -> impl Iterator<Item = u16> + '_ {
        (0..self.count()).filter(|&partition| self.contains(partition))
    }

    /// For each of the destination's partitions in order, whether it is in the set.
    #[must_use]
    pub fn as_slice(&self) -> &[bool] {
        &self.contained
    }
}

impl fmt::Debug for Partitions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {} partitions", self.len(), self.count())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_cut_into_equal_ranges() {
        let mut some = Partitions::none_of(64).unwrap();
        assert!(some.is_empty() && some.insert(0) && some.insert(63) && !some.insert(64));
        assert_eq!((some.len(), some.count(), some.is_all()), (2, 64, false));
        let of = |slot| some.partition_of(slot);
        assert_eq!([of(0), of(255), of(256), of(16_383)], [0, 0, 1, 63]);
        assert!(some.contains_slot(255) && !some.contains_slot(256) && some.contains_slot(16_383));
        assert_eq!(some.iter().collect::<Vec<_>>(), [0, 63]);
    }

    #[test]
    fn only_powers_of_two_are_counts() {
        for count in [1, 2, 4096] {
            assert!(Partitions::all_of(count).unwrap().is_all());
        }
        for count in [0, 3, 8192] {
            assert!(Partitions::none_of(count).is_err(), "{count}");
        }
    }
}
