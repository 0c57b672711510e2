//! Each rule that a shipped statement carries is taken out of it once, on its way to the server:
//! then the history that the rule is against breaks a promise, and with the shipped text it does
//! not.

use super::{
    rewriting::{Cut, Rewriting},
    support::*,
};
use posthaste_engine::{
    Admin, AfterFailure, ClaimOutcome, Claimed, DeadAction, Leases, Ownership, Page, ParkedFilter,
    ParkedState, RelayReport, Settlement, Start, Store,
};
use posthaste_stores::postgres::PostgresStore;
use posthaste_testkit::servers::postgres::{Database, PostgresServer};

/// A database, and the store behind a proxy.
struct World {
    database: Database,
    store: PostgresStore,
}

impl World {
    fn emit(&self, key: &str) {
        self.database
            .psql(&format!("select posthaste.emit('t', 'x', key => '{key}')"));
    }

    /// All that says where destinations stand.
    fn places(&self) -> String {
        let sql = "select id, low, high, seq, floor from posthaste.cursors order by id";
        self.database.psql(sql)
    }

    /// The relay's lease is over, by the database's clock.
    fn end_lease(&self, name: &str) {
        self.database.psql(&format!(
            "update posthaste.relays set lease_until = clock_timestamp() where name = '{name}'"
        ));
    }

    /// Whether a late advance to this page's end leaves everything as it is.
    async fn is_refused(&self, claimed: &dyn Claimed, page: &Page) -> bool {
        let before = self.places();
        let advanced = claimed.advance(&page.end, &[]).await;
        assert_eq!(advanced.is_ok(), before != self.places());
        advanced.is_err()
    }
}

/// Plays a history twice, and answers through `kept` whether the promise held.
async fn carries(cuts: &[Cut], history: impl AsyncFn(&World) -> bool) {
    for cuts in [&[], cuts] {
        let database = fresh().await;
        let server = PostgresServer::shared(15).port();
        let proxy = Rewriting::start(server, cuts).await;
        let port = |port: u16| format!(":{port}/");
        let url = database.url().replace(&port(server), &port(proxy.port));
        let world = World {
            store: store(&url),
            database,
        };
        let kept = history(&world).await;
        proxy.assert_all_found();
        match cuts {
            [] => assert!(kept, "the shipped statement does not carry the rule"),
            _ => assert!(!kept, "nothing depends on {cuts:#?}"),
        }
    }
}

/// As [`carries`], for one text.
async fn carries_one(
    text: &'static str,
    instead: &'static str,
    history: impl AsyncFn(&World) -> bool,
) {
    carries(&[Cut { text, instead }], history).await;
}

/// An advance whose answer was lost is executed after its relay has claimed and read the cursor
/// again.
async fn an_old_claim_advances(world: &World) -> bool {
    world.emit("a");
    let relay = register(&world.store, "one").await;
    let old = reopen(&world.store, relay, Start::Oldest).await;
    let page = old.next(ALL).await.unwrap();
    assert_eq!(page.events.len(), 1);
    world.emit("a");
    let new = reopen(&world.store, relay, Start::Oldest).await;
    assert_eq!(drain(&new, ALL).await.len(), 2);
    world.is_refused(&*old, &page).await
}

/// A park whose answer was lost is executed after its relay has claimed, read the markers and gone
/// on.
async fn an_old_claim_parks(world: &World) -> bool {
    world.emit("a");
    let relay = register(&world.store, "one").await;
    let old = reopen(&world.store, relay, Start::Oldest).await;
    let page = old.next(ALL).await.unwrap();
    let new = reopen(&world.store, relay, Start::Oldest).await;
    assert!(new.markers(None, 9).await.unwrap().is_empty());
    let parked = old.park(&[parking(&page, 0, None)]).await;
    let markers = new.markers(None, 9).await.unwrap();
    assert_eq!(parked.is_ok(), markers.len() == 1);
    markers.is_empty()
}

/// The database lost its counters in a crash and began them anew, before an advance to a place of
/// the old ones.
async fn an_old_life_advances(world: &World) -> bool {
    world.emit("a");
    let old = open(&world.store, Start::Oldest).await;
    let page = old.next(ALL).await.unwrap();
    // As a crash leaves an unlogged table; the next relay that registers gives a new token.
    world.database.psql("truncate posthaste.incarnation");
    register(&world.store, "two").await;
    world.is_refused(&*old, &page).await
}

