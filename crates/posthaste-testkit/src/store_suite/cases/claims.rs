//! The right to move a cursor.

use std::time::Duration;

use posthaste_engine::{
    ClaimOutcome, ClaimRequest, DeadAction, DestinationState, ParkedFilter, Settlement, Start,
    StoreError, Wanted,
};

use super::{Case, cases};
use crate::store_suite::bench::{
    ADDRESS, Bench, DESTINATION, LONG, SETTLE, SHORT, assert_fenced, ids, owned, parking,
    registration, seqs, side_read_whole, whole,
};

pub(super) fn cases() -> Vec<Case> {
    cases![
        a_live_relay_holds_its_destination,
        a_lease_that_ended_is_taken_over,
        a_fenced_relay_is_taken_over_at_once,
        a_fenced_relay_never_comes_back,
        a_fenced_relay_creates_no_destination,
        fencing_needs_a_relay_that_is_not_fenced,
        claiming_again_raises_the_epoch,
        an_old_epoch_changes_nothing,
        an_old_claim_cannot_be_opened,
        a_renewal_tells_what_is_held,
        a_renewed_lease_is_not_taken,
        leaving_releases_at_once,
        a_release_carries_what_is_unsettled,
        settle_is_never_lowered,
        one_of_many_claims_wins,
        a_changed_address_is_kept,
        two_addresses_are_not_served_at_once,
        a_dead_relay_keeps_nobody_from_another_address,
        another_cluster_is_told_once,
    ]
}

async fn a_live_relay_holds_its_destination(bench: Bench) {
    let owner = bench.own().await;
    assert_eq!(owner.claim.destination, DESTINATION);
    assert_eq!(owner.claim.settle, Duration::ZERO);
    assert_eq!(owner.claim.wanted, Wanted::whole(DestinationState::Active));
    assert!(owner.claim.partitions.is_all());

    let store = bench.outbox.store().await;
    let other = store
        .register(&registration("relay-b", LONG))
        .await
        .unwrap();
    assert_ne!(other.registration, owner.relay.registration);
    let outcome = store.claim(other, &whole(DESTINATION)).await.unwrap();
    let ClaimOutcome::Held(shares) = outcome else {
        panic!("taken from a live relay: {outcome:?}");
    };
    let expected = registration("relay-a", LONG);
    let holder = shares.member(owner.relay.registration).unwrap();
    assert_eq!(holder.owned, shares.partitions);
    assert_eq!(holder.name, "relay-a");
    assert_eq!(holder.host, expected.host);
    assert!(holder.lease_left <= LONG && holder.lease_left > LONG / 2);
    bench.commit_numbered("k", 1).await;
    assert_eq!(owner.deliver_all().await.len(), 1, "still the owner's");
}

async fn a_lease_that_ended_is_taken_over(bench: Bench) {
    let owner = bench.own().await;
    let written = bench.commit_numbered("k", 5).await;
    let read = owner.whole().await;
    let at = read.cursor_at(1);
    owner
        .claimed
        .advance(&at, &seqs(&read.events[..2]))
        .await
        .unwrap();

    bench.let_expire(owner.relay).await;
    let heir = bench.register("relay-b", LONG).await;
    let claim = bench.take_over(heir, DESTINATION).await;
    assert!(claim.epoch > owner.claim.epoch);
    assert!(
        claim.settle <= SETTLE && claim.settle > SETTLE / 2,
        "{:?}",
        claim.settle
    );
    let heir = bench.open(heir, claim).await;

    assert_fenced(owner.claimed.advance(read.end(), &seqs(&read.events)).await);
    assert_fenced(bench.renew(owner.relay, LONG).await);
    assert_eq!(ids(&heir.events().await), written[2..]);
}

async fn a_fenced_relay_is_taken_over_at_once(bench: Bench) {
    let owner = bench.own().await;
    let heir = bench.register("relay-b", LONG).await;
    bench
        .store
        .fence(heir, owner.relay.registration, "its process is gone")
        .await
        .unwrap();
    let claim = owned(bench.claim(heir, DESTINATION, Start::Oldest).await);
    assert!(claim.epoch > owner.claim.epoch);
    assert!(claim.settle > SETTLE / 2, "{:?}", claim.settle);
}

