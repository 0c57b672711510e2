//! The slots that a read is about, as the statements take them.

use posthaste_engine::Partitions;

const SLOT_BITS: i32 = 14;

/// A bit a partition, and by how much a slot is shifted to give its partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Slots {
    pub(super) mask: Vec<u8>,
    pub(super) shift: i32,
}

impl Slots {
    /// None: all of them, which needs no filter.
    pub(super) fn of(partitions: &Partitions) -> Option<Self> {
        if partitions.is_all() {
            return None;
        }
        let bits = |bits: &[bool]| (0..8).zip(bits).map(|(n, bit)| u8::from(*bit) << n).sum();
        Some(Self {
            mask: partitions.as_slice().chunks(8).map(bits).collect(),
            shift: SLOT_BITS - i32::try_from(partitions.count().trailing_zeros()).unwrap_or(0),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bit_tells_of_each_partition() {
        let mut some = Partitions::none_of(16).unwrap();
        for partition in [0, 3, 9] {
            some.insert(partition);
        }
        let slots = Slots::of(&some).unwrap();
        assert_eq!((slots.mask, slots.shift), (vec![0b1001, 0b10], 10));
        assert_eq!(Slots::of(&Partitions::all_of(16).unwrap()), None);
        let one = Slots::of(&Partitions::none_of(1).unwrap()).unwrap();
        assert_eq!((one.mask, one.shift), (vec![0], 14));
    }
}