async fn an_old_life_parks(world: &World) -> bool {
    world.emit("a");
    let old = open(&world.store, Start::Oldest).await;
    let page = old.next(ALL).await.unwrap();
    world.database.psql("truncate posthaste.incarnation");
    register(&world.store, "two").await;
    old.park(&[parking(&page, 0, None)]).await.is_err()
}

/// Somebody fenced the relay, and has not taken anything over yet.
async fn a_fenced_relay_advances(world: &World) -> bool {
    world.emit("a");
    let one = register(&world.store, "one").await;
    let claimed = reopen(&world.store, one, Start::Oldest).await;
    let page = claimed.next(ALL).await.unwrap();
    let two = register(&world.store, "two").await;
    let why = "its process is gone";
    world.store.fence(two, one.registration, why).await.unwrap();
    world.is_refused(&*claimed, &page).await
}

async fn a_relay_without_a_lease_advances(world: &World) -> bool {
    world.emit("a");
    let one = register(&world.store, "one").await;
    let claimed = reopen(&world.store, one, Start::Oldest).await;
    let page = claimed.next(ALL).await.unwrap();
    world.end_lease("one");
    world.is_refused(&*claimed, &page).await
}

#[tokio::test]
async fn an_advance_tests_the_epoch() {
    let (text, instead) = ("\n    and c.epoch = $3::bigint and", "\n    and");
    carries_one(text, instead, an_old_claim_advances).await;
}

#[tokio::test]
async fn the_guard_tests_the_epoch() {
    let (text, instead) = ("\n        and c.epoch = $3::bigint and", "\n        and");
    carries_one(text, instead, an_old_claim_parks).await;
}

#[tokio::test]
async fn an_advance_tests_the_incarnation() {
    let text = "c.relay = $4::uuid and i.token = $5::uuid\n    and r.";
    let instead = "c.relay = $4::uuid\n    and r.";
    carries_one(text, instead, an_old_life_advances).await;
}

#[tokio::test]
async fn the_guard_tests_the_incarnation() {
    let text = "c.relay = $4::uuid and i.token = $5::uuid\n        and r.";
    let instead = "c.relay = $4::uuid and $5::uuid is not null\n        and r.";
    carries_one(text, instead, an_old_life_parks).await;
}

#[tokio::test]
async fn an_advance_tests_the_fence_and_the_lease() {
    const BOTH: &str = "r.fenced_at is null and r.lease_until > clock_timestamp()";
    let without_fence = "r.lease_until > clock_timestamp()";
    carries_one(BOTH, without_fence, a_fenced_relay_advances).await;
    let without_lease = "r.fenced_at is null";
    carries_one(BOTH, without_lease, a_relay_without_a_lease_advances).await;
}

/// A park is under way, held up behind its guard, when another relay takes over: it is done before
/// that, or not at all.
async fn a_park_meets_a_take_over(world: &World) -> bool {
    world.emit("a");
    let one = register(&world.store, "one").await;
    let claimed = reopen(&world.store, one, Start::Oldest).await;
    let page = claimed.next(ALL).await.unwrap();
    let two = register(&world.store, "two").await;
    // An insert of the same marker has to wait for this one.
    let other = writer(&world.database.url()).await;
    other
        .batch_execute(
            "begin;
             insert into posthaste.markers (destination_id, key, slot, low, floor, floor_min)
             select id, 'a', 0, '1:1:', 0, 0 from posthaste.destinations",
        )
        .await
        .unwrap();
    let parks = [parking(&page, 0, None)];
    let parked = claimed.park(&parks);
    let take_over = async {
        wait_for_waits(&world.database, 1).await;
        world.store.fence(two, one.registration, "").await.unwrap();
        let request = whole("null:");
        let claim = world.store.claim(two, &request);
        let held_up = wait_for_waits(&world.database, 2);
        tokio::select! {
            claim = claim => owned(claim.unwrap()).epoch > 0,
            () = held_up => false,
        }
    };
    let both = futures_util::future::join(parked, async {
        let taken_over_first = take_over.await;
        other.batch_execute("rollback").await.unwrap();
        taken_over_first
    });
    let (parked, taken_over_first) = both.await;
    !(parked.is_ok() && taken_over_first)
}

#[tokio::test]
async fn the_guard_locks_the_row_that_a_revocation_changes() {
    carries_one("\n    for share of c", "", a_park_meets_a_take_over).await;
}

