//! How relays share a destination: who owns what, and who sees it.

use std::{collections::BTreeSet, time::Duration};

use posthaste_engine::{
    ClaimOutcome, ClaimRequest, DeadAction, Member, ParkedFilter, Partitions, Registered,
    Settlement, Shares, Want,
};

use super::{Case, cases};
use crate::store_suite::bench::{
    Bench, DESTINATION, LONG, Owner, SETTLE, assert_fenced, ids, owned, parking, registration,
    seqs, whole,
};

pub(super) fn cases() -> Vec<Case> {
    cases![
        wanting_none_only_enlists,
        wanting_none_gives_everything_up,
        a_number_is_all_where_nothing_is_shared_out,
        members_see_each_other,
        who_withdraws_serves_no_longer,
        partitions_are_owned_by_one_relay_each needs SharesOut,
        concurrent_claims_share_out needs SharesOut,
        a_live_owner_is_not_robbed needs SharesOut,
        all_means_all_or_nothing needs SharesOut,
        what_owners_say_of_the_destination_counts needs SharesOut,
        a_fenced_relay_says_nothing_any_more needs SharesOut,
        who_lost_a_part_is_refused_for_all needs SharesOut,
        another_look_is_asked_for_when_shares_change needs SharesOut,
    ]
}

/// The relay's claim of so many partitions.
pub(super) async fn ask(bench: &Bench, relay: Registered, want: Want) -> ClaimOutcome {
    let request = ClaimRequest {
        want,
        ..whole(DESTINATION)
    };
    bench.store.claim(relay, &request).await.unwrap()
}

/// The relay with so many partitions at the most.
pub(super) async fn own_some(bench: &Bench, relay: Registered, count: u16) -> Owner {
    let claim = owned(ask(bench, relay, Want::AtMost(count)).await);
    bench.open(relay, claim).await
}

pub(super) async fn shares(bench: &Bench) -> Shares {
    bench.store.shares(DESTINATION).await.unwrap()
}

/// Two relays with half of the partitions each.
pub(super) async fn halves(bench: &Bench) -> (Owner, Owner) {
    let first = bench.register("relay-a", LONG).await;
    let second = bench.register("relay-b", LONG).await;
    ask(bench, first, Want::AtMost(0)).await;
    let all = shares(bench).await.partitions;
    let first = own_some(bench, first, all / 2).await;
    (first, own_some(bench, second, all).await)
}

pub(super) async fn withdraw(bench: &Bench, relay: Registered, unsettled: Duration) {
    let withdraw = bench.store.withdraw(relay, DESTINATION, unsettled);
    withdraw.await.unwrap();
}

pub(super) async fn fence(bench: &Bench, by: Registered, dead: Registered) {
    let why = "its process is gone";
    let fence = bench.store.fence(by, dead.registration, why);
    fence.await.unwrap();
}

pub(super) fn held(outcome: ClaimOutcome) -> Shares {
    match outcome {
        ClaimOutcome::Held(shares) => shares,
        other => panic!("not held: {other:?}"),
    }
}

fn numbers(partitions: &Partitions) -> BTreeSet<u16> {
    partitions.iter().collect()
}

async fn wanting_none_only_enlists(bench: Bench) {
    let relay = bench.register("relay-a", LONG).await;
    let seen = held(ask(&bench, relay, Want::AtMost(0)).await);
    assert!(seen.partitions.is_power_of_two());
    assert_eq!(
        (seen.free, seen.settling, seen.dead),
        (seen.partitions, 0, 0)
    );
    assert_eq!(seen.member(relay.registration).map(|m| m.owned), Some(0));
    assert_eq!(shares(&bench).await.members.len(), 1);
    let renewal = bench.renew(relay, LONG).await.unwrap();
    assert_eq!(renewal.destinations.len(), 1);
    let unknown = bench.store.shares("unknown").await;
    assert!(unknown.is_err_and(|error| !error.is_retryable()));
}

async fn wanting_none_gives_everything_up(bench: Bench) {
    let owner = bench.own().await;
    let written = bench.commit_numbered("k", 2).await;
    let read = owner.whole().await;
    let seen = held(ask(&bench, owner.relay, Want::AtMost(0)).await);
    assert_eq!(seen.free, seen.partitions);
    assert_eq!(
        seen.member(owner.relay.registration).map(|m| m.owned),
        Some(0)
    );
    assert_fenced(owner.claimed.advance(read.end(), &seqs(&read.events)).await);
    assert_fenced(bench.store.open(&owner.claim).await.map(|_| "opened"));
    let other = bench.register("relay-b", LONG).await;
    let other = bench.own_as(other).await;
    assert_eq!(other.claim.settle, Duration::ZERO);
    assert_eq!(ids(&other.events().await), written);
}