async fn a_fenced_relay_never_comes_back(bench: Bench) {
    let owner = bench.own().await;
    bench.commit_numbered("k", 1).await;
    let read = owner.whole().await;
    let other = bench.register("relay-b", LONG).await;
    bench
        .store
        .fence(other, owner.relay.registration, "its process is gone")
        .await
        .unwrap();
    assert_fenced(bench.renew(owner.relay, LONG).await);
    assert_fenced(bench.store.claim(owner.relay, &whole(DESTINATION)).await);
    assert_fenced(owner.claimed.advance(read.end(), &seqs(&read.events)).await);
    // Its name may: a restart registers anew.
    let restarted = bench.register("relay-a", LONG).await;
    let owner = bench.own_as(restarted).await;
    assert_eq!(ids(&owner.events().await), ids(&read.events));
}

async fn a_fenced_relay_creates_no_destination(bench: Bench) {
    let other = bench.register("relay-a", LONG).await;
    let fenced = bench.register("relay-b", LONG).await;
    let why = "its process is gone";
    let store = &bench.store;
    store.fence(other, fenced.registration, why).await.unwrap();
    assert_fenced(store.claim(fenced, &whole(DESTINATION)).await);
    assert!(store.status().await.unwrap().destinations.is_empty());
    // Nor is it told that there is nothing to free.
    assert_fenced(store.revoke(fenced, DESTINATION, SETTLE).await);
}

async fn fencing_needs_a_relay_that_is_not_fenced(bench: Bench) {
    let owner = bench.own().await;
    let other = bench.register("relay-b", LONG).await;
    bench
        .store
        .fence(owner.relay, other.registration, "its process is gone")
        .await
        .unwrap();
    let back = bench
        .store
        .fence(other, owner.relay.registration, "revenge")
        .await;
    assert_fenced(back);
    bench.renew(owner.relay, LONG).await.unwrap();
}

async fn claiming_again_raises_the_epoch(bench: Bench) {
    let owner = bench.own().await;
    let again = owner.again(&bench).await;
    assert!(again.claim.epoch > owner.claim.epoch);
    assert_eq!(again.claim.settle, Duration::ZERO, "nobody died");
}

async fn an_old_epoch_changes_nothing(bench: Bench) {
    bench.commit_numbered("k", 4).await;
    let old = bench.own().await;
    let read = old.whole().await;
    let dead = parking(&read, 0, None);
    old.claimed.park(std::slice::from_ref(&dead)).await.unwrap();
    old.claimed
        .advance(&dead.at, &[dead.event.seq()])
        .await
        .unwrap();
    let all = ParkedFilter::default();
    assert_eq!(bench.store.act(&all, DeadAction::Retry).await.unwrap(), 1);
    let copy = old.claimed.due(10).await.unwrap().events.remove(0);
    let mut side = old.claimed.side_read(&["k".into()]).await.unwrap();

    let new = old.again(&bench).await;
    let before = new.claimed.markers(None, 10).await.unwrap();
    assert_fenced(old.claimed.advance(read.end(), &seqs(&read.events)).await);
    assert_fenced(old.claimed.park(&[parking(&read, 1, None)]).await);
    assert_fenced(old.claimed.settle(copy.id, &Settlement::Delivered).await);
    assert_fenced(side.advance(read.end(), &seqs(&read.events)).await);
    assert_fenced(old.claimed.join(&["k".into()], read.end()).await);
    // Nothing depends on what is reported, so its answer is the store's business.
    drop(old.claimed.report("open", Some("away")).await);
    let seen = bench.store.status().await.unwrap();
    assert_eq!(seen.destinations[0].last_error, None);

    let after = new.claimed.markers(None, 10).await.unwrap();
    assert_eq!((before.len(), after.len()), (1, 1));
    assert!(!after[0].released);
    assert_eq!(new.claimed.due(10).await.unwrap().events.len(), 1);
    let mut side = new.claimed.side_read(&["k".into()]).await.unwrap();
    let (rest, until) = new.up_to_joinable().await;
    let waits = ids(&read.events[1..]);
    assert_eq!(ids(&rest), bench.brought_of_blocked(&waits));
    let behind = side_read_whole(&mut *side, &until).await;
    assert_eq!(
        ids(&behind.events),
        ids(&read.events[1..]),
        "the marker stands"
    );
}