/// The lease of an owner is over when another relay claims, and it renews then.
async fn an_owner_renews_late(world: &World) -> bool {
    let one = register(&world.store, "one").await;
    let old = claim(&world.store, one, Start::Oldest).await;
    let two = register(&world.store, "two").await;
    world.end_lease("one");
    let new = claim(&world.store, two, Start::Oldest).await;
    assert!(new.epoch > old.epoch);
    world
        .store
        .renew(one, LEASE, &RelayReport::new())
        .await
        .is_err()
}

#[tokio::test]
async fn the_fence_comes_before_the_epoch() {
    let cuts = [
        Cut {
            text: "where r.fenced_at is null and r.lease_until <= clock_timestamp() and",
            instead: "where false and",
        },
        Cut {
            text: "and (r.registration is null or r.fenced_at is not null)",
            instead: "and (r.registration is null or r.lease_until <= clock_timestamp())",
        },
    ];
    carries(&cuts, an_owner_renews_late).await;
}

#[tokio::test]
async fn a_fenced_relay_never_comes_back() {
    let text = "where registration = $1::uuid and fenced_at is null\n    returning";
    let instead = "where registration = $1::uuid\n    returning";
    carries_one(text, instead, an_owner_renews_late).await;
}

#[tokio::test]
async fn nobody_takes_what_a_live_relay_owns() {
    let text = "and (r.registration is null or r.fenced_at is not null)";
    carries_one(text, "", async |world: &World| {
        let one = register(&world.store, "one").await;
        claim(&world.store, one, Start::Oldest).await;
        let two = register(&world.store, "two").await;
        let claimed = world.store.claim(two, &whole("null:")).await.unwrap();
        matches!(claimed, ClaimOutcome::Held(_))
    })
    .await;
}

/// Whether the successor of a dead relay waits for its bytes, and knows whose fence to take.
async fn take_over(world: &World) -> (bool, bool) {
    let one = register(&world.store, "one").await;
    claim(&world.store, one, Start::Oldest).await;
    world.end_lease("one");
    let two = register(&world.store, "two").await;
    let claim = claim(&world.store, two, Start::Oldest).await;
    let fences = claim.former == [one.registration];
    (claim.settle > SETTLE / 2, fences)
}

#[tokio::test]
async fn a_revocation_sets_the_settle_time() {
    let text =
        "then greatest(c.not_before, clock_timestamp() + $3::bigint * interval '1 microsecond')";
    let settles = async |world: &World| take_over(world).await.0;
    carries_one(text, "then c.not_before", settles).await;
}

#[tokio::test]
async fn a_revocation_keeps_whose_fence_is_to_be_taken() {
    let text = "former = array_append(array_remove(c.former, dead.relay), dead.relay)";
    let fences = async |world: &World| take_over(world).await.1;
    carries_one(text, "former = c.former", fences).await;
}

#[tokio::test]
async fn what_an_operator_settled_stays_settled() {
    let text = "and (p.state in ('parked', 'dead') or $7::text = 'delivered')";
    carries_one(text, "", async |world: &World| {
        world.emit("a");
        let claimed = open(&world.store, Start::Oldest).await;
        let page = claimed.next(ALL).await.unwrap();
        let parks = [parking(&page, 0, AT_ONCE)];
        claimed.park(&parks).await.unwrap();
        let due = claimed.due(9).await.unwrap();
        // It is under way once more when an operator leaves it behind.
        let filter = ParkedFilter::default();
        let acted = world.store.act(&filter, DeadAction::Skip).await.unwrap();
        assert_eq!(acted, 1);
        let failed = Settlement::Failed {
            kind: "other",
            reason: "no such thing".to_owned(),
            next: AfterFailure::RetryIn(LEASE),
        };
        claimed.settle(due.events[0].id, &failed).await.unwrap();
        world.database.psql("select state from posthaste.parked") == "skipped"
    })
    .await;
}

/// A key is blocked and the cursor passes its followers; another life of the relay must find them.
async fn followers_are_found(world: &World) -> bool {
    world.emit("a");
    world.emit("a");
    let relay = register(&world.store, "one").await;
    let claimed = reopen(&world.store, relay, Start::Oldest).await;
    let page = claimed.next(ALL).await.unwrap();
    claimed.park(&[parking(&page, 0, None)]).await.unwrap();
    claimed.advance(&page.end, &[]).await.unwrap();
    let claimed = reopen(&world.store, relay, Start::Oldest).await;
    let filter = ParkedFilter::default();
    world.store.act(&filter, DeadAction::Skip).await.unwrap();
    let Ok(mut side) = claimed.side_read(&["a".into()]).await else {
        return false;
    };
    let standing = claimed.next(ALL).await.unwrap();
    let page = side.next(ALL, &standing.end).await.unwrap();
    page.events.len() == 1
}

