//! The traces of a relay that left: when its partitions are free, whose fences are still to be
//! taken, and what is on record of it.

use std::time::Duration;

use posthaste_engine::{ClaimRequest, Registered, Want};

use super::{
    Case, cases,
    sharing::{ask, fence, halves, held, own_some, shares, withdraw},
};
use crate::store_suite::bench::{
    Bench, DESTINATION, LONG, SETTLE, assert_fenced, ids, owned, seqs, whole,
};

pub(super) fn cases() -> Vec<Case> {
    cases![
        a_release_by_who_took_over_keeps_the_settle_time,
        a_restart_under_the_same_name_orphans_nothing,
        former_owners_are_kept_until_their_fences_are_taken,
        a_clean_release_leaves_no_former_owner,
        a_fenced_relay_cannot_leave,
        hand_overs_are_on_record,
        a_dead_relays_part_settles_before_others_get_it needs SharesOut,
        what_is_given_up_unsettled_settles needs SharesOut,
        a_former_owner_comes_with_its_partitions needs SharesOut,
    ]
}

/// Lets the relay's lease end, and waits until the store says so.
async fn expire(bench: &Bench, relay: Registered) {
    bench.let_expire(relay).await;
    while let Some(member) = shares(bench).await.member(relay.registration) {
        tokio::time::sleep(member.lease_left.max(Duration::from_millis(1))).await;
    }
}

/// A dies, B is told to settle and gives up before that: whoever comes next waits for the rest.
async fn a_release_by_who_took_over_keeps_the_settle_time(bench: Bench) {
    let first = bench.own().await;
    let second = bench.register("relay-b", LONG).await;
    fence(&bench, second, first.relay).await;
    let second = bench.own_as(second).await;
    assert!(second.claim.settle > SETTLE / 2);
    let short = Duration::from_millis(1);
    withdraw(&bench, second.relay, short).await;
    let seen = shares(&bench).await;
    assert_eq!((seen.free, seen.settling), (0, seen.partitions));
    assert!(seen.settled_in.is_some_and(|wait| wait > SETTLE / 2));
    let third = bench.register("relay-c", LONG).await;
    let third = bench.own_as(third).await;
    assert!(third.claim.settle > SETTLE / 2, "{:?}", third.claim.settle);
    held(ask(&bench, third.relay, Want::AtMost(0)).await);
    let fourth = bench.own_as(second.relay).await;
    assert!(
        fourth.claim.settle > SETTLE / 2,
        "{:?}",
        fourth.claim.settle
    );
}

async fn a_restart_under_the_same_name_orphans_nothing(bench: Bench) {
    let before = bench.own().await;
    let written = bench.commit_numbered("k", 3).await;
    // Killed; its lease still runs when it is there again.
    let restarted = bench.register("relay-a", LONG).await;
    held(ask(&bench, restarted, Want::All).await);
    expire(&bench, before.relay).await;
    let seen = shares(&bench).await;
    assert_eq!((seen.dead, seen.members.len()), (seen.partitions, 1));
    let claim = owned(ask(&bench, restarted, Want::AtMost(u16::MAX)).await);
    assert!(claim.partitions.is_all() && claim.settle > SETTLE / 2);
    assert!(claim.epoch > before.claim.epoch);
    assert_fenced(bench.renew(before.relay, LONG).await);
    let owner = bench.open(restarted, claim).await;
    assert_eq!(ids(&owner.events().await), written);
}

/// A dies, B dies before it took A's fence: C has to take both.
async fn former_owners_are_kept_until_their_fences_are_taken(bench: Bench) {
    let first = bench.own().await;
    assert!(first.claim.former.is_empty());
    let second = bench.register("relay-b", LONG).await;
    fence(&bench, second, first.relay).await;
    let second = bench.own_as(second).await;
    assert_eq!(second.claim.former, [first.relay.registration]);
    assert_eq!(second.claim.store_id, first.claim.store_id);
    let third = bench.register("relay-c", LONG).await;
    fence(&bench, third, second.relay).await;
    let third = bench.own_as(third).await;
    let mut former = third.claim.former.clone();
    former.sort_unstable();
    let mut dead = [first.relay.registration, second.relay.registration];
    dead.sort_unstable();
    assert_eq!(former, dead);
    assert_fenced(second.claimed.fences_taken(&former).await);
    third.claimed.fences_taken(&former[..1]).await.unwrap();
    let again = third.again(&bench).await;
    assert_eq!(again.claim.former, former[1..]);
    again.claimed.fences_taken(&former[1..]).await.unwrap();
    assert!(again.again(&bench).await.claim.former.is_empty());
}

async fn a_clean_release_leaves_no_former_owner(bench: Bench) {
    let first = bench.own().await;
    withdraw(&bench, first.relay, Duration::ZERO).await;
    let second = bench.register("relay-b", LONG).await;
    let second = bench.own_as(second).await;
    assert!(second.claim.former.is_empty());
    // After an abort bytes may be under way.
    withdraw(&bench, second.relay, Duration::from_millis(1)).await;
    let third = bench.own_as(first.relay).await;
    assert_eq!(third.claim.former, [second.relay.registration]);
    withdraw(&bench, first.relay, Duration::ZERO).await;
    // Nobody took the fence; for itself it does so by opening a lane.
    let back = bench.own_as(second.relay).await;
    assert!(back.claim.former.is_empty());
}