async fn an_old_claim_cannot_be_opened(bench: Bench) {
    let owner = bench.own().await;
    owner.again(&bench).await;
    assert_fenced(bench.store.open(&owner.claim).await.map(|_| "opened"));
}

async fn a_renewal_tells_what_is_held(bench: Bench) {
    let owner = bench.own().await;
    bench.claim(owner.relay, "other", Start::Oldest).await;
    let mut held = bench.renew(owner.relay, LONG).await.unwrap().destinations;
    held.sort_by(|(a, ..), (b, ..)| a.cmp(b));
    for ((name, wanted, shares), expected) in held.iter().zip([DESTINATION, "other"]) {
        assert_eq!(
            (name.as_str(), wanted.state),
            (expected, DestinationState::Active)
        );
        let me = shares.member(owner.relay.registration).unwrap();
        assert_eq!((me.owned, shares.free), (shares.partitions, 0));
    }
    assert_eq!(held.len(), 2);
    let stranger = bench.register("relay-b", LONG).await;
    let held = bench.renew(stranger, LONG).await.unwrap().destinations;
    assert!(held.is_empty(), "{held:?}");
}

async fn a_renewed_lease_is_not_taken(bench: Bench) {
    let owner = bench.own().await;
    bench.let_expire(owner.relay).await;
    // Before anybody took over, a late renewal still counts.
    tokio::time::sleep(SHORT * 2).await;
    bench.renew(owner.relay, LONG).await.unwrap();
    let other = bench.register("relay-b", LONG).await;
    let outcome = bench.claim(other, DESTINATION, Start::Oldest).await;
    let ClaimOutcome::Held(shares) = outcome else {
        panic!("taken from a live relay: {outcome:?}");
    };
    let holder = shares.member(owner.relay.registration).unwrap();
    assert!(holder.lease_left > SHORT);
    assert_eq!(owner.deliver_all().await.len(), 0);
}

async fn leaving_releases_at_once(bench: Bench) {
    let owner = bench.own().await;
    let written = bench.commit_numbered("k", 3).await;
    let read = owner.whole().await;
    bench
        .store
        .leave(owner.relay, Duration::ZERO)
        .await
        .unwrap();
    let heir = bench.register("relay-b", LONG).await;
    let heir = bench.own_as(heir).await;
    assert_eq!(heir.claim.settle, Duration::ZERO);
    assert!(heir.claim.epoch > owner.claim.epoch);
    assert_fenced(owner.claimed.advance(read.end(), &seqs(&read.events)).await);
    assert_fenced(bench.renew(owner.relay, LONG).await);
    assert_eq!(ids(&heir.events().await), written);
}

async fn a_release_carries_what_is_unsettled(bench: Bench) {
    let owner = bench.own().await;
    bench.store.leave(owner.relay, SETTLE).await.unwrap();
    let heir = bench.register("relay-b", LONG).await;
    let heir = bench.own_as(heir).await;
    assert!(heir.claim.settle > SETTLE / 2, "{:?}", heir.claim.settle);
}

async fn settle_is_never_lowered(bench: Bench) {
    let owner = bench.own().await;
    bench.store.leave(owner.relay, SETTLE).await.unwrap();
    for name in ["relay-b", "relay-c"] {
        let relay = bench.register(name, LONG).await;
        let heir = bench.own_as(relay).await;
        assert!(
            heir.claim.settle > SETTLE / 2,
            "{name}: {:?}",
            heir.claim.settle
        );
        let again = heir.again(&bench).await;
        assert!(
            again.claim.settle > SETTLE / 2,
            "{name}: {:?}",
            again.claim.settle
        );
        bench.store.leave(relay, Duration::ZERO).await.unwrap();
    }
}

async fn one_of_many_claims_wins(bench: Bench) {
    let mut claims = tokio::task::JoinSet::new();
    for number in 0..8 {
        let store = bench.outbox.store().await;
        let relay = store
            .register(&registration(&format!("relay-{number}"), LONG))
            .await
            .unwrap();
        claims.spawn(async move { store.claim(relay, &whole(DESTINATION)).await.unwrap() });
    }
    let outcomes = claims.join_all().await;
    let won = outcomes
        .iter()
        .filter(|outcome| matches!(outcome, ClaimOutcome::Owned(_)))
        .count();
    assert_eq!(won, 1, "{outcomes:?}");
}

