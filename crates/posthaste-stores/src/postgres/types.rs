//! PostgreSQL's 64-bit transaction numbers and snapshots in their binary form.

use std::{error::Error, sync::Arc};

use bytes::{Buf, BufMut, BytesMut};
use postgres_types::{FromSql, IsNull, ToSql, Type, accepts, to_sql_checked};

type BoxError = Box<dyn Error + Sync + Send>;

/// `xid8`: a transaction's number, never used again within one incarnation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Xid8(pub(super) u64);

impl ToSql for Xid8 {
    fn to_sql(&self, _: &Type, out: &mut BytesMut) -> Result<IsNull, BoxError> {
        out.put_u64(self.0);
        Ok(IsNull::No)
    }

    accepts!(XID8);
    to_sql_checked!();
}

/// `pg_snapshot`: which transactions had completed at a moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Snapshot {
    xmin: u64,
    xmax: u64,
    /// In progress, ascending.
    xip: Vec<u64>,
}

/// Greater than any transaction's number.
const END_OF_NUMBERS: u64 = i64::MAX as u64;
/// The least number that PostgreSQL gives to a transaction.
const FIRST_NUMBER: u64 = 3;

impl Snapshot {
    /// Sees every transaction, of any era: the `high` of a difference that holds the rest of an
    /// ended era. `sql/era_begin.sql` and `sql/destination_create.sql` write it.
    #[cfg(test)]
    pub(super) fn everything() -> Self {
        Self {
            xmin: END_OF_NUMBERS,
            xmax: END_OF_NUMBERS,
            xip: Vec::new(),
        }
    }

    /// Whether it sees every transaction.
    pub(super) fn sees_everything(&self) -> bool {
        self.xmin == END_OF_NUMBERS
    }

    /// The `low` of a reader that has used up a difference to `high`. Behind the rest of an ended
    /// era, nothing of the new era has been seen yet; and that is later than the empty snapshot.
    pub(super) fn behind(high: &Arc<Self>) -> Arc<Self> {
        if !high.sees_everything() {
            return Arc::clone(high);
        }
        Arc::new(Self {
            xmin: FIRST_NUMBER,
            xmax: FIRST_NUMBER,
            xip: Vec::new(),
        })
    }

    /// Sees nothing: where a destination that starts at the oldest event stands.
    pub(super) fn empty() -> Self {
        Self {
            xmin: 1,
            xmax: 1,
            xip: Vec::new(),
        }
    }

    /// `xmax` is the latest *completed* number plus one, so that a transaction in progress may lie
    /// at or above it and is then absent from `xip`.
    #[cfg(any(test, feature = "simulation", feature = "model"))]
    pub(super) fn new(xmax: u64, xip: Vec<u64>) -> Self {
        Self {
            xmin: xip.first().copied().unwrap_or(xmax),
            xmax,
            xip,
        }
    }

    /// Transactions in progress below `xmax`, ascending.
    pub(super) fn xip(&self) -> &[u64] {
        &self.xip
    }

    /// Everything from here on was not completed.
    #[cfg(feature = "model")]
    pub(super) fn xmax(&self) -> u64 {
        self.xmax
    }

    /// Whether the snapshot sees what this transaction did, should it have committed.
    pub(super) fn sees(&self, xid: u64) -> bool {
        xid < self.xmax && self.xip.binary_search(&xid).is_err()
    }

    /// Whether this snapshot sees everything that `other` sees. Of two snapshots of one primary and
    /// incarnation, one always covers the other.
    pub(super) fn covers(&self, other: &Self) -> bool {
        other.xmax <= self.xmax && !self.xip.iter().any(|&xid| other.sees(xid))
    }

    /// Reads the layout that `pg_snapshot_send` writes: count, xmin, xmax, xip, big endian.
    ///
    /// # Errors
    /// Bytes of another length, or numbers that no snapshot of PostgreSQL has: a reader of them
    /// would take a transaction in progress for a finished one.
    pub(super) fn decode(mut raw: &[u8]) -> Result<Self, BoxError> {
        let count = usize::try_from(raw.try_get_i32()?)?;
        let xmin = raw.try_get_u64()?;
        let xmax = raw.try_get_u64()?;
        if raw.len() != count * size_of::<u64>() {
            return Err("pg_snapshot: its length does not fit its count".into());
        }
        let xip: Vec<u64> = raw
            .chunks_exact(size_of::<u64>())
            .map(|mut xid| xid.get_u64())
            .collect();
        let within = xip.iter().all(|xid| (xmin..xmax).contains(xid));
        if xmin > xmax || !within || !xip.is_sorted_by(|a, b| a < b) {
            return Err("pg_snapshot: not ascending between xmin and xmax".into());
        }
        Ok(Self { xmin, xmax, xip })
    }
}

impl ToSql for Snapshot {
    fn to_sql(&self, _: &Type, out: &mut BytesMut) -> Result<IsNull, BoxError> {
        out.put_i32(i32::try_from(self.xip.len())?);
        out.put_u64(self.xmin);
        out.put_u64(self.xmax);
        for &xid in &self.xip {
            out.put_u64(xid);
        }
        Ok(IsNull::No)
    }

    accepts!(PG_SNAPSHOT);
    to_sql_checked!();
}

impl FromSql<'_> for Snapshot {
    fn from_sql(_: &Type, raw: &[u8]) -> Result<Self, BoxError> {
        Self::decode(raw)
    }

    accepts!(PG_SNAPSHOT);
}

/// `timestamptz` as microseconds since 1970-01-01 UTC; an infinite one is the least or the greatest
/// number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct UnixMicros(pub(super) i64);