async fn a_number_is_all_where_nothing_is_shared_out(bench: Bench) {
    let shares_out = bench.store.info().shares_out;
    let relay = bench.register("relay-a", LONG).await;
    let claim = owned(ask(&bench, relay, Want::AtMost(1)).await);
    assert_eq!(claim.partitions.len() == 1, shares_out);
    assert_eq!(claim.partitions.is_all(), !shares_out);
    let other = bench.register("relay-b", LONG).await;
    let outcome = ask(&bench, other, Want::AtMost(1)).await;
    assert_eq!(matches!(outcome, ClaimOutcome::Owned(_)), shares_out);
}

async fn members_see_each_other(bench: Bench) {
    let owner = bench.own().await;
    let other = bench.register("relay-b", LONG).await;
    let request = ClaimRequest {
        want: Want::AtMost(0),
        partitions_max: 7,
        ..whole(DESTINATION)
    };
    held(bench.store.claim(other, &request).await.unwrap());
    let find = |seen: &Shares, relay: Registered| -> Member {
        seen.member(relay.registration).cloned().unwrap()
    };
    let seen = shares(&bench).await;
    assert!(seen.members.is_sorted_by_key(|member| member.registration));
    let (a, b) = (find(&seen, owner.relay), find(&seen, other));
    assert_eq!((a.owned, b.owned), (seen.partitions, 0));
    assert_eq!((a.partitions_max, b.partitions_max), (u16::MAX, 7));
    assert_eq!((a.reaches, a.leaving), (None, false));
    assert_eq!((&*a.name, &*b.name), ("relay-a", "relay-b"));
    assert_eq!(b.host, registration("relay-b", LONG).host);
    assert!(a.lease_left <= LONG && a.lease_left > LONG / 2);

    for breaker in ["half_open", "open", "half_open"] {
        owner.claimed.report(breaker, Some("away")).await.unwrap();
        let reaches = find(&shares(&bench).await, owner.relay).reaches;
        assert_eq!(reaches, Some(false), "{breaker}");
    }
    owner.claimed.report("closed", None).await.unwrap();
    bench.store.announce_leaving(owner.relay).await.unwrap();
    let renewal = bench.renew(other, LONG).await.unwrap();
    let (_, _, seen) = &renewal.destinations[0];
    let a = find(seen, owner.relay);
    assert_eq!((a.reaches, a.leaving), (Some(true), true));
    owner.deliver_all().await;
    let leave = bench.store.leave(owner.relay, Duration::ZERO);
    leave.await.unwrap();
    let seen = shares(&bench).await;
    assert_eq!((seen.members.len(), seen.free), (1, seen.partitions));
    assert_fenced(bench.store.announce_leaving(owner.relay).await);
}

async fn who_withdraws_serves_no_longer(bench: Bench) {
    let owner = bench.own().await;
    let written = bench.commit_numbered("k", 3).await;
    owner.events().await;
    withdraw(&bench, owner.relay, Duration::ZERO).await;
    let seen = shares(&bench).await;
    assert_eq!((seen.members.len(), seen.free), (0, seen.partitions));
    let renewal = bench.renew(owner.relay, LONG).await.unwrap();
    assert!(renewal.destinations.is_empty(), "{renewal:?}");
    assert_fenced(bench.store.open(&owner.claim).await.map(|_| "opened"));
    withdraw(&bench, owner.relay, Duration::ZERO).await;
    // It may come back, as if it had never been there.
    let again = owner.again(&bench).await;
    assert_eq!(again.claim.settle, Duration::ZERO);
    assert_eq!(ids(&again.events().await), written);
}