async fn a_changed_address_is_kept(bench: Bench) {
    let owner = bench.own().await;
    bench.commit_numbered("k", 3).await;
    owner.deliver_all().await;
    let pending = bench.commit_numbered("k", 1).await;
    let claim = bench.store.claim(owner.relay, &elsewhere(false)).await;
    assert_another_kind_is_refused(claim);
    assert_eq!(address(&bench).await, ADDRESS);

    let claim = bench.store.claim(owner.relay, &elsewhere(true)).await;
    let owner = bench.open(owner.relay, owned(claim.unwrap())).await;
    assert_eq!(bench.store.status().await.unwrap().destinations.len(), 1);
    assert_eq!(address(&bench).await, ELSEWHERE);
    assert_eq!(
        ids(&owner.events().await),
        pending,
        "progress is the name's"
    );
    let back = bench.store.claim(owner.relay, &whole(DESTINATION)).await;
    assert_another_kind_is_refused(back);
}

async fn two_addresses_are_not_served_at_once(bench: Bench) {
    let owner = bench.own().await;
    let other = bench.register("relay-b", LONG).await;
    for _ in 0..2 {
        let claim = bench.store.claim(other, &elsewhere(true)).await.unwrap();
        let ClaimOutcome::Elsewhere { address, shares } = claim else {
            panic!("served at two addresses: {claim:?}");
        };
        assert_eq!(address, ADDRESS);
        let members: Vec<_> = shares.members.iter().map(|m| m.registration).collect();
        assert_eq!(members, [owner.relay.registration], "it is not enlisted");
    }
    assert_eq!(address(&bench).await, ADDRESS);
    bench.commit_numbered("k", 2).await;
    assert_eq!(owner.deliver_all().await.len(), 2, "still the owner's");

    let left = bench.store.leave(owner.relay, Duration::ZERO);
    left.await.unwrap();
    let claim = bench.store.claim(other, &elsewhere(true)).await.unwrap();
    assert!(owned(claim).partitions.is_all());
    assert_eq!(address(&bench).await, ELSEWHERE);
}

async fn a_dead_relay_keeps_nobody_from_another_address(bench: Bench) {
    let owner = bench.own().await;
    bench.let_expire(owner.relay).await;
    let heir = bench.register("relay-b", LONG).await;
    loop {
        match bench.store.claim(heir, &elsewhere(true)).await.unwrap() {
            ClaimOutcome::Owned(_) => break,
            // Held where the lease ends in the middle of the claim: after it looked whom to fence.
            ClaimOutcome::Elsewhere { .. } | ClaimOutcome::Held(_) => {
                tokio::time::sleep(SHORT / 4).await;
            }
        }
    }
    assert_fenced(bench.store.claim(owner.relay, &whole(DESTINATION)).await);
    assert_eq!(address(&bench).await, ELSEWHERE);
}

async fn another_cluster_is_told_once(bench: Bench) {
    let owner = bench.own().await;
    let reached = async |cluster: &str| owner.claimed.reached(cluster).await.unwrap();
    assert_eq!(reached("one").await, None);
    assert_eq!(reached("one").await, None);
    assert_eq!(reached("other").await.as_deref(), Some("one"));
    assert_eq!(reached("other").await, None);
    let owner = owner.again(&bench).await;
    let back = owner.claimed.reached("one").await.unwrap();
    assert_eq!(back.as_deref(), Some("other"), "a claim keeps it");
    let old = owner.claimed;
    bench.own_as(owner.relay).await;
    assert_fenced(old.reached("other").await);
}

const ELSEWHERE: &str = "file:///elsewhere";

fn elsewhere(retarget: bool) -> ClaimRequest<'static> {
    ClaimRequest {
        address: ELSEWHERE,
        retarget,
        ..whole(DESTINATION)
    }
}

async fn address(bench: &Bench) -> String {
    let status = bench.store.status().await.unwrap();
    status.destinations[0].address.clone()
}

fn assert_another_kind_is_refused(claim: Result<ClaimOutcome, StoreError>) {
    let Err(StoreError::Misconfigured { reason, .. }) = claim else {
        panic!("expected Misconfigured, got {claim:?}");
    };
    for part in [DESTINATION, ADDRESS, ELSEWHERE, "--retarget"] {
        assert!(reason.contains(part), "{reason}");
    }
}