/// PostgreSQL counts from 2000-01-01.
const EPOCH_OFFSET_MICROS: i64 = 946_684_800_000_000;

impl FromSql<'_> for UnixMicros {
    fn from_sql(_: &Type, mut raw: &[u8]) -> Result<Self, BoxError> {
        Ok(Self(raw.try_get_i64()?.saturating_add(EPOCH_OFFSET_MICROS)))
    }

    accepts!(TIMESTAMPTZ);
}

/// An event's headers, borrowed from the row: a `text[]` of name, value, name, value.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Headers<'a> {
    elements: &'a [u8],
}

impl<'a> FromSql<'a> for Headers<'a> {
    fn from_sql(_: &Type, mut raw: &'a [u8]) -> Result<Self, BoxError> {
        let dimensions = raw.try_get_i32()?;
        let _has_nulls = raw.try_get_i32()?;
        let _element_type = raw.try_get_u32()?;
        match dimensions {
            0 => return Ok(Self { elements: &[] }),
            1 => {}
            _ => return Err("headers: more than one dimension".into()),
        }
        let count = raw.try_get_i32()?;
        let _lower_bound = raw.try_get_i32()?;
        let headers = Self { elements: raw };
        // Checked once here, so that walking needs no error.
        let mut rest = raw;
        for element in 0..count {
            if take_element(&mut rest)?.is_none() && element % 2 == 0 {
                return Err("headers: a name is null".into());
            }
        }
        if !rest.is_empty() || count < 0 || count % 2 != 0 {
            return Err("headers: not pairs".into());
        }
        Ok(headers)
    }

    accepts!(TEXT_ARRAY);
}

fn take_element<'a>(rest: &mut &'a [u8]) -> Result<Option<&'a str>, BoxError> {
    let len = rest.try_get_i32()?;
    let Ok(len) = usize::try_from(len) else {
        return Ok(None);
    };
    let (text, tail) = rest.split_at_checked(len).ok_or("headers: cut short")?;
    *rest = tail;
    Ok(Some(std::str::from_utf8(text)?))
}

impl<'a> Iterator for Headers<'a> {
    type Item = (&'a str, Option<&'a str>);

    fn next(&mut self) -> Option<Self::Item> {
        let name = take_element(&mut self.elements).ok()??;
        let value = take_element(&mut self.elements).ok()?;
        Some((name, value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_snapshot_survives_its_binary_form_and_bad_bytes_are_refused() {
        let snapshot = Snapshot::new(9, vec![4, 7]);
        let mut bytes = BytesMut::new();
        snapshot.to_sql(&Type::PG_SNAPSHOT, &mut bytes).unwrap();
        assert_eq!(Snapshot::decode(&bytes).unwrap(), snapshot);
        assert!(Snapshot::decode(&bytes[..bytes.len() - 1]).is_err());
        assert!(Snapshot::decode(&[]).is_err());
    }

    #[test]
    fn a_snapshot_out_of_order_or_beyond_its_bounds_is_refused() {
        for (xmin, xmax, xip) in [
            (9, 3, vec![]),
            (4, 9, vec![7, 4]),
            (4, 9, vec![4, 4]),
            (4, 9, vec![4, 9]),
            (5, 9, vec![4]),
        ] {
            let mut bytes = BytesMut::new();
            let snapshot = Snapshot { xmin, xmax, xip };
            snapshot.to_sql(&Type::PG_SNAPSHOT, &mut bytes).unwrap();
            assert!(Snapshot::decode(&bytes).is_err(), "{snapshot:?}");
        }
    }

    #[test]
    fn a_null_for_a_headers_name_is_refused_and_ends_no_headers() {
        let elements = [Some("a"), Some("1"), None, Some("2"), Some("b"), None];
        let mut raw = BytesMut::new();
        elements
            .to_vec()
            .to_sql(&Type::TEXT_ARRAY, &mut raw)
            .unwrap();
        assert!(Headers::from_sql(&Type::TEXT_ARRAY, &raw).is_err());
    }

    #[test]
    fn visibility_follows_xmax_and_xip() {
        let snapshot = Snapshot::new(9, vec![4, 7]);
        let seen: Vec<u64> = (1..11).filter(|&xid| snapshot.sees(xid)).collect();
        assert_eq!(seen, [1, 2, 3, 5, 6, 8]);
        assert!(!Snapshot::empty().sees(1));
    }

    #[test]
    fn a_later_snapshot_covers_an_earlier_one_and_not_the_other_way_round() {
        let earlier = Snapshot::new(9, vec![4, 7]);
        for later in [
            Snapshot::new(9, vec![4]),
            Snapshot::new(12, vec![4, 10]),
            Snapshot::new(12, vec![]),
        ] {
            assert!(later.covers(&earlier));
            assert!(!earlier.covers(&later));
        }
        assert!(earlier.covers(&earlier));
        assert!(earlier.covers(&Snapshot::empty()));
    }

    #[test]
    fn headers_keep_order_repeats_and_absent_values() {
        let elements = ["a", "1", "a", "", "b"].map(Some);
        let elements = elements.into_iter().chain([None]);
        let mut raw = BytesMut::new();
        elements
            .collect::<Vec<_>>()
            .to_sql(&Type::TEXT_ARRAY, &mut raw)
            .unwrap();
        let headers = Headers::from_sql(&Type::TEXT_ARRAY, &raw).unwrap();
        assert_eq!(
            headers.collect::<Vec<_>>(),
            [("a", Some("1")), ("a", Some("")), ("b", None)]
        );
        assert!(Headers::from_sql(&Type::TEXT_ARRAY, &raw[..raw.len() - 1]).is_err());
    }
}
