//! Which relay should own how many of a destination's partitions: advice, from what one relay sees.
//!
//! Every relay computes the same fair shares from the same members. Views may differ for a moment;
//! that is harmless, since only a claim decides, and nobody takes what a live relay owns. So a
//! relay that owns more than its share gives some up, a little at a time and only once nobody has
//! come or gone for a while, and one that owns less takes what is free. Counting instead of hashing
//! moves no partition that need not move.

use std::time::Duration;

use uuid::Uuid;

use crate::{Member, Moment, Shares, Want};

/// While somebody is about to leave, its partitions are looked for this often: delivery pauses for
/// their keys until they are found.
const LOOK_FOR_LEFT: Duration = Duration::from_millis(20);

/// A relay's next step about its share of a destination.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ShareStep {
    /// Nothing now.
    Stay,
    /// [`crate::Ownership::revoke`] what expired relays own.
    Revoke,
    /// [`crate::Ownership::claim`] this much, once nothing is in flight.
    Claim(Want),
    /// [`crate::Ownership::withdraw`]: others reach the broker, we do not.
    Withdraw,
}

/// One relay's advice about one destination.
#[derive(Debug)]
pub struct Sharing {
    me: Uuid,
    together: bool,
    heartbeat: Duration,
    /// The members, and since when none has come or gone.
    members: Vec<Uuid>,
    unchanged_since: Moment,
    /// How many partitions were free, and since when as many.
    free: u16,
    free_since: Moment,
    unreached_since: Option<Moment>,
    gave_up_at: Option<Moment>,
    recut_at: Option<Moment>,
    /// When we asked for more: how much we owned, how much was free, and when that was.
    asked: Option<(u16, u16, Moment)>,
}

impl Sharing {
    /// Advice for the relay registered as `me`, which renews its lease every `heartbeat`.
    /// `together`: all partitions are owned by one relay.
    #[must_use]
    pub fn new(me: Uuid, heartbeat: Duration, together: bool) -> Self {
        Self {
            me,
            together,
            heartbeat,
            members: Vec::new(),
            unchanged_since: Moment::default(),
            free: 0,
            free_since: Moment::default(),
            unreached_since: None,
            gave_up_at: None,
            recut_at: None,
            asked: None,
        }
    }

    /// The next step, by what is seen now.
    pub fn next(&mut self, shares: &Shares, now: Moment) -> ShareStep {
        self.notice(shares, now);
        let Some(me) = shares.member(self.me) else {
            return ShareStep::Stay;
        };
        if shares.dead > 0 {
            return ShareStep::Revoke;
        }
        if me.leaving {
            return ShareStep::Stay;
        }
        if self.together {
            let all_free = shares.free == shares.partitions;
            return if all_free {
                ShareStep::Claim(Want::All)
            } else {
                ShareStep::Stay
            };
        }
        if let Some(since) = self.unreached_since {
            let long = now >= since.after(self.heartbeat * 3);
            return if long {
                ShareStep::Withdraw
            } else {
                ShareStep::Stay
            };
        }
        self.share(shares, me, now)
    }

