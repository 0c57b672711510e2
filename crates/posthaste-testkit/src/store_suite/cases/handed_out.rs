//! An event comes once in a claim, whatever goes on beside the reads, and what cannot move keeps
//! nothing from coming. A log has it by its cursor; a mark store needs a rule for each case.

use std::time::Duration;

use posthaste_engine::{AfterFailure, Budget, Parking, Settlement, Start, StoredEvent};
use uuid::Uuid;

use super::{Case, cases};
use crate::store_suite::{
    NewEvent,
    bench::{
        Bench, DESTINATION, LONG, NOTHING, Owner, PLENTY, Read, ids, owned, parking, seqs,
        side_read_whole,
    },
};

pub(super) fn cases() -> Vec<Case> {
    cases![
        what_was_read_does_not_come_again_in_a_claim,
        an_advance_beside_a_read_brings_nothing_twice,
        parking_beside_a_read_brings_nothing_twice,
        blocked_keys_at_the_head_starve_nothing,
        parking_finishes_nothing_that_was_not_read
            needs OpenTogether needs LateCommitDelaysOnlyItself,
        parking_finishes_nothing_that_was_read_behind_it
            needs OpenTogether needs LateCommitDelaysOnlyItself,
        what_is_not_committed_at_the_start_is_pending
            needs OpenTogether needs LateCommitDelaysOnlyItself,
    ]
}

/// How often calls overlap: a server decides which of them comes first.
const ROUNDS: usize = 30;
const FEW: Budget = Budget {
    events: 10,
    bytes: 1 << 20,
};

async fn what_was_read_does_not_come_again_in_a_claim(bench: Bench) {
    let first = bench.commit_numbered("k", 20).await;
    let owner = bench.own().await;
    let read = owner.whole().await;
    assert_eq!(ids(&read.events), first);
    assert_eq!(ids(&owner.events().await), NOTHING);
    let (at, part) = (read.cursor_at(4), seqs(&read.events[..5]));
    owner.claimed.advance(&at, &part).await.unwrap();
    let more = bench.commit_numbered("k", 3).await;
    assert_eq!(ids(&owner.events().await), more);
    assert_eq!(ids(&owner.events().await), NOTHING);
}

async fn an_advance_beside_a_read_brings_nothing_twice(bench: Bench) {
    let owner = bench.own().await;
    for _ in 0..ROUNDS {
        let written = bench.commit_numbered("k", 5).await;
        let read = owner.whole().await;
        assert_eq!(ids(&read.events), written);
        let (beside, ()) = tokio::join!(owner.page(PLENTY), owner.finish_all(&read));
        assert_eq!(ids(&beside.events), NOTHING, "handed out");
        assert_eq!(ids(&owner.deliver_all().await), NOTHING, "finished");
    }
}

async fn parking_beside_a_read_brings_nothing_twice(bench: Bench) {
    let owner = bench.own().await;
    for _ in 0..ROUNDS {
        let written = bench.commit(&[NewEvent::unkeyed("refused")]).await;
        let read = owner.whole().await;
        assert_eq!(ids(&read.events), written);
        let parked = [parking(&read, 0, None)];
        let (beside, answer) = tokio::join!(owner.page(PLENTY), owner.claimed.park(&parked));
        answer.unwrap();
        assert_eq!(ids(&beside.events), NOTHING, "handed out");
        assert_eq!(ids(&owner.events().await), NOTHING, "parked");
        owner.finish_all(&read).await;
    }
}

