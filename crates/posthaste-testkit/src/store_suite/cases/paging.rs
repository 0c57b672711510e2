//! Pages are bounded, and the cursor says exactly how far a destination has come.

use posthaste_engine::{Budget, Start, StoredEvent};

use super::{Case, cases};
use crate::store_suite::{
    NewEvent,
    bench::{Bench, DESTINATION, NOTHING, Owner, PLENTY, ids, owned, seqs},
};

pub(super) fn cases() -> Vec<Case> {
    cases![
        a_large_transaction_pages_within_the_budget,
        a_large_backlog_pages_within_the_budget,
        an_event_larger_than_the_budget_comes_alone,
        an_empty_outbox_answers_an_empty_page,
        without_an_advance_everything_comes_again,
        a_claim_goes_on_exactly_behind_the_stored_cursor,
        a_claim_goes_on_exactly_inside_a_page,
        the_cursor_never_goes_back,
        commits_between_pages_are_neither_lost_nor_repeated,
        an_idle_outbox_wants_no_advance,
        a_new_destination_starts_at_the_oldest_event,
        a_new_destination_starts_now,
        the_start_of_an_old_destination_is_its_cursor,
        two_destinations_are_independent,
    ]
}

const SMALL: Budget = Budget {
    events: 64,
    bytes: 16 << 10,
};

async fn reads_all_within(owner: &Owner, budget: Budget) -> Vec<StoredEvent> {
    let mut events = Vec::new();
    for page in owner.pages(budget).await {
        assert!(page.events.len() <= budget.events, "{}", page.events.len());
        let bytes: usize = page.events.iter().map(StoredEvent::footprint).sum();
        assert!(bytes <= budget.bytes || page.events.len() == 1, "{bytes}");
        owner.finish(&page).await;
        events.extend(page.events);
    }
    events
}

async fn a_large_transaction_pages_within_the_budget(bench: Bench) {
    let owner = bench.own().await;
    let events: Vec<_> = (0..600)
        .map(|number| NewEvent::keyed(&format!("k{}", number % 5), vec![b'x'; 700]))
        .collect();
    let written = bench.commit(&events).await;
    assert_eq!(ids(&reads_all_within(&owner, SMALL).await), written);
    assert_eq!(ids(&owner.again(&bench).await.events().await), NOTHING);
}

async fn a_large_backlog_pages_within_the_budget(bench: Bench) {
    let mut written = Vec::new();
    for number in 0..60 {
        written.extend(bench.commit_numbered(&format!("k{number}"), 7).await);
    }
    let owner = bench.own().await;
    assert_eq!(ids(&reads_all_within(&owner, SMALL).await), written);
    assert_eq!(ids(&owner.again(&bench).await.events().await), NOTHING);
}

async fn an_event_larger_than_the_budget_comes_alone(bench: Bench) {
    let written = bench.commit_numbered("k", 5).await;
    let tiny = Budget {
        events: 10,
        bytes: 1,
    };
    let owner = bench.own().await;
    let pages = owner.pages(tiny).await;
    let full: Vec<_> = pages
        .iter()
        .filter(|page| !page.events.is_empty())
        .collect();
    assert!(full.iter().all(|page| page.events.len() == 1));
    assert_eq!(ids(full.iter().flat_map(|page| &page.events)), written);
}

async fn an_empty_outbox_answers_an_empty_page(bench: Bench) {
    let owner = bench.own().await;
    for _ in 0..3 {
        assert_eq!(ids(&owner.events().await), NOTHING);
    }
}

async fn without_an_advance_everything_comes_again(bench: Bench) {
    let written = bench.commit_numbered("k", 20).await;
    let owner = bench.own().await;
    assert_eq!(ids(&owner.events().await), written);
    assert_eq!(ids(&owner.again(&bench).await.events().await), written);
}

async fn a_claim_goes_on_exactly_behind_the_stored_cursor(bench: Bench) {
    let owner = bench.own().await;
    bench.commit_numbered("k", 20).await;
    owner.deliver_all().await;
    let more = bench.commit_numbered("k", 3).await;
    let owner = owner.again(&bench).await;
    assert_eq!(ids(&owner.events().await), more);
}

