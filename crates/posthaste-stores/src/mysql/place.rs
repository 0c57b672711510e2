//! How far a destination has come in a log with holes. Pure, no I/O.
//!
//! Numbers are drawn when rows are inserted, and transactions commit in any order. So a place is
//! the set of numbers that were *not seen*: the holes at or below the greatest number that was
//! seen, and everything behind it. A number is seen when its row was read, or when it is proven
//! that no row will ever have it ([`super::proof`]).

use super::ranges::Ranges;

/// A place. Compared by what is seen.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Place {
    unseen: Ranges,
}

/// The text of holes that no table of ours has written.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct NotHoles;

impl Place {
    /// Before the first number.
    pub(super) fn start() -> Self {
        Self::behind(0)
    }

    /// Everything up to this number is seen.
    pub(super) fn behind(high: u64) -> Self {
        Self {
            unseen: Ranges::of(high.saturating_add(1), u64::MAX),
        }
    }

    /// From a row of ours.
    pub(super) fn stored(high: u64, holes: &[u8]) -> Result<Self, NotHoles> {
        let holes = decode(holes)?;
        if holes.last().is_some_and(|last| last >= high) {
            return Err(NotHoles);
        }
        Ok(Self {
            unseen: holes.union(&Ranges::of(high.saturating_add(1), u64::MAX)),
        })
    }

    /// The numbers that were not seen; the last range has no end.
    pub(super) fn unseen(&self) -> &Ranges {
        &self.unseen
    }

    /// The greatest number that was seen; zero: none.
    pub(super) fn high(&self) -> u64 {
        let open = self.unseen.as_slice().last();
        open.map_or(u64::MAX, |&(first, _)| first.saturating_sub(1))
    }

    /// The numbers below [`Self::high`] that were not seen.
    pub(super) fn holes(&self) -> Ranges {
        self.unseen.up_to(self.high())
    }

    pub(super) fn open_holes(&self) -> usize {
        self.unseen.len().saturating_sub(1)
    }

    /// Everything up to this number is seen.
    pub(super) fn floor(&self) -> u64 {
        self.unseen.first().map_or(u64::MAX, |first| first - 1)
    }

    /// The same, and these numbers are seen too.
    pub(super) fn and_seen(&self, seen: &Ranges) -> Self {
        Self {
            unseen: self.unseen.minus(seen),
        }
    }

    /// Both have seen it together.
    pub(super) fn union(&self, other: &Self) -> Self {
        Self {
            unseen: self.unseen.intersection(&other.unseen),
        }
    }

    /// Whether everything that the other one has seen was seen here.
    pub(super) fn covers(&self, other: &Self) -> bool {
        self.unseen.is_within(&other.unseen)
    }

    pub(super) fn has_seen(&self, number: u64) -> bool {
        !self.unseen.contains(number)
    }

    /// The numbers that were seen here and not there.
    pub(super) fn beyond(&self, other: &Self) -> Ranges {
        other.unseen.minus(&self.unseen)
    }

    /// The holes as a row of ours has them.
    pub(super) fn encoded_holes(&self) -> Vec<u8> {
        encode(&self.holes())
    }
}

/// Each range as two numbers of 7 bits a byte: the distance from the end of the last one, and its
/// length less one.
fn encode(holes: &Ranges) -> Vec<u8> {
    let (mut bytes, mut from) = (Vec::new(), 0);
    for &(first, last) in holes.as_slice() {
        push(&mut bytes, first - from);
        push(&mut bytes, last - first);
        from = last;
    }
    bytes
}

fn decode(mut bytes: &[u8]) -> Result<Ranges, NotHoles> {
    let (mut holes, mut from) = (Ranges::default(), 0u64);
    while !bytes.is_empty() {
        let distance = take(&mut bytes)?;
        let length = take(&mut bytes)?;
        if distance == 0 {
            return Err(NotHoles);
        }
        let first = from.checked_add(distance).ok_or(NotHoles)?;
        from = first.checked_add(length).ok_or(NotHoles)?;
        holes.push((first, from));
    }
    Ok(holes)
}

fn push(bytes: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        bytes.push((number & 0x7f) as u8 | 0x80);
        number >>= 7;
    }
    bytes.push((number & 0x7f) as u8);
}

fn take(bytes: &mut &[u8]) -> Result<u64, NotHoles> {
    let (mut number, mut shift) = (0u64, 0u32);
    loop {
        let (&byte, rest) = bytes.split_first().ok_or(NotHoles)?;
        *bytes = rest;
        let part = u64::from(byte & 0x7f);
        if shift > 63 || (shift == 63 && part > 1) {
            return Err(NotHoles);
        }
        number |= part << shift;
        if byte < 0x80 {
            return Ok(number);
        }
        shift += 7;
    }
}

#[cfg(test)]
mod tests {
    use rand::{Rng, SeedableRng, rngs::SmallRng};

    use super::*;

    fn seen(numbers: &[u64]) -> Ranges {
        let mut ranges = Ranges::default();
        for &number in numbers {
            ranges.push((number, number));
        }
        ranges
    }

    #[test]
    fn a_place_has_holes_and_a_high() {
        let place = Place::start().and_seen(&seen(&[1, 2, 5, 9]));
        assert_eq!(place.high(), 9);
        assert_eq!(place.holes().as_slice(), [(3, 4), (6, 8)]);
        assert_eq!((place.floor(), place.open_holes()), (2, 2));
        let later = place.and_seen(&seen(&[3, 4]));
        assert_eq!((later.floor(), later.high()), (5, 9));
        assert!(later.covers(&place) && !place.covers(&later));
        assert_eq!(later.beyond(&place).as_slice(), [(3, 4)]);
    }

    #[test]
    fn a_place_is_stored_as_it_is() {
        let mut random = SmallRng::seed_from_u64(8);
        for _ in 0..500 {
            let mut ranges = Ranges::default();
            let mut from = 0u64;
            for _ in 0..random.random_range(0..20) {
                from =
                    from.saturating_add(1 + (random.random::<u64>() >> random.random_range(4..63)));
                let first = from;
                from = from.saturating_add(random.random::<u64>() >> random.random_range(8..63));
                ranges.push((first, from));
            }
            let place = Place::start().and_seen(&ranges);
            let again = Place::stored(place.high(), &place.encoded_holes());
            assert_eq!(again, Ok(place));
        }
    }

    #[test]
    fn bytes_that_are_no_holes_are_refused() {
        for bytes in [&[0x80][..], &[1], &[0, 1], &[0xff; 11], &[5, 0]] {
            assert_eq!(Place::stored(5, bytes), Err(NotHoles), "{bytes:?}");
        }
        assert!(Place::stored(5, &[4, 0]).is_ok());
    }
}
