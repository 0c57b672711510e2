//! Sets of the outbox's numbers, as ranges. Pure, no I/O.

/// A range, both ends included.
pub(super) type Range = (u64, u64);

/// A set of numbers: ranges in ascending order, with at least one number between two of them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub(super) struct Ranges(Vec<Range>);

impl Ranges {
    /// One range; nothing where its ends are in the wrong order.
    pub(super) fn of(first: u64, last: u64) -> Self {
        Self(if first <= last {
            vec![(first, last)]
        } else {
            Vec::new()
        })
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// How many ranges they are.
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn as_slice(&self) -> &[Range] {
        &self.0
    }

    pub(super) fn first(&self) -> Option<u64> {
        self.0.first().map(|&(first, _)| first)
    }

    pub(super) fn last(&self) -> Option<u64> {
        self.0.last().map(|&(_, last)| last)
    }

    pub(super) fn contains(&self, number: u64) -> bool {
        let at = self.0.partition_point(|&(_, last)| last < number);
        self.0.get(at).is_some_and(|&(first, _)| first <= number)
    }

    /// Adds a range that begins behind the beginning of all others.
    pub(super) fn push(&mut self, (first, last): Range) {
        if first > last {
            return;
        }
        match self.0.last_mut() {
            Some(end) if end.1.saturating_add(1) >= first => end.1 = end.1.max(last),
            _ => self.0.push((first, last)),
        }
    }

    pub(super) fn union(&self, other: &Self) -> Self {
        let (mut left, mut right) = (self.0.iter().peekable(), other.0.iter().peekable());
        let mut all = Self::default();
        loop {
            let next = match (left.peek(), right.peek()) {
                (Some(a), Some(b)) if a.0 <= b.0 => left.next(),
                (Some(_), None) => left.next(),
                (_, Some(_)) => right.next(),
                (None, None) => return all,
            };
            if let Some(&range) = next {
                all.push(range);
            }
        }
    }

    pub(super) fn intersection(&self, other: &Self) -> Self {
        let (mut a, mut b) = (0, 0);
        let mut common = Self::default();
        while let (Some(left), Some(right)) = (self.0.get(a), other.0.get(b)) {
            common.push((left.0.max(right.0), left.1.min(right.1)));
            if left.1 < right.1 {
                a += 1;
            } else {
                b += 1;
            }
        }
        common
    }

    /// Those that are not in the other set.
    pub(super) fn minus(&self, other: &Self) -> Self {
        let mut rest = Self::default();
        let mut others = other.0.as_slice();
        for &(first, last) in &self.0 {
            let mut from = Some(first);
            others = &others[others.partition_point(|&(_, end)| end < first)..];
            for &(begin, end) in others.iter().take_while(|&&(begin, _)| begin <= last) {
                let Some(start) = from else { break };
                if begin > start {
                    rest.push((start, begin - 1));
                }
                from = end.checked_add(1).map(|next| next.max(start));
            }
            if let Some(start) = from {
                rest.push((start, last));
            }
        }
        rest
    }

    pub(super) fn is_within(&self, other: &Self) -> bool {
        self.minus(other).is_empty()
    }

    /// Those up to and including this number.
    pub(super) fn up_to(&self, number: u64) -> Self {
        self.intersection(&Self::of(0, number))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use rand::{Rng, SeedableRng, rngs::SmallRng};

    use super::*;

    const SPACE: u64 = 24;

    fn set(random: &mut SmallRng) -> (Ranges, BTreeSet<u64>) {
        let numbers: BTreeSet<u64> = (0..SPACE).filter(|_| random.random()).collect();
        (of(&numbers), numbers)
    }

    fn of(numbers: &BTreeSet<u64>) -> Ranges {
        let mut ranges = Ranges::default();
        for &number in numbers {
            ranges.push((number, number));
        }
        ranges
    }

    #[test]
    fn they_are_sets() {
        let mut random = SmallRng::seed_from_u64(21);
        for _ in 0..2_000 {
            let ((a, left), (b, right)) = (set(&mut random), set(&mut random));
            assert_eq!(a.union(&b), of(&(&left | &right)), "{a:?} {b:?}");
            assert_eq!(a.intersection(&b), of(&(&left & &right)), "{a:?} {b:?}");
            assert_eq!(a.minus(&b), of(&(&left - &right)), "{a:?} {b:?}");
            assert_eq!(a.is_within(&b), left.is_subset(&right), "{a:?} {b:?}");
            let end = random.random_range(0..SPACE);
            assert_eq!(a.up_to(end), of(&left.range(..=end).copied().collect()));
            for number in 0..SPACE {
                assert_eq!(a.contains(number), left.contains(&number));
            }
        }
    }

    #[test]
    fn the_last_number_there_is_belongs_to_them() {
        let open = Ranges::of(7, u64::MAX);
        assert_eq!(
            open.minus(&Ranges::of(9, 9)).as_slice(),
            [(7, 8), (10, u64::MAX)]
        );
        assert_eq!(open.minus(&Ranges::of(9, u64::MAX)).as_slice(), [(7, 8)]);
        assert!(open.minus(&open).is_empty());
        assert_eq!(open.union(&Ranges::of(1, 6)), Ranges::of(1, u64::MAX));
        assert!(Ranges::of(3, 2).is_empty());
    }
}
