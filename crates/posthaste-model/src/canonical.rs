//! States that differ only in the names of their numbers are one: transactions, rows and reads are
//! compared by their order alone, by the code as by the database, so that a state is told by the
//! ranks of its numbers.

use std::hash::{DefaultHasher, Hash, Hasher};

use posthaste_stores::postgres::model::Number;

/// Gives reads their ranks instead of their ordinals, which nothing else knows.
pub(crate) fn rank_reads(numbers: &mut [Number]) {
    let mut reads: Vec<u64> = numbers.iter().filter_map(read).collect();
    reads.sort_unstable();
    reads.dedup();
    for number in numbers {
        if let Some(ordinal) = read(number) {
            *number = Number::Read(reads.partition_point(|&other| other < ordinal) as u64);
        }
    }
}

fn read(number: &Number) -> Option<u64> {
    match number {
        Number::Read(ordinal) => Some(*ordinal),
        _ => None,
    }
}

/// Hashes the ranks.
pub(crate) fn hash(numbers: &[Number]) -> u64 {
    let mut hasher = DefaultHasher::new();
    let sorted = |of: fn(&Number) -> Option<i64>| {
        let mut values: Vec<i64> = numbers.iter().filter_map(of).collect();
        values.sort_unstable();
        values.dedup();
        values
    };
    let xids = sorted(|number| match number {
        Number::Xid(xid) => Some(signed(*xid)),
        _ => None,
    });
    let seqs = sorted(|number| match number {
        Number::Seq(seq) => Some(*seq),
        _ => None,
    });
    let rank = |of: &[i64], value: i64| of.partition_point(|&other| other < value);
    for number in numbers {
        match *number {
            Number::Xid(xid) => (0, rank(&xids, signed(xid))).hash(&mut hasher),
            // Which transactions lie below it is all that it says.
            Number::Xmax(xmax) => (1, rank(&xids, signed(xmax))).hash(&mut hasher),
            Number::Seq(seq) => (2, rank(&seqs, seq)).hash(&mut hasher),
            // Ranked already, each relay's on their own.
            Number::Read(read) => (3, read).hash(&mut hasher),
            Number::Plain(plain) => (4, plain).hash(&mut hasher),
        }
    }
    hasher.finish()
}

fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
