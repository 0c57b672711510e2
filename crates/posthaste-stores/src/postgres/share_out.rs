//! What a claim does to a destination's cursor groups: pure, no I/O.

use std::collections::BTreeMap;

use posthaste_engine::Want;

/// Whose a cursor group is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Owner {
    Us,
    /// Nobody's; settling: not before some time is over.
    Free {
        settling: bool,
    },
    /// A live relay's.
    Other,
}

/// A cursor group as a claim finds it.
#[derive(Debug, Clone)]
pub(super) struct Group {
    pub(super) id: i64,
    pub(super) owner: Owner,
    pub(super) partitions: Vec<i32>,
}

/// What becomes of a group of which something changes, or that is ours.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Change {
    pub(super) id: i64,
    pub(super) was_ours: bool,
    /// Ours from now on, in this row.
    pub(super) ours: Vec<i32>,
    /// Free from now on: in a row of its own, unless nothing of the group is ours.
    pub(super) free: Vec<i32>,
}

/// What we are to own of these groups. `block`: partitions that are to become one.
pub(super) fn share_out(groups: &[Group], want: Want, block: i32) -> Vec<Change> {
    let others = groups.iter().any(|group| group.owner == Owner::Other);
    let wanted = match want {
        Want::All if others => 0,
        Want::All => usize::MAX,
        Want::AtMost(count) => usize::from(count),
    };
    let owners: BTreeMap<i32, Owner> = groups
        .iter()
        .flat_map(|group| group.partitions.iter().map(|&p| (p, group.owner)))
        .collect();
    // Whoever owns the first of a block is to get the rest of it.
    let fits = |partition: i32| {
        let first = partition - partition.rem_euclid(block.max(1));
        owners.get(&first) != Some(&Owner::Other) || owners.get(&partition) == Some(&Owner::Other)
    };
    let of = |wanted: fn(Owner) -> bool| -> Vec<(usize, i32)> {
        let groups = groups.iter().enumerate();
        let groups = groups.filter(|(_, group)| wanted(group.owner));
        groups
            .flat_map(|(at, group)| group.partitions.iter().map(move |&p| (at, p)))
            .filter(|&(_, partition)| fits(partition))
            .collect()
    };
    let mut kept = of(|owner| owner == Owner::Us);
    kept.sort_by_key(|&(_, partition)| partition);
    kept.truncate(wanted);
    let mut taken = of(|owner| owner == Owner::Free { settling: false });
    if kept.is_empty() || want == Want::All {
        // Who owns something had better not wait for the end of a settle time.
        taken.extend(of(|owner| owner == Owner::Free { settling: true }));
    }
    taken.truncate(wanted.saturating_sub(kept.len()));

    let mut changes = Vec::new();
    for (at, group) in groups.iter().enumerate() {
        let was_ours = group.owner == Owner::Us;
        let ours: Vec<i32> = if was_ours { &kept } else { &taken }
            .iter()
            .filter(|(of, _)| *of == at)
            .map(|&(_, partition)| partition)
            .collect();
        if was_ours || !ours.is_empty() {
            let rest = group.partitions.iter().filter(|p| !ours.contains(p));
            changes.push(Change {
                id: group.id,
                was_ours,
                free: rest.copied().collect(),
                ours,
            });
        }
    }
    changes
}

/// Whether each block lies in one row, so that it can become one partition. `rows`: the row of each partition,
/// in order.
pub(super) fn blocks_are_whole(rows: &[i64], block: usize) -> bool {
    block > 1
        && rows.len().is_multiple_of(block)
        && rows
            .chunks(block)
            .all(|rows| rows.iter().all(|row| *row == rows[0]))
}

#[cfg(test)]
mod tests {
    use super::*;

    const FREE: Owner = Owner::Free { settling: false };
    const SETTLING: Owner = Owner::Free { settling: true };

    fn group(id: i64, owner: Owner, partitions: std::ops::Range<i32>) -> Group {
        Group {
            id,
            owner,
            partitions: partitions.collect(),
        }
    }

    fn change(id: i64, was_ours: bool, ours: &[i32], free: &[i32]) -> Change {
        Change {
            id,
            was_ours,
            ours: ours.to_vec(),
            free: free.to_vec(),
        }
    }

    #[test]
    fn the_first_claim_takes_what_it_wants_and_leaves_the_rest_free() {
        let groups = [group(1, FREE, 0..4)];
        assert_eq!(
            share_out(&groups, Want::All, 1),
            [change(1, false, &[0, 1, 2, 3], &[])]
        );
        assert_eq!(
            share_out(&groups, Want::AtMost(3), 1),
            [change(1, false, &[0, 1, 2], &[3])]
        );
        assert_eq!(share_out(&groups, Want::AtMost(0), 1), []);
    }

    #[test]
    fn own_partitions_are_kept_first_and_the_excess_is_given_up() {
        let groups = [
            group(1, Owner::Us, 0..2),
            group(2, FREE, 2..4),
            group(3, Owner::Us, 4..8),
        ];
        assert_eq!(
            share_out(&groups, Want::AtMost(3), 1),
            [
                change(1, true, &[0, 1], &[]),
                change(3, true, &[4], &[5, 6, 7])
            ]
        );
        assert_eq!(
            share_out(&groups, Want::AtMost(7), 1),
            [
                change(1, true, &[0, 1], &[]),
                change(2, false, &[2], &[3]),
                change(3, true, &[4, 5, 6, 7], &[])
            ]
        );
        assert_eq!(
            share_out(&groups, Want::AtMost(0), 1),
            [
                change(1, true, &[], &[0, 1]),
                change(3, true, &[], &[4, 5, 6, 7])
            ]
        );
    }

    #[test]
    fn all_means_all_or_nothing() {
        let groups = [group(1, Owner::Us, 0..2), group(2, SETTLING, 2..4)];
        assert_eq!(
            share_out(&groups, Want::All, 1),
            [
                change(1, true, &[0, 1], &[]),
                change(2, false, &[2, 3], &[])
            ]
        );
        let groups = [
            group(1, Owner::Us, 0..2),
            group(2, Owner::Other, 2..3),
            group(3, FREE, 3..4),
        ];
        assert_eq!(
            share_out(&groups, Want::All, 1),
            [change(1, true, &[], &[0, 1])]
        );
    }

    #[test]
    fn what_settles_goes_to_a_relay_that_owns_nothing_behind_what_does_not() {
        let mut groups = vec![group(1, SETTLING, 0..2), group(2, FREE, 2..4)];
        assert_eq!(
            share_out(&groups, Want::AtMost(3), 1),
            [change(1, false, &[0], &[1]), change(2, false, &[2, 3], &[])]
        );
        groups.push(group(3, Owner::Us, 4..5));
        assert_eq!(
            share_out(&groups, Want::AtMost(5), 1),
            [change(2, false, &[2, 3], &[]), change(3, true, &[4], &[])],
            "who owns something waits for nothing"
        );
    }

    #[test]
    fn blocks_go_to_whoever_owns_their_first() {
        // 0 | 1 2 3 are to become two partitions: 0 1 and 2 3.
        let groups = [
            group(1, Owner::Other, 0..1),
            group(2, Owner::Us, 1..2),
            group(3, FREE, 2..4),
        ];
        assert_eq!(
            share_out(&groups, Want::AtMost(3), 2),
            [change(2, true, &[], &[1]), change(3, false, &[2, 3], &[])]
        );
        assert!(blocks_are_whole(&[1, 1, 3, 3], 2));
        assert!(!blocks_are_whole(&[1, 2, 3, 3], 2));
        assert!(!blocks_are_whole(&[1, 1], 1));
    }
}