async fn blocked_keys_at_the_head_starve_nothing(bench: Bench) {
    const KEYS: usize = 5;
    const EACH: usize = 40;
    let keys: Vec<String> = (0..KEYS).map(|key| format!("blocked {key}")).collect();
    let one_of_each = keys.iter().map(|key| NewEvent::keyed(key, "refused"));
    bench.commit(&one_of_each.collect::<Vec<_>>()).await;
    let owner = bench.own().await;
    let read = owner.whole().await;
    let parked: Vec<Parking> = (0..KEYS).map(|at| parking(&read, at, None)).collect();
    owner.claimed.park(&parked).await.unwrap();
    owner.finish_all(&read).await;
    for key in &keys {
        bench.commit_numbered(key, EACH).await;
    }
    let others = bench.commit_numbered("other", 30).await;
    assert_eq!(first_of_others(&owner, others.len()).await, others);
    let owner = owner.again(&bench).await;
    assert_eq!(first_of_others(&owner, others.len()).await, others);
}

/// Reads until so many events of the key that does not wait have come. Nothing is finished.
async fn first_of_others(owner: &Owner, count: usize) -> Vec<Uuid> {
    let mut found = Vec::new();
    for _ in 0..100 {
        let page = owner.page(FEW).await;
        let is_other = |event: &&StoredEvent| event.key() == Some("other");
        found.extend(ids(page.events.iter().filter(is_other)));
        if found.len() >= count {
            return found;
        }
    }
    panic!("{} of {count} found", found.len());
}

/// Parks the event, and delivers its copy: the key may go on.
async fn parks_and_releases(owner: &Owner, parked: Parking) {
    owner
        .claimed
        .park(std::slice::from_ref(&parked))
        .await
        .unwrap();
    let copy = owner.claimed.due(10).await.unwrap().events.remove(0);
    let settled = owner.claimed.settle(copy.id, &Settlement::Delivered);
    settled.await.unwrap();
}

/// A read event, and one of its key that was inserted before and committed after the read: its
/// writers do not lock it.
async fn late_behind_a_read(bench: &Bench) -> (Owner, Read, Uuid) {
    let mut late = bench.outbox.writer().await;
    late.begin().await;
    let early_number = late.emit(&NewEvent::keyed("k", "late")).await;
    bench.commit_numbered("k", 1).await;
    let owner = bench.own().await;
    let read = owner.whole().await;
    late.commit().await;
    (owner, read, early_number)
}

async fn parking_finishes_nothing_that_was_not_read(bench: Bench) {
    let (owner, read, early_number) = late_behind_a_read(&bench).await;
    parks_and_releases(&owner, refused_once(&read)).await;
    assert_is_side_read(&bench, &owner, early_number).await;
}

/// The late one is read in a later page, and not decided when the first one is parked.
async fn parking_finishes_nothing_that_was_read_behind_it(bench: Bench) {
    let (owner, read, early_number) = late_behind_a_read(&bench).await;
    assert_eq!(ids(&owner.events().await), [early_number]);
    parks_and_releases(&owner, refused_once(&read)).await;
    assert_is_side_read(&bench, &owner, early_number).await;
}

fn refused_once(read: &Read) -> Parking {
    Parking {
        next: AfterFailure::RetryIn(Duration::ZERO),
        ..parking(read, 0, None)
    }
}

async fn assert_is_side_read(bench: &Bench, owner: &Owner, id: Uuid) {
    let again = owner.again(bench).await;
    let (_, stands) = again.up_to_joinable().await;
    let mut side = again.claimed.side_read(&["k".into()]).await.unwrap();
    let read = side_read_whole(&mut *side, &stands).await;
    assert_eq!(ids(&read.events), [id]);
}

async fn what_is_not_committed_at_the_start_is_pending(bench: Bench) {
    bench.commit_numbered("k", 2).await;
    let mut late = bench.outbox.writer().await;
    late.begin().await;
    let inserted = late.emit(&NewEvent::keyed("late", "1")).await;
    bench.commit_numbered("k", 2).await;
    let relay = bench.register("relay-a", LONG).await;
    let claim = owned(bench.claim(relay, DESTINATION, Start::Now).await);
    let owner = bench.open(relay, claim).await;
    assert_eq!(ids(&owner.deliver_all().await), NOTHING);
    late.commit().await;
    assert_eq!(ids(&owner.deliver_all().await), [inserted]);
}