async fn partitions_are_owned_by_one_relay_each(bench: Bench) {
    let (first, second) = halves(&bench).await;
    let (a, b) = (&first.claim.partitions, &second.claim.partitions);
    assert_eq!((a.count(), b.count()), (a.count(), a.count()));
    assert_eq!((a.len(), b.len()), (a.count() / 2, a.count() / 2));
    assert!(numbers(a).is_disjoint(&numbers(b)));
    assert!(second.claim.epoch > first.claim.epoch, "of the destination");
    let seen = &second.claim.shares;
    assert_eq!(
        (seen.free, seen.members.len()),
        (0, 2),
        "the claim included"
    );
    let own = |owner: &Owner| seen.member(owner.relay.registration).map(|m| m.owned);
    assert_eq!((own(&first), own(&second)), (Some(a.len()), Some(b.len())));
    // Claiming anew keeps what is owned.
    let again = own_some(&bench, first.relay, a.count()).await;
    assert_eq!(&again.claim.partitions, a);
    assert!(again.claim.epoch > second.claim.epoch);
    // The other one's right stands all the same.
    bench.commit_numbered("k", 1).await;
    second.deliver_all().await;
    let status = bench.store.status().await.unwrap();
    let partitions: u32 = status.relays.iter().map(|relay| relay.partitions).sum();
    assert_eq!(partitions, u32::from(a.count()));
    assert_eq!(status.relays[0].shares[0].destination, DESTINATION);
}

async fn concurrent_claims_share_out(bench: Bench) {
    let mut claims = tokio::task::JoinSet::new();
    for number in 0..8 {
        let store = bench.outbox.store().await;
        let name = format!("relay-{number}");
        let relay = store.register(&registration(&name, LONG)).await.unwrap();
        claims.spawn(async move {
            let request = ClaimRequest {
                want: Want::AtMost(8),
                ..whole(DESTINATION)
            };
            store.claim(relay, &request).await.unwrap()
        });
    }
    let claims = claims.join_all().await;
    let claims: Vec<_> = claims.into_iter().map(owned).collect();
    let taken = claims.iter().flat_map(|claim| claim.partitions.iter());
    let taken: Vec<u16> = taken.collect();
    let distinct: BTreeSet<u16> = taken.iter().copied().collect();
    assert_eq!((taken.len(), distinct.len()), (64, 64));
    let epochs: BTreeSet<u64> = claims.iter().map(|claim| claim.epoch).collect();
    assert_eq!(epochs.len(), claims.len(), "each claim has its own epoch");
}

async fn a_live_owner_is_not_robbed(bench: Bench) {
    let (first, second) = halves(&bench).await;
    let written = bench.commit_numbered("k", 2).await;
    let third = bench.register("relay-c", LONG).await;
    for want in [Want::AtMost(u16::MAX), Want::AtMost(1), Want::All] {
        let seen = held(ask(&bench, third, want).await);
        assert_eq!((seen.members.len(), seen.free, seen.dead), (3, 0, 0));
    }
    let revoke = bench.store.revoke(third, DESTINATION, SETTLE);
    revoke.await.unwrap();
    let mut delivered = ids(&first.deliver_all().await);
    delivered.extend(ids(&second.deliver_all().await));
    assert_eq!(delivered, written);
}

async fn all_means_all_or_nothing(bench: Bench) {
    let (first, second) = halves(&bench).await;
    withdraw(&bench, second.relay, Duration::ZERO).await;
    let seen = held(ask(&bench, second.relay, Want::All).await);
    assert_eq!(seen.free, seen.partitions / 2);
    withdraw(&bench, first.relay, Duration::ZERO).await;
    let claim = owned(ask(&bench, second.relay, Want::All).await);
    assert!(claim.partitions.is_all());
    // Settling parts too, whoever gave them up.
    let request = ClaimRequest {
        want: Want::AtMost(1),
        unsettled: SETTLE,
        ..whole(DESTINATION)
    };
    owned(bench.store.claim(second.relay, &request).await.unwrap());
    let claim = owned(ask(&bench, second.relay, Want::All).await);
    assert!(claim.partitions.is_all() && !claim.settle.is_zero());
}

/// Of the destination: the breaker and the last error.
async fn health(bench: &Bench) -> (String, Option<String>) {
    let status = bench.store.status().await.unwrap();
    let destination = status.destinations.into_iter().next().unwrap();
    (destination.breaker, destination.last_error)
}

fn open_because(error: &str) -> (String, Option<String>) {
    ("open".to_owned(), Some(error.to_owned()))
}

async fn what_owners_say_of_the_destination_counts(bench: Bench) {
    let (first, second) = halves(&bench).await;
    first.claimed.report("open", Some("away")).await.unwrap();
    second.claimed.report("closed", None).await.unwrap();
    assert_eq!(health(&bench).await, open_because("away"));
    let first = own_some(&bench, first.relay, 1).await;
    assert!(first.claim.breaker_open);
    ask(&bench, first.relay, Want::AtMost(0)).await;
    let (breaker, error) = health(&bench).await;
    assert_eq!(breaker, "closed", "an owner reaches it");
    assert_eq!(error.as_deref(), Some("away"), "another relay does not");
}

