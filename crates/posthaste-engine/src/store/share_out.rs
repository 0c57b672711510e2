//! The partitions of a destination that a relay is to own: a claim's decision. Pure, no I/O.

use std::{collections::BTreeMap, time::Duration};

use uuid::Uuid;

use super::Want;

/// Partitions at one position, with one owner, as a claim finds them.
#[derive(Debug)]
pub struct GroupFound {
    /// The store's number of their row.
    pub id: i64,
    /// Live: dead relays own nothing any more.
    pub owner: Option<Uuid>,
    /// Ascending; at least one.
    pub partitions: Vec<u16>,
    /// The rest of the settle time.
    pub settling: Duration,
    /// Former owners that may still have something under way at the broker.
    pub former: Vec<Uuid>,
    /// The relay that lost or gave up a free group.
    pub left_by: Option<Uuid>,
    /// Its name.
    pub left_name: Option<String>,
    /// Whether it had died.
    pub left_dead: bool,
}

/// Whose partitions are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Holder {
    /// The claim's own relay.
    Us,
    /// No relay.
    Free {
        /// The settle time is still running.
        settling: bool,
    },
    /// Another live relay.
    Other,
}

impl Holder {
    fn of(group: &GroupFound, us: Uuid) -> Self {
        match group.owner {
            Some(relay) if relay == us => Self::Us,
            Some(_) => Self::Other,
            None => Self::Free {
                settling: !group.settling.is_zero(),
            },
        }
    }
}

/// The future of a group of which something changes, or that is ours.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShareChange {
    /// The store's number of the group's row.
    pub id: i64,
    /// Whether the relay owned the group.
    pub was_ours: bool,
    /// Ours from now on, in this row.
    pub ours: Vec<u16>,
    /// Free from now on.
    pub free: Vec<u16>,
    /// The row in which they lie: the group's own, until it is split.
    pub free_row: i64,
}

impl ShareChange {
    /// Whether the free partitions get a row of their own, at the same place.
    #[must_use]
    pub fn splits(&self) -> bool {
        !self.ours.is_empty() && !self.free.is_empty()
    }
}

/// The share of these groups that a relay is to own. `block`: so many partitions are to become one.
pub(super) fn share_out(
    groups: &[GroupFound],
    us: Uuid,
    want: Want,
    block: u16,
) -> Vec<ShareChange> {
    let holder = |group: &GroupFound| Holder::of(group, us);
    let others = groups.iter().any(|group| holder(group) == Holder::Other);
    let wanted = match want {
        Want::All if others => 0,
        Want::All => usize::MAX,
        Want::AtMost(count) => usize::from(count),
    };
    let owners: BTreeMap<u16, Holder> = groups
        .iter()
        .flat_map(|group| group.partitions.iter().map(move |&p| (p, holder(group))))
        .collect();
    // The owner of the first of a block is to get the rest of it.
    let fits = |partition: u16| {
        let first = partition - partition % block.max(1);
        owners.get(&first) != Some(&Holder::Other) || owners.get(&partition) == Some(&Holder::Other)
    };
    let of = |wanted: fn(Holder) -> bool| -> Vec<(usize, u16)> {
        let groups = groups.iter().enumerate();
        let groups = groups.filter(|(_, group)| wanted(holder(group)));
        groups
            .flat_map(|(at, group)| group.partitions.iter().map(move |&p| (at, p)))
            .filter(|&(_, partition)| fits(partition))
            .collect()
    };
    let mut kept = of(|owner| owner == Holder::Us);
    kept.sort_by_key(|&(_, partition)| partition);
    kept.truncate(wanted);
    let mut taken = of(|owner| owner == Holder::Free { settling: false });
    if kept.is_empty() || want == Want::All {
        // An owner of something had better not wait for the end of a settle time.
        taken.extend(of(|owner| owner == Holder::Free { settling: true }));
    }
    taken.truncate(wanted.saturating_sub(kept.len()));

    let mut changes = Vec::new();
    for (at, group) in groups.iter().enumerate() {
        let was_ours = holder(group) == Holder::Us;
        let ours: Vec<u16> = if was_ours { &kept } else { &taken }
            .iter()
            .filter(|(of, _)| *of == at)
            .map(|&(_, partition)| partition)
            .collect();
        if was_ours || !ours.is_empty() {
            let rest = group.partitions.iter().filter(|p| !ours.contains(p));
            changes.push(ShareChange {
                id: group.id,
                was_ours,
                free: rest.copied().collect(),
                free_row: group.id,
                ours,
            });
        }
    }
    changes
}

/// Whether each block lies in one row, so that it can become one partition. `rows`: the row of
/// each partition, in order.
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

    const US: Uuid = Uuid::from_u128(1);
    const FREE: Holder = Holder::Free { settling: false };
    const SETTLING: Holder = Holder::Free { settling: true };

    fn group(id: i64, holder: Holder, partitions: std::ops::Range<u16>) -> GroupFound {
        GroupFound {
            id,
            owner: match holder {
                Holder::Us => Some(US),
                Holder::Other => Some(Uuid::from_u128(2)),
                Holder::Free { .. } => None,
            },
            partitions: partitions.collect(),
            settling: Duration::from_secs(u64::from(holder == SETTLING)),
            former: Vec::new(),
            left_by: None,
            left_name: None,
            left_dead: false,
        }
    }

    fn share_out(groups: &[GroupFound], want: Want, block: u16) -> Vec<ShareChange> {
        super::share_out(groups, US, want, block)
    }

    fn change(id: i64, was_ours: bool, ours: &[u16], free: &[u16]) -> ShareChange {
        ShareChange {
            id,
            was_ours,
            ours: ours.to_vec(),
            free: free.to_vec(),
            free_row: id,
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
            group(1, Holder::Us, 0..2),
            group(2, FREE, 2..4),
            group(3, Holder::Us, 4..8),
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
        let groups = [group(1, Holder::Us, 0..2), group(2, SETTLING, 2..4)];
        assert_eq!(
            share_out(&groups, Want::All, 1),
            [
                change(1, true, &[0, 1], &[]),
                change(2, false, &[2, 3], &[])
            ]
        );
        let groups = [
            group(1, Holder::Us, 0..2),
            group(2, Holder::Other, 2..3),
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
        groups.push(group(3, Holder::Us, 4..5));
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
            group(1, Holder::Other, 0..1),
            group(2, Holder::Us, 1..2),
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