async fn a_fenced_relay_cannot_leave(bench: Bench) {
    let first = bench.own().await;
    let second = bench.register("relay-b", LONG).await;
    fence(&bench, second, first.relay).await;
    assert_fenced(bench.store.leave(first.relay, Duration::ZERO).await);
    let heir = bench.own_as(second).await;
    assert!(
        heir.claim.settle > SETTLE / 2,
        "what it owned has to settle"
    );
}

async fn hand_overs_are_on_record(bench: Bench) {
    let first = bench.own().await;
    let second = bench.register("relay-b", LONG).await;
    fence(&bench, second, first.relay).await;
    bench.own_as(second).await;
    withdraw(&bench, second, Duration::ZERO).await;
    let third = bench.register("relay-c", LONG).await;
    bench.own_as(third).await;
    let leave = bench.store.leave(third, Duration::ZERO);
    leave.await.unwrap();
    let lines = bench.store.hand_overs(100).await.unwrap();
    let seen: Vec<_> = lines
        .iter()
        .map(|line| (line.action.as_str(), line.relay.as_deref()))
        .collect();
    let expected = [
        ("release", Some("relay-c")),
        ("hand-over", Some("relay-c")),
        ("withdraw", Some("relay-b")),
        ("take-over", Some("relay-b")),
        ("fence", Some("relay-b")),
    ];
    assert_eq!(seen, expected, "newest first");
    for (line, other) in [(1, "relay-b"), (3, "relay-a"), (4, "relay-a")] {
        assert!(lines[line].detail.contains(other), "{:?}", lines[line]);
    }
    assert!(lines[4].detail.contains("its process is gone"));
    for line in &lines[..4] {
        assert_eq!(line.destination.as_deref(), Some(DESTINATION));
    }
    let two = bench.store.hand_overs(2).await.unwrap();
    assert_eq!(two, lines[..2]);
}

async fn a_dead_relays_part_settles_before_others_get_it(bench: Bench) {
    let (dead, heir) = halves(&bench).await;
    let written = bench.commit_numbered("k", 2).await;
    let read = dead.whole().await;
    expire(&bench, dead.relay).await;
    let (half, all) = (dead.claim.partitions.len(), dead.claim.partitions.count());
    let seen = shares(&bench).await;
    assert_eq!((seen.dead, seen.free, seen.settling), (half, 0, 0));
    let revoke = bench.store.revoke(heir.relay, DESTINATION, SETTLE);
    revoke.await.unwrap();
    let seen = shares(&bench).await;
    assert_eq!((seen.dead, seen.free, seen.settling), (0, 0, half));
    let wait = seen.settled_in.unwrap();
    assert!(wait <= SETTLE && wait > SETTLE / 2, "{wait:?}");
    assert_fenced(bench.renew(dead.relay, LONG).await);
    assert_fenced(dead.claimed.advance(read.end(), &seqs(&read.events)).await);
    // Revoking touched nothing of the heir's, and gives it no partition that is to settle.
    let mut delivered = ids(&heir.deliver_all().await);
    let heir = own_some(&bench, heir.relay, all).await;
    assert_eq!(
        (heir.claim.partitions.len(), heir.claim.settle),
        (half, Duration::ZERO)
    );
    // An owner of nothing may wait for them.
    let other = bench.register("relay-c", LONG).await;
    let other = own_some(&bench, other, all).await;
    assert_eq!(other.claim.partitions, dead.claim.partitions);
    assert!(other.claim.settle > SETTLE / 2);
    assert!(other.claim.epoch > dead.claim.epoch);
    delivered.extend(ids(&other.deliver_all().await));
    assert_eq!(delivered, written);
}

async fn what_is_given_up_unsettled_settles(bench: Bench) {
    let owner = bench.own().await;
    let all = owner.claim.partitions.count();
    let request = ClaimRequest {
        want: Want::AtMost(all / 4),
        unsettled: SETTLE,
        ..whole(DESTINATION)
    };
    let claim = owned(bench.store.claim(owner.relay, &request).await.unwrap());
    assert_eq!(
        (claim.partitions.len(), claim.settle),
        (all / 4, Duration::ZERO)
    );
    let seen = shares(&bench).await;
    assert_eq!((seen.free, seen.settling), (0, all - all / 4));
    let back = own_some(&bench, owner.relay, all).await;
    assert_eq!(back.claim.partitions, claim.partitions);
    let other = bench.register("relay-b", LONG).await;
    let other = own_some(&bench, other, all).await;
    assert_eq!(other.claim.partitions.len(), all - all / 4);
    assert!(other.claim.settle > SETTLE / 2);
    assert_eq!(other.claim.former, [owner.relay.registration]);
}

async fn a_former_owner_comes_with_its_partitions(bench: Bench) {
    let (dead, alive) = halves(&bench).await;
    let heir = bench.register("relay-c", LONG).await;
    fence(&bench, heir, dead.relay).await;
    let heir = own_some(&bench, heir, u16::MAX).await;
    assert_eq!(heir.claim.former, [dead.relay.registration]);
    let alive = own_some(&bench, alive.relay, u16::MAX).await;
    assert!(alive.claim.former.is_empty(), "none of its own");
}