async fn a_fenced_relay_says_nothing_any_more(bench: Bench) {
    let (first, second) = halves(&bench).await;
    first.claimed.report("open", Some("away")).await.unwrap();
    ask(&bench, first.relay, Want::AtMost(0)).await;
    second.claimed.report("closed", None).await.unwrap();
    fence(&bench, second.relay, first.relay).await;
    let revoke = bench.store.revoke(second.relay, DESTINATION, SETTLE);
    revoke.await.unwrap();
    assert_eq!(health(&bench).await, ("closed".to_owned(), None));
}

/// Also for what it still owns: what it read was read for all of them.
async fn who_lost_a_part_is_refused_for_all(bench: Bench) {
    bench.commit_numbered("k", 4).await;
    let old = bench.own().await;
    let read = old.whole().await;
    let parked = parking(&read, 0, Some(Duration::ZERO));
    old.claimed.park(&[parked]).await.unwrap();
    let copy = old.claimed.due(10).await.unwrap().events.remove(0);
    let mut side = old.claimed.side_read(&["k".into()]).await.unwrap();
    // One partition goes, whichever it is.
    let all = old.claim.partitions.count();
    let new = own_some(&bench, old.relay, all - 1).await;
    let other = bench.register("relay-b", LONG).await;
    let other = own_some(&bench, other, all).await;
    let slot = posthaste::slot("k");
    let keeps = |owner: &Owner| owner.claim.partitions.contains_slot(slot);
    assert_ne!(keeps(&new), keeps(&other));

    assert_fenced(bench.store.open(&old.claim).await.map(|_| "opened"));
    assert_fenced(old.claimed.advance(read.end(), &seqs(&read.events)).await);
    assert_fenced(old.claimed.park(&[parking(&read, 1, None)]).await);
    assert_fenced(old.claimed.settle(copy.id, &Settlement::Delivered).await);
    assert_fenced(side.advance(read.end(), &seqs(&read.events)).await);
    assert_fenced(old.claimed.join(&["k".into()], read.end()).await);
    assert_fenced(old.claimed.fences_taken(&[]).await);
    let filter = ParkedFilter::default();
    assert_eq!(
        bench.store.act(&filter, DeadAction::Retry).await.unwrap(),
        1
    );
    let keeper = if keeps(&new) { &new } else { &other };
    assert_eq!(keeper.claimed.markers(None, 10).await.unwrap().len(), 1);
    assert_eq!(keeper.claimed.due(10).await.unwrap().events.len(), 1);
}

async fn another_look_is_asked_for_when_shares_change(bench: Bench) {
    let owner = bench.own().await;
    let mut version = shares(&bench).await.version;
    let other = bench.register("relay-b", LONG).await;
    bench.commit_numbered("k", 1).await;
    owner.deliver_all().await;
    bench.renew(owner.relay, LONG).await.unwrap();
    assert_eq!(shares(&bench).await.version, version, "nothing changed");

    let mut changed = async |what: &str| {
        let seen = shares(&bench).await.version;
        assert!(seen > version, "{what}: {seen} after {version}");
        version = seen;
    };
    held(ask(&bench, other, Want::AtMost(0)).await);
    changed("one has come").await;
    let newest = shares(&bench).await.version;
    // As much as is needed to see a commit.
    bench.commit_numbered("k", 1).await;
    let pages = owner.pages(crate::store_suite::bench::PLENTY).await;
    assert_eq!(pages.last().map(|page| page.shares_version), Some(newest));
    own_some(&bench, owner.relay, 10).await;
    changed("some are free").await;
    let claimed = own_some(&bench, other, 10).await.claimed;
    changed("some are taken").await;
    claimed.report("open", Some("away")).await.unwrap();
    changed("one does not reach the broker").await;
    bench.store.announce_leaving(other).await.unwrap();
    changed("one is about to leave").await;
    withdraw(&bench, other, Duration::ZERO).await;
    changed("one has withdrawn").await;
    own_some(&bench, other, 10).await;
    changed("it is back").await;
    fence(&bench, owner.relay, other).await;
    changed("it is fenced").await;
    let revoke = bench.store.revoke(owner.relay, DESTINATION, SETTLE);
    revoke.await.unwrap();
    changed("its part is to settle").await;
    bench
        .store
        .leave(owner.relay, Duration::ZERO)
        .await
        .unwrap();
    changed("another one has left").await;
}