#[tokio::test]
async fn a_parked_event_leaves_its_marker() {
    let text = "where f.key is not null and (f.state <> 'skipped' or ";
    carries_one(text, "where false and (", followers_are_found).await;
}

/// `join.sql`'s look at what holds a key.
const HELD_AT_ITS_JOIN: &str = concat!(
    "p.state in ('parked', 'dead') and p.settled_at is null\n\n",
    "            offset 0)\n    returning m.destination_id"
);

#[tokio::test]
async fn a_key_that_something_holds_is_not_joined() {
    let text = HELD_AT_ITS_JOIN;
    let instead = "false)\n    returning m.destination_id";
    carries_one(text, instead, async |world: &World| {
        world.emit("a");
        let claimed = open(&world.store, Start::Oldest).await;
        let page = claimed.next(ALL).await.unwrap();
        let parks = [parking(&page, 0, Some(LEASE))];
        claimed.park(&parks).await.unwrap();
        drop(claimed.join(&["a".into()], &page.end).await);
        claimed.markers(None, 9).await.unwrap().len() == 1
    })
    .await;
}

#[tokio::test]
async fn what_was_skipped_and_is_tried_again_holds_no_key() {
    let text = HELD_AT_ITS_JOIN;
    let instead = "p.state in ('parked', 'dead'))\n    returning m.destination_id";
    carries_one(text, instead, async |world: &World| {
        world.emit("a");
        let claimed = open(&world.store, Start::Oldest).await;
        let page = claimed.next(ALL).await.unwrap();
        let mut skipped = parking(&page, 0, None);
        skipped.next = AfterFailure::Skip;
        claimed.park(&[skipped]).await.unwrap();
        claimed.advance(&page.end, &[]).await.unwrap();
        let filter = ParkedFilter {
            state: Some(ParkedState::Skipped),
            ..ParkedFilter::default()
        };
        let retried = world.store.act(&filter, DeadAction::Retry).await.unwrap();
        assert_eq!(retried, 1);
        let due = claimed.due(9).await.unwrap();
        let dies = Settlement::Failed {
            kind: "other",
            reason: "no such thing".to_owned(),
            next: AfterFailure::Dead,
        };
        claimed.settle(due.events[0].id, &dies).await.unwrap();
        // A later event of its key dies, and an operator leaves that one behind.
        world.emit("a");
        let page = claimed.next(ALL).await.unwrap();
        claimed.park(&[parking(&page, 0, None)]).await.unwrap();
        claimed.advance(&page.end, &[]).await.unwrap();
        let filter = ParkedFilter {
            id: Some(page.events[0].id()),
            ..ParkedFilter::default()
        };
        world.store.act(&filter, DeadAction::Skip).await.unwrap();
        drop(claimed.join(&["a".into()], &page.end).await);
        claimed.markers(None, 9).await.unwrap().is_empty()
    })
    .await;
}

/// Half of the partitions change hands; earlier events are delivered by the new owner of their
/// partition.
async fn half_changes_hands(world: &World) -> bool {
    let one = register(&world.store, "one").await;
    claim_some(&world.store, one, 64).await;
    for key in 0..20 {
        world.emit(&format!("k{key}"));
    }
    let two = register(&world.store, "two").await;
    claim_at_most(&world.store, two, 0).await;
    let first = claim_some(&world.store, one, 32).await;
    let ClaimOutcome::Owned(second) = claim_at_most(&world.store, two, 32).await else {
        return false;
    };
    let mut delivered = 0;
    for claim in [first, second] {
        let claimed = world.store.open(&claim).await.unwrap();
        delivered += drain(&claimed, ALL).await.len();
    }
    delivered == 20
}

#[tokio::test]
async fn moved_partitions_are_covered_and_take_their_place_along() {
    let repointed = "p.cursor_id = $1::bigint and p.partition = any($2::integer[])";
    carries_one(
        repointed,
        "false and p.partition = any($2::integer[])",
        half_changes_hands,
    )
    .await;
    let place = "select c.destination_id, c.low, c.high, c.seq, c.floor, c.floor_min, c.epoch";
    let another = "select c.destination_id, pg_catalog.pg_current_snapshot(), null, null, \
                   c.floor, c.floor_min, c.epoch";
    carries_one(place, another, half_changes_hands).await;
}
