//! The name of a record on its lane.

use std::ops::Range;

/// The three that send events.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Group {
    /// Reads the outbox from the cursor on.
    Main,
    /// Reads keys that were parked, from their markers on.
    Side,
    /// Sends parked copies again.
    Retries,
}

/// A record's group and its number within that group, which only grows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Ticket {
    group: Group,
    number: u64,
}

/// A lane's name for a record is one number: the group above so many bits, the number in these.
const NUMBER_BITS: u32 = 62;

impl Group {
    const ALL: [Self; 3] = [Self::Main, Self::Side, Self::Retries];

    fn first_name(self) -> u64 {
        (self as u64) << NUMBER_BITS
    }

    pub(super) fn ticket(self, number: u64) -> Ticket {
        Ticket {
            group: self,
            number,
        }
    }

    /// The lane's names of this group's tickets with these numbers.
    pub(super) fn names(self, numbers: Range<u64>) -> Range<u64> {
        self.ticket(numbers.start).name()..self.ticket(numbers.end).name()
    }
}

impl Ticket {
    /// The lane's name for it.
    pub(super) fn name(self) -> u64 {
        self.group.first_name() + self.number
    }

    /// The ticket of which this is a lane's name; none: no ticket has it.
    pub(super) fn named(name: u64) -> Option<Self> {
        let group = usize::try_from(name >> NUMBER_BITS).ok()?;
        let group = *Group::ALL.get(group)?;
        Some(group.ticket(name - group.first_name()))
    }

    pub(super) fn group(self) -> Group {
        self.group
    }

    pub(super) fn number(self) -> u64 {
        self.number
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lane_gives_back_the_ticket_that_it_was_given() {
        for group in Group::ALL {
            for number in [0, 1, 1 << 40, (1 << NUMBER_BITS) - 1] {
                let ticket = group.ticket(number);
                assert_eq!(Ticket::named(ticket.name()), Some(ticket));
            }
        }
        assert_eq!(Ticket::named(u64::MAX), None);
    }

    #[test]
    fn names_grow_within_a_group_and_are_shared_by_none() {
        let last = Group::Main.ticket((1 << NUMBER_BITS) - 1);
        assert!(last.name() < Group::Side.ticket(0).name());
        assert_eq!(Group::Side.names(0..3).count(), 3);
    }
}
