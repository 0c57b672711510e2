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

/// The lane ends over one event again and again, and each look finds it so, while others pass. The
/// next relay would have to find out anew which event it is.
#[test]
fn who_fails_over_one_event_while_others_are_accepted_does_not_withdraw() {
    let (mut fails, mut other) = (member(1, 32), member(2, 32));
    (fails.reaches, other.reaches) = (Some(false), Some(true));
    let both = shares(vec![fails, other], 0);
    let mut one = advice(1);
    for second in 0..60 {
        assert_eq!(one.next(&both, at(second)), ShareStep::Stay, "{second}");
        one.reached();
    }
    assert_eq!(one.next(&both, at(60)), ShareStep::Stay);
    assert_eq!(one.next(&both, at(75)), ShareStep::Withdraw);
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
                (member.partitions_max, member.leaving, member.reaches) = (max, leaving, reaches);
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