    fn share(&mut self, shares: &Shares, me: &Member, now: Moment) -> ShareStep {
        let fair = fair_shares(shares);
        let lack = |part: fn(&Fair) -> u16| fair.iter().any(|fair| fair.member.owned < part(fair));
        let mine = fair.iter().find(|fair| fair.member.registration == self.me);
        let (even, mine) = mine.map_or((0, 0), |fair| (fair.even, fair.share));
        let after = me.owned.saturating_add(shares.free);
        // The largest owners receive the remainder. All members agree on who that is once all own
        // their even part.
        let now_mine = if lack(|fair| fair.even) { even } else { mine };
        let two_beats_ago = |since: Moment| now >= since.after(self.heartbeat * 2);
        // The member that should take it may not be able to.
        let left_over = shares.free > 0 && two_beats_ago(self.free_since);
        let quiet = two_beats_ago(self.unchanged_since);
        let could_take = me.owned < me.partitions_max && me.reaches != Some(false);
        let more = match (shares.free > 0 && me.owned < now_mine, left_over) {
            (true, _) => Some(now_mine.min(after)),
            (false, true) if could_take => Some(me.partitions_max.min(after)),
            _ => None,
        };
        if let Some(more) = more.filter(|_| !self.asked_in_vain(me.owned, shares.free, now)) {
            self.asked = Some((me.owned, shares.free, now));
            return ShareStep::Claim(Want::AtMost(more));
        }
        let somebody_lacks = lack(|fair| fair.share);
        let waited = self
            .gave_up_at
            .is_none_or(|at| now >= at.after(self.heartbeat));
        if me.owned > mine && somebody_lacks && quiet && waited {
            self.gave_up_at = Some(now);
            let members = u16::try_from(shares.members.len()).unwrap_or(u16::MAX);
            let step = shares.partitions.div_ceil(members.saturating_mul(4).max(1));
            let keep = mine.max(me.owned.saturating_sub(step));
            return ShareStep::Claim(Want::AtMost(keep));
        }
        let waited = self
            .recut_at
            .is_none_or(|at| now >= at.after(self.heartbeat));
        if shares.recut && me.owned > 0 && waited {
            self.recut_at = Some(now);
            return ShareStep::Claim(Want::AtMost(me.owned));
        }
        ShareStep::Stay
    }

    /// A partition that is free while partitions are cut anew may fit to another owner only. A
    /// relay that asks for it all the same gets nothing, delivers nothing meanwhile, and would ask
    /// again at once.
    fn asked_in_vain(&self, owned: u16, free: u16, now: Moment) -> bool {
        self.asked.is_some_and(|(had, was_free, at)| {
            (had, was_free) == (owned, free) && now < at.after(self.heartbeat)
        })
    }

    /// When another look is worth its while, later than `now`; none: when the lease is renewed, or
    /// a read says that something changed.
    #[must_use]
    pub fn look_at(&self, shares: &Shares, now: Moment) -> Option<Moment> {
        let others = || shares.members.iter().filter(|m| m.registration != self.me);
        let leaving = others()
            .any(|m| m.leaving && m.owned > 0)
            .then(|| now.after(LOOK_FOR_LEFT));
        // The lease ends at that moment, not before it.
        let a_bit_later = Duration::from_millis(1);
        let expired = others().filter(|m| m.owned > 0).map(|m| m.lease_left);
        let expired = expired.min().map(|left| now.after(left + a_bit_later));
        let settled = shares.settled_in.map(|wait| now.after(wait + a_bit_later));
        [leaving, expired, settled].into_iter().flatten().min()
    }

    fn notice(&mut self, shares: &Shares, now: Moment) {
        let members: Vec<Uuid> = shares.members.iter().map(|m| m.registration).collect();
        if members != self.members {
            self.members = members;
            self.unchanged_since = now;
        }
        // While it changes, it is on its way to somebody.
        if shares.free != self.free {
            self.free = shares.free;
            self.free_since = now;
        }
        let reaches = |wanted: bool| move |m: &&Member| m.reaches == Some(wanted);
        let we_do_not = shares.member(self.me).is_some_and(|me| reaches(false)(&me));
        let others_do = shares.members.iter().any(|m| reaches(true)(&m));
        self.unreached_since =
            (we_do_not && others_do).then(|| self.unreached_since.unwrap_or(now));
    }
}

/// A member's fair share.
struct Fair<'a> {
    member: &'a Member,
    /// Without the remainder of the division.
    even: u16,
    share: u16,
}