async fn a_claim_goes_on_exactly_inside_a_page(bench: Bench) {
    let mut rest = bench.commit_numbered("k", 30).await;
    let mut owner = bench.own().await;
    // Each claim advances a little into what it read, and the next one goes on there.
    for step in [4, 1, 9, 2] {
        let read = owner.whole().await;
        assert_eq!(ids(&read.events), rest);
        let passed = seqs(&read.events[..step]);
        let at = read.cursor_at(step - 1);
        owner.claimed.advance(&at, &passed).await.unwrap();
        rest.drain(..step);
        owner = owner.again(&bench).await;
    }
    rest.extend(bench.commit_numbered("k", 2).await);
    assert_eq!(ids(&owner.deliver_all().await), rest);
    assert_eq!(ids(&owner.again(&bench).await.events().await), NOTHING);
}

async fn the_cursor_never_goes_back(bench: Bench) {
    bench.commit_numbered("k", 10).await;
    let owner = bench.own().await;
    let read = owner.whole().await;
    owner.finish_all(&read).await;
    let earlier = read.cursor_at(2);
    owner.claimed.advance(&earlier, &[]).await.unwrap();
    assert_eq!(ids(&owner.again(&bench).await.events().await), NOTHING);
}

async fn commits_between_pages_are_neither_lost_nor_repeated(bench: Bench) {
    let owner = bench.own().await;
    let mut written = bench.commit_numbered("k", 40).await;
    let mut read = Vec::new();
    let budget = Budget {
        events: 7,
        bytes: 1 << 20,
    };
    loop {
        let page = owner.page(budget).await;
        owner.finish(&page).await;
        read.extend(ids(&page.events));
        if written.len() < 60 {
            written.extend(bench.commit_numbered("k", 2).await);
        } else if page.caught_up {
            break;
        }
    }
    assert_eq!(read, written);
}

async fn an_idle_outbox_wants_no_advance(bench: Bench) {
    let owner = bench.own().await;
    bench.commit_numbered("k", 5).await;
    owner.deliver_all().await;
    // A store's notes beside the position may need a few rounds to catch up, but that must end.
    // Transactions of others on the server may move it again later.
    let mut quiet = 0;
    for _ in 0..50 {
        let page = owner.page(PLENTY).await;
        assert_eq!(ids(&page.events), NOTHING);
        if page.store_end {
            owner.finish(&page).await;
            quiet = 0;
        } else if quiet < 10 {
            quiet += 1;
        } else {
            return;
        }
    }
    panic!("still wants advances after 50 reads");
}

async fn a_new_destination_starts_at_the_oldest_event(bench: Bench) {
    let written = bench.commit_numbered("k", 5).await;
    assert_eq!(ids(&bench.own().await.events().await), written);
}

async fn a_new_destination_starts_now(bench: Bench) {
    bench.commit_numbered("k", 5).await;
    let relay = bench
        .register("relay-a", crate::store_suite::bench::LONG)
        .await;
    let claim = owned(bench.claim(relay, DESTINATION, Start::Now).await);
    let owner = bench.open(relay, claim).await;
    assert_eq!(ids(&owner.events().await), NOTHING);
    let behind = bench.commit_numbered("k", 2).await;
    assert_eq!(ids(&owner.deliver_all().await), behind);
    // Also when the claim was lost before its first advance.
    let more = bench.commit_numbered("k", 2).await;
    assert_eq!(ids(&owner.again(&bench).await.events().await), more);
}

async fn the_start_of_an_old_destination_is_its_cursor(bench: Bench) {
    let owner = bench.own().await;
    bench.commit_numbered("k", 5).await;
    owner.deliver_all().await;
    let pending = bench.commit_numbered("k", 2).await;
    let claim = owned(bench.claim(owner.relay, DESTINATION, Start::Now).await);
    let owner = bench.open(owner.relay, claim).await;
    assert_eq!(ids(&owner.events().await), pending);
}

async fn two_destinations_are_independent(bench: Bench) {
    let written = bench.commit_numbered("k", 10).await;
    let first = bench.own().await;
    let other = owned(bench.claim(first.relay, "other", Start::Oldest).await);
    let other = bench.open(first.relay, other).await;
    assert_eq!(ids(&first.deliver_all().await), written);
    let read = other.whole().await;
    assert_eq!(ids(&read.events), written);
    let at = read.cursor_at(3);
    other
        .claimed
        .advance(&at, &seqs(&read.events[..4]))
        .await
        .unwrap();

    assert_eq!(ids(&first.again(&bench).await.events().await), NOTHING);
    let again = owned(bench.claim(first.relay, "other", Start::Oldest).await);
    let again = bench.open(first.relay, again).await;
    assert_eq!(ids(&again.events().await), written[4..]);
}