/// The fair share of each member. Shares are equal, as far as a member takes them. A member that is
/// about to leave gets none, nor one that does not reach the broker while others do. The largest
/// owners receive the remainder.
fn fair_shares(shares: &Shares) -> Vec<Fair<'_>> {
    let reached = shares.members.iter().any(|m| m.reaches == Some(true));
    let cut_off = |m: &Member| reached && m.reaches == Some(false);
    let takes = |m: &&Member| !m.leaving && !cut_off(m);
    let fair = |member| Fair {
        member,
        even: 0,
        share: 0,
    };
    let mut takers: Vec<Fair<'_>> = shares.members.iter().filter(takes).map(fair).collect();
    takers.sort_by_key(|fair| {
        (
            std::cmp::Reverse(fair.member.owned),
            fair.member.registration,
        )
    });
    let mut left = shares.partitions;
    loop {
        let open = |fair: &&mut Fair<'_>| fair.share < fair.member.partitions_max;
        let open: Vec<&mut Fair<'_>> = takers.iter_mut().filter(open).collect();
        let count = u16::try_from(open.len()).unwrap_or(u16::MAX);
        if left == 0 || count == 0 {
            return takers;
        }
        let divides = left >= count;
        let each = (left / count).max(1);
        for fair in open {
            let room = fair.member.partitions_max - fair.share;
            let more = each.min(room).min(left);
            fair.share += more;
            left -= more;
            if divides {
                fair.even = fair.share;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const BEAT: Duration = Duration::from_secs(5);

    fn member(number: u128, owned: u16) -> Member {
        Member {
            registration: Uuid::from_u128(number),
            name: format!("relay-{number}"),
            host: crate::HostIdentity::default(),
            lease_left: BEAT * 3,
            owned,
            partitions_max: u16::MAX,
            leaving: false,
            reaches: None,
        }
    }

    fn shares(members: Vec<Member>, free: u16) -> Shares {
        let owned: u16 = members.iter().map(|m| m.owned).sum();
        Shares {
            partitions: owned + free,
            members,
            free,
            ..Shares::default()
        }
    }

    fn at(seconds: u64) -> Moment {
        Moment(Duration::from_secs(seconds))
    }

    fn advice(number: u128) -> Sharing {
        Sharing::new(Uuid::from_u128(number), BEAT, false)
    }

    fn at_most(partitions: u16) -> ShareStep {
        ShareStep::Claim(Want::AtMost(partitions))
    }

    #[test]
    fn the_first_relay_takes_all_and_a_second_one_gets_its_half_step_by_step() {
        let alone = shares(vec![member(1, 0)], 64);
        assert_eq!(advice(1).next(&alone, at(0)), at_most(64));
        let two = |first, second| {
            shares(
                vec![member(1, first), member(2, second)],
                64 - first - second,
            )
        };
        let mut one = advice(1);
        assert_eq!(
            one.next(&two(64, 0), at(0)),
            ShareStep::Stay,
            "who has just come may be gone soon"
        );
        assert_eq!(one.next(&two(64, 0), at(10)), at_most(56));
        assert_eq!(one.next(&two(56, 0), at(11)), ShareStep::Stay);
        let mut second = advice(2);
        assert_eq!(second.next(&two(56, 0), at(11)), at_most(8));
        assert_eq!(one.next(&two(56, 8), at(15)), at_most(48));
        assert_eq!(one.next(&two(33, 31), at(25)), at_most(32));
        assert_eq!(one.next(&two(32, 32), at(35)), ShareStep::Stay);
        assert_eq!(second.next(&two(32, 32), at(35)), ShareStep::Stay);
    }

    #[test]
    fn what_cannot_be_divided_stays_where_it_is() {
        let three = shares(vec![member(1, 21), member(2, 21), member(3, 22)], 0);
        for number in 1..=3 {
            let mut advice = advice(number);
            advice.next(&three, at(0));
            assert_eq!(advice.next(&three, at(60)), ShareStep::Stay);
        }
    }

    #[test]
    fn a_member_with_a_bound_leaves_the_rest_to_others() {
        let mut bounded = member(1, 0);
        bounded.partitions_max = 4;
        let mut small = member(2, 0);
        small.partitions_max = 10;
        let two = shares(vec![bounded, small], 64);
        assert_eq!(fair_shares(&two).iter().map(|t| t.share).sum::<u16>(), 14);
        let mut advice = advice(1);
        assert_eq!(advice.next(&two, at(0)), at_most(4));
    }

    #[test]
    fn what_nobody_takes_is_taken_by_whoever_sees_it_for_two_heartbeats() {
        let two = shares(vec![member(1, 32), member(2, 16)], 16);
        let mut one = advice(1);
        assert_eq!(one.next(&two, at(0)), ShareStep::Stay);
        assert_eq!(one.next(&two, at(10)), at_most(48));
    }

    #[test]
    fn what_cannot_be_divided_is_taken_once_all_own_as_much() {
        let mut first = advice(1);
        let before = shares(vec![member(1, 16), member(2, 16), member(3, 16)], 16);
        assert_eq!(first.next(&before, at(0)), at_most(21));
        let lacking = shares(vec![member(1, 21), member(2, 16), member(3, 21)], 6);
        assert_eq!(first.next(&lacking, at(1)), ShareStep::Stay);
        let even = shares(vec![member(1, 21), member(2, 21), member(3, 21)], 1);
        assert_eq!(first.next(&even, at(2)), at_most(22));
        assert_eq!(advice(2).next(&even, at(2)), ShareStep::Stay);
    }

    #[test]
    fn what_is_free_and_is_not_given_to_us_is_not_asked_for_again_at_once() {
        let lacking = shares(vec![member(1, 16), member(2, 32)], 16);
        let mut one = advice(1);
        assert_eq!(one.next(&lacking, at(0)), at_most(32));
        for second in 1..5 {
            assert_eq!(one.next(&lacking, at(second)), ShareStep::Stay);
        }
        assert_eq!(one.next(&lacking, at(5)), at_most(32));
        let more = shares(vec![member(1, 16), member(2, 31)], 17);
        assert_eq!(one.next(&more, at(6)), at_most(32), "something changed");
        let left_over = shares(vec![member(1, 32), member(2, 16)], 16);
        let mut other = advice(1);
        other.next(&left_over, at(0));
        assert_eq!(other.next(&left_over, at(10)), at_most(48));
        assert_eq!(other.next(&left_over, at(11)), ShareStep::Stay);
    }

    #[test]
    fn what_is_on_its_way_to_somebody_is_not_left_over() {
        let mut one = advice(1);
        for second in 0..30 {
            let free = if second % 2 == 0 { 4 } else { 8 };
            let two = shares(vec![member(1, 32), member(2, 32 - free)], free);
            assert_eq!(one.next(&two, at(second)), ShareStep::Stay, "{second}");
        }
    }

    #[test]
    fn a_dead_relay_is_revoked_and_a_leaving_one_gets_nothing() {
        let mut dead = shares(vec![member(1, 32)], 0);
        (dead.partitions, dead.dead) = (64, 32);
        assert_eq!(advice(1).next(&dead, at(0)), ShareStep::Revoke);
        let mut leaving = member(2, 32);
        leaving.leaving = true;
        let two = shares(vec![member(1, 32), leaving], 0);
        let mut one = advice(1);
        one.next(&two, at(0));
        assert_eq!(
            one.next(&two, at(60)),
            ShareStep::Stay,
            "nothing is free yet"
        );
        assert_eq!(one.look_at(&two, at(60)), Some(at(60).after(LOOK_FOR_LEFT)));
        let left = shares(vec![member(1, 32)], 32);
        assert_eq!(one.next(&left, at(61)), at_most(64));
    }

    #[test]
    fn who_does_not_reach_the_broker_withdraws_only_if_another_does() {
        let (mut cut_off, mut other) = (member(1, 32), member(2, 32));
        cut_off.reaches = Some(false);
        let mut one = advice(1);
        let nobody = shares(vec![cut_off.clone(), other.clone()], 0);
        one.next(&nobody, at(0));
        assert_eq!(one.next(&nobody, at(60)), ShareStep::Stay);
        other.reaches = Some(true);
        let somebody = shares(vec![cut_off, other], 0);
        assert_eq!(one.next(&somebody, at(61)), ShareStep::Stay);
        assert_eq!(one.next(&somebody, at(76)), ShareStep::Withdraw);
    }

    #[test]
    fn partitions_that_are_owned_together_go_all_at_once() {
        let mut one = Sharing::new(Uuid::from_u128(1), BEAT, true);
        assert_eq!(
            one.next(&shares(vec![member(1, 0)], 64), at(0)),
            ShareStep::Claim(Want::All)
        );
        let held = shares(vec![member(1, 0), member(2, 64)], 0);
        assert_eq!(one.next(&held, at(0)), ShareStep::Stay);
        assert_eq!(
            one.look_at(&held, at(0)),
            Some(at(0).after(BEAT * 3 + Duration::from_millis(1)))
        );
    }

    fn any_member() -> impl Strategy<Value = (u16, u16, bool, Option<bool>)> {
        let bound = prop_oneof![Just(u16::MAX), 0..40_u16];
        let reaches = prop_oneof![Just(None), Just(Some(true)), Just(Some(false))];
        (0..40_u16, bound, prop::bool::weighted(0.2), reaches)
    }

    /// Members of any kind, some partitions free, some neither free nor a live member's.
    fn any_shares() -> impl Strategy<Value = Shares> {
        let members = prop::collection::vec(any_member(), 0..12);
        (members, 0..60_u16, 0..20_u16).prop_map(|(members, free, settling)| {
            let members = (1..)
                .zip(members)
                .map(|(number, (owned, max, leaving, reaches))| {
                    let mut member = member(number, owned);
                    (member.partitions_max, member.leaving, member.reaches) =
                        (max, leaving, reaches);
                    member
                });
            let mut shares = shares(members.collect(), free);
            (shares.partitions, shares.settling) = (shares.partitions + settling, settling);
            shares
        })
    }

    proptest! {
        #[test]
        fn fair_shares_are_all_there_is_and_as_even_as_bounds_allow(shares in any_shares()) {
            let fair = fair_shares(&shares);
            let sum: u32 = fair.iter().map(|fair| u32::from(fair.share)).sum();
            let room: u32 = fair.iter().map(|fair| u32::from(fair.member.partitions_max)).sum();
            prop_assert_eq!(sum, room.min(shares.partitions.into()));
            for one in &fair {
                prop_assert!(one.share <= one.member.partitions_max && !one.member.leaving);
                prop_assert!(one.even <= one.share && one.share <= one.even + 1);
                for other in &fair {
                    let as_even = one.share <= other.share + 1;
                    prop_assert!(as_even || other.share == other.member.partitions_max);
                }
            }
        }

        /// The order of members does not matter, and a member that has its share keeps it.
        #[test]
        fn fair_shares_are_the_same_for_all_and_stay(shares in any_shares()) {
            let by_member = |shares: &Shares| {
                let fair = fair_shares(shares);
                let fair = fair.iter().map(|fair| (fair.member.registration, fair.share));
                fair.collect::<std::collections::BTreeMap<_, _>>()
            };
            let fair = by_member(&shares);
            let mut turned = shares.clone();
            turned.members.reverse();
            prop_assert_eq!(&by_member(&turned), &fair);
            let mut settled = shares;
            for member in &mut settled.members {
                member.owned = fair.get(&member.registration).copied().unwrap_or(0);
            }
            prop_assert_eq!(by_member(&settled), fair);
        }

        /// A member takes only free partitions, within its bound; it gives up a few at a time, and
        /// only those beyond its share.
        #[test]
        fn a_step_takes_what_is_free_and_gives_up_little(
            shares in any_shares(),
            quiet in 0..40_u64,
        ) {
            for me in &shares.members {
                let mut advice = Sharing::new(me.registration, BEAT, false);
                advice.next(&shares, at(0));
                let ShareStep::Claim(Want::AtMost(wanted)) = advice.next(&shares, at(quiet)) else {
                    continue;
                };
                prop_assert!(!me.leaving);
                if wanted > me.owned {
                    prop_assert!(wanted <= me.partitions_max && wanted - me.owned <= shares.free);
                } else {
                    let fair = fair_shares(&shares);
                    let mine = fair.iter().find(|fair| fair.member.registration == me.registration);
                    let members = u16::try_from(shares.members.len()).unwrap();
                    prop_assert!(wanted >= mine.map_or(0, |fair| fair.share));
                    prop_assert!(me.owned - wanted <= shares.partitions.div_ceil(members * 4));
                }
            }
        }
    }
}
