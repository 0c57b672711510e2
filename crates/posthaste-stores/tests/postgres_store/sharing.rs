//! PostgreSQL's own part of sharing a destination: cursor groups, and partitions that are cut anew.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use super::support::*;
use futures_util::future::{join_all, try_join_all};
use posthaste_engine::{
    Admin, ClaimOutcome, ClaimRequest, Claimed, DestinationState, Leases, Ownership, PinKind,
    Registered, Retention, Store, StoreError, Want,
};
use posthaste_stores::postgres::{InitOptions, PostgresStore, init};
use posthaste_testkit::servers::postgres::{Database, PostgresServer};
use rand::{Rng, SeedableRng, rngs::StdRng};

/// Each partition lies in exactly one group of its own destination, and each group has a partition.
fn assert_covered(database: &Database) {
    let uncovered = database.psql(
        "select d.name, d.partitions, array_agg(p.partition order by p.partition)
         from posthaste.destinations d
         left join posthaste.partitions p on p.destination_id = d.id
         left join posthaste.cursors c on c.id = p.cursor_id and c.destination_id = d.id
         where d.state <> 'removed'
         group by d.id
         having count(c.id) <> d.partitions
             or min(p.partition) <> 0 or max(p.partition) <> d.partitions - 1
         union all
         select 'cursor ' || c.id, 0, null from posthaste.cursors c
         where not exists (select from posthaste.partitions p where p.cursor_id = c.id)",
    );
    assert_eq!(uncovered, "");
}

fn rows(database: &Database) -> String {
    database.psql("select count(*) from posthaste.cursors")
}

/// Emits numbers from `first` to `last`, each under one of 200 keys.
fn emit(database: &Database, first: i64, last: i64) {
    database.psql(&format!(
        "select posthaste.emit('t', n::text, key => 'k' || n % 200) \
         from generate_series({first}, {last}) n"
    ));
}

/// The payloads of each key must ascend, without a gap.
fn by_key(payloads: impl IntoIterator<Item = String>) -> BTreeMap<i64, Vec<i64>> {
    let mut keys: BTreeMap<i64, Vec<i64>> = BTreeMap::new();
    for payload in payloads {
        let number: i64 = payload.parse().unwrap();
        keys.entry(number % 200).or_default().push(number);
    }
    keys
}

fn expected(last: i64) -> BTreeMap<i64, Vec<i64>> {
    by_key((1..=last).map(|number| number.to_string()))
}

/// Reads so many pages, or until nothing is left, and advances to the end of each.
async fn read_pages(claimed: &Arc<dyn Claimed>, size: usize, pages: usize) -> Vec<String> {
    let mut seen = Vec::new();
    for _ in 0..pages {
        let page = claimed.next(pages_of(size)).await.unwrap();
        seen.extend(payloads_of(&page));
        claimed.advance(&page.end, &[]).await.unwrap();
        if page.caught_up {
            break;
        }
    }
    seen
}

async fn some(store: &PostgresStore, relay: Registered, count: u16) -> Arc<dyn Claimed> {
    let claim = claim_some(store, relay, count).await;
    store.open(&claim).await.unwrap()
}

/// Three relays; partitions move while all stand in the middle of one large difference, and of
/// others.
#[tokio::test]
async fn groups_that_stand_in_the_middle_of_differences_become_one() {
    let database = fresh().await;
    let store = store(&database.url());
    let [a, b, c] = [
        register(&store, "a").await,
        register(&store, "b").await,
        register(&store, "c").await,
    ];
    let mut seen = Vec::new();
    emit(&database, 1, 3_000);
    let first = some(&store, a, 64).await;
    seen.extend(read_pages(&first, 100, 3).await);
    // `a` goes on with 40 of them, `b` with 24 from the same place, a little farther each.
    let first = some(&store, a, 40).await;
    let second = some(&store, b, 24).await;
    seen.extend(read_pages(&first, 50, 4).await);
    seen.extend(read_pages(&second, 50, 9).await);
    emit(&database, 3_001, 5_000);
    // Both give up some: `c` has groups at two places of one difference.
    let first = some(&store, a, 30).await;
    let second = some(&store, b, 14).await;
    let third = some(&store, c, 20).await;
    assert_eq!(rows(&database), "4");
    seen.extend(read_pages(&third, 50, 2).await);
    seen.extend(read_pages(&first, 1_000, 9).await);
    let late = writer(&database.url()).await;
    late.batch_execute("begin; select posthaste.emit('t', '5003', key => 'k3')")
        .await
        .unwrap();
    emit(&database, 5_001, 5_002);
    seen.extend(read_pages(&second, 1_000, 90).await);
    // `a`, which stands at a whole snapshot, gets what stands inside a difference.
    store.withdraw(c, "default", Duration::ZERO).await.unwrap();
    drop(third);
    let first = some(&store, a, 64).await;
    assert_covered(&database);
    let page = first.next(pages_of(10)).await.unwrap();
    assert!(
        !page.joinable && !page.caught_up,
        "they do not stand at one place"
    );
    seen.extend(payloads_of(&page));
    first.advance(&page.end, &[]).await.unwrap();
    late.batch_execute("commit").await.unwrap();
    emit(&database, 5_004, 5_100);
    seen.extend(drain(&first, pages_of(500)).await);
    seen.extend(drain(&second, pages_of(500)).await);
    assert_eq!(by_key(seen), expected(5_100));
    assert_covered(&database);
    assert_eq!(rows(&database), "2");
    assert_eq!(store.status().await.unwrap().pending, 0);
}

/// The engine may skip places: only the last page's end is stored, after everything has been read.
#[tokio::test]
async fn one_advance_stores_every_merge_that_was_skipped() {
    let database = fresh().await;
    let store = store(&database.url());
    let relays = join_all((0..4).map(|_| register(&store, "r"))).await;
    emit(&database, 1, 500);
    let mut seen = Vec::new();
    for relay in &relays {
        claim_at_most(&store, *relay, 0).await;
    }
    for (number, relay) in relays.iter().enumerate() {
        let part = some(&store, *relay, 16).await;
        seen.extend(read_pages(&part, 10, number).await);
    }
    let mut all = store
        .open(&claim_some(&store, relays[0], 16).await)
        .await
        .unwrap();
    for relay in &relays[1..] {
        store.leave(*relay, Duration::ZERO).await.unwrap();
    }
    assert_eq!(rows(&database), "4");
    for advances in [false, true] {
        let claim = claim_some(&store, relays[0], 64).await;
        all = store.open(&claim).await.unwrap();
        let mut again = Vec::new();
        let end = loop {
            let page = all.next(pages_of(20)).await.unwrap();
            again.extend(payloads_of(&page));
            if page.caught_up {
                assert!(page.store_end && page.joinable);
                break page.end;
            }
        };
        let mut whole = seen.clone();
        whole.extend(again);
        assert_eq!(by_key(whole), expected(500), "nothing was stored yet");
        if advances {
            all.advance(&end, &[]).await.unwrap();
        }
    }
    assert_eq!(rows(&database), "1");
    assert_covered(&database);
    assert_eq!(drain(&all, ALL).await, Vec::<String>::new());
}

/// A zombie that lost a part of its partitions changes nothing, of the others neither.
#[tokio::test]
async fn who_lost_a_part_stores_no_merge_either() {
    let database = fresh().await;
    let store = store(&database.url());
    let (a, b) = (register(&store, "a").await, register(&store, "b").await);
    emit(&database, 1, 400);
    let first = some(&store, a, 32).await;
    read_pages(&first, 10, 3).await;
    let second = some(&store, b, 32).await;
    read_pages(&second, 10, 1).await;
    store.leave(b, Duration::ZERO).await.unwrap();
    let zombie = some(&store, a, 64).await;
    let page = zombie.next(pages_of(50)).await.unwrap();
    let held = "select * from posthaste.cursors order by id; \
                select * from posthaste.partitions order by partition";
    let c = register(&store, "c").await;
    store.fence(c, a.registration, "gone").await.unwrap();
    store.revoke(c, "default", SETTLE).await.unwrap();
    let revoked = database.psql(held);
    for _ in 0..2 {
        let refused = zombie.advance(&page.end, &[]).await;
        assert!(
            matches!(refused, Err(StoreError::Fenced { .. })),
            "{refused:?}"
        );
        let refused = zombie.fences_taken(&[b.registration]).await;
        assert!(
            matches!(refused, Err(StoreError::Fenced { .. })),
            "{refused:?}"
        );
    }
    assert_eq!(database.psql(held), revoked);
    let claim = claim_some(&store, c, 5).await;
    assert!(
        claim.settle > SETTLE / 2 && claim.former == [a.registration],
        "{claim:?}"
    );
    let refused = zombie.advance(&page.end, &[]).await;
    assert!(
        matches!(refused, Err(StoreError::Fenced { .. })),
        "{refused:?}"
    );
    assert_covered(&database);
}

#[tokio::test]
async fn settle_and_fences_go_with_the_row_that_takes_over() {
    let database = fresh().await;
    let store = store(&database.url());
    let (a, b, c) = (
        register(&store, "a").await,
        register(&store, "b").await,
        register(&store, "c").await,
    );
    emit(&database, 1, 300);
    let first = some(&store, a, 32).await;
    read_pages(&first, 10, 2).await;
    let _second = some(&store, b, 32).await;
    store.fence(c, b.registration, "gone").await.unwrap();
    store.withdraw(a, "default", Duration::ZERO).await.unwrap();
    let all = claim_some(&store, c, 64).await;
    assert_eq!(all.former, [b.registration]);
    let claimed = store.open(&all).await.unwrap();
    drain(&claimed, ALL).await;
    assert_eq!(rows(&database), "1");
    let again = claim_some(&store, c, 64).await;
    assert!(again.settle > SETTLE / 2, "{again:?}");
    assert_eq!(again.former, [b.registration]);
    let claimed = store.open(&again).await.unwrap();
    claimed.fences_taken(&again.former).await.unwrap();
    assert!(claim_some(&store, c, 64).await.former.is_empty());
}

async fn cut(database: &Database, partitions: u16) {
    let options = InitOptions {
        partitions: Some(partitions),
        ..InitOptions::default()
    };
    init(&database.url(), &options).await.unwrap();
}

#[tokio::test]
async fn partitions_are_cut_anew_below_running_relays() {
    let database = fresh().await;
    let store = store(&database.url());
    let (a, b) = (register(&store, "a").await, register(&store, "b").await);
    emit(&database, 1, 1_000);
    let mut seen = Vec::new();
    let mut first = some(&store, a, 21).await;
    let mut second = some(&store, b, 43).await;
    seen.extend(read_pages(&first, 20, 3).await);
    cut(&database, 256).await;
    assert!(store.shares("default").await.unwrap().recut);
    // `b` cuts them finer at once; `a` goes on under its claim and its former cut.
    let claim = claim_some(&store, b, 43).await;
    assert_eq!(
        (claim.partitions.len(), claim.partitions.count()),
        (172, 256)
    );
    assert!(!claim.shares.recut);
    second = reopened(&store, &claim, second).await;
    assert_covered(&database);
    seen.extend(read_pages(&first, 20, 2).await);
    seen.extend(read_pages(&second, 30, 2).await);
    let again = claim_some(&store, a, 84).await;
    assert_eq!(
        (again.partitions.len(), again.partitions.count()),
        (84, 256)
    );
    first = reopened(&store, &again, first).await;
    seen.extend(read_pages(&first, 20, 1).await);

    // Coarser: the owner of a block's first partition gets the rest of it, claim by claim.
    cut(&database, 8).await;
    let mut owned = (0, 0);
    for _ in 0..4 {
        let claim = claim_some(&store, a, 84).await;
        owned.0 = claim.partitions.len();
        first = reopened(&store, &claim, first).await;
        let claim = claim_some(&store, b, 200).await;
        owned.1 = claim.partitions.len();
        second = reopened(&store, &claim, second).await;
        assert_covered(&database);
        seen.extend(read_pages(&first, 40, 30).await);
        seen.extend(read_pages(&second, 40, 30).await);
        if !store.shares("default").await.unwrap().recut {
            break;
        }
    }
    let shares = store.shares("default").await.unwrap();
    assert!(!shares.recut && shares.partitions == 8, "{shares:?}");
    assert_eq!((owned.0 + owned.1, shares.free), (8, 0));
    emit(&database, 1_001, 1_200);
    seen.extend(drain(&first, ALL).await);
    seen.extend(drain(&second, ALL).await);
    assert_eq!(by_key(seen), expected(1_200));
    assert_covered(&database);
}

/// Dropped only then: an engine opens anew when nothing is in flight.
async fn reopened(
    store: &PostgresStore,
    claim: &posthaste_engine::Claim,
    former: Arc<dyn Claimed>,
) -> Arc<dyn Claimed> {
    drop(former);
    store.open(claim).await.unwrap()
}

/// A merge whose statement waits for a claim that cuts the partitions anew must see the new ones.
#[tokio::test]
async fn a_merge_that_waits_for_a_new_cut_leaves_no_partition_behind() {
    let database = fresh().await;
    let store = store(&database.url());
    let (a, b) = (register(&store, "a").await, register(&store, "b").await);
    emit(&database, 1, 300);
    let part = some(&store, b, 20).await;
    read_pages(&part, 10, 2).await;
    let _ = some(&store, a, 30).await;
    store.leave(b, Duration::ZERO).await.unwrap();
    let all = some(&store, a, 64).await;
    let page = loop {
        let page = all.next(ALL).await.unwrap();
        if page.caught_up {
            break page;
        }
    };
    let claimer = writer(&database.url()).await;
    claimer
        .batch_execute(
            "begin; select id from posthaste.cursors order by id for update;
             insert into posthaste.partitions (destination_id, partition, cursor_id)
             select destination_id, partition * 2 + n, cursor_id
             from posthaste.partitions, generate_series(0, 1) n
             on conflict (destination_id, partition) do update set cursor_id = excluded.cursor_id;
             update posthaste.destinations set partitions = 128",
        )
        .await
        .unwrap();
    let advance = all.advance(&page.end, &[]);
    let commit = async {
        wait_for_waits(&database, 1).await;
        claimer.batch_execute("commit").await.unwrap();
    };
    let (advanced, ()) = tokio::join!(advance, commit);
    advanced.unwrap();
    assert_eq!(rows(&database), "1");
    assert_covered(&database);
}

/// Relays that come, ask for any number, withdraw, leave and die, at once: no partition is ever
/// owned twice or lost, and each claim owns what it was told.
#[tokio::test]
async fn claims_at_once_neither_overlap_nor_lose_a_partition() {
    let database = fresh().await;
    let walks = (0..8).map(|seed| {
        let (url, database) = (database.url(), &database);
        async move {
            let store = store(&url);
            let mut random = StdRng::seed_from_u64(seed);
            let mut relay = register(&store, &format!("r{seed}")).await;
            for step in 0..30 {
                if step % 10 == 0 {
                    assert_covered(database);
                }
                let request = ClaimRequest {
                    want: match random.random_range(0..8) {
                        0 => Want::All,
                        _ => Want::AtMost(random.random_range(0..40)),
                    },
                    unsettled: Duration::from_micros(random.random_range(0..3)),
                    ..ClaimRequest::all("default", "null:")
                };
                let claimed = match random.random_range(0..10) {
                    0 => store.withdraw(relay, "default", Duration::ZERO).await,
                    1 => {
                        store.leave(relay, Duration::ZERO).await.unwrap();
                        relay = register(&store, &format!("r{seed}")).await;
                        Ok(())
                    }
                    2 => {
                        // Dies; the next relay takes over.
                        let dead = relay;
                        relay = register(&store, &format!("r{seed}")).await;
                        store.fence(relay, dead.registration, "gone").await
                    }
                    _ => claim_and_store(&store, relay, &request).await,
                };
                claimed.unwrap();
            }
            Ok::<_, StoreError>(())
        }
    });
    try_join_all(walks).await.unwrap();
    assert_covered(&database);
    let store = store(&database.url());
    let last = register(&store, "last").await;
    let shares = match claim_at_most(&store, last, 64).await {
        ClaimOutcome::Owned(claim) => claim.shares,
        ClaimOutcome::Held(shares) => shares,
        other => panic!("{other:?}"),
    };
    let owned: u16 = shares.members.iter().map(|member| member.owned).sum();
    assert_eq!(
        (owned + shares.settling, shares.free, shares.dead),
        (64, 0, 0),
        "{shares:?}"
    );
}

async fn claim_and_store(
    store: &PostgresStore,
    relay: Registered,
    request: &ClaimRequest<'_>,
) -> Result<(), StoreError> {
    let ClaimOutcome::Owned(claim) = store.claim(relay, request).await? else {
        return Ok(());
    };
    let myself = claim.shares.member(relay.registration).unwrap();
    assert_eq!(myself.owned, claim.partitions.len());
    // Nobody takes what a live relay owns: its claim stays good until it gives up itself.
    let claimed = store.open(&claim).await?;
    let page = claimed.next(ALL).await?;
    claimed.advance(&page.end, &[]).await.map(drop)
}

#[tokio::test]
async fn status_and_retention_know_every_group() {
    // Of its own: transactions that other tests have open on a server pin the outboxes of all its
    // databases.
    let server = PostgresServer::builder().setting("fsync", "off").start();
    let database = server.create_database();
    initialise(&database.url()).await;
    let options = InitOptions {
        retention: Some(Duration::ZERO),
        ..InitOptions::default()
    };
    init(&database.url(), &options).await.unwrap();
    let store = store(&database.url());
    let (a, b) = (register(&store, "a").await, register(&store, "b").await);
    let first = some(&store, a, 40).await;
    let second = some(&store, b, 24).await;
    emit(&database, 1, 2_000);
    let delivered = drain(&first, ALL).await.len() as u64;
    assert!(delivered > 0 && delivered < 2_000);
    let status = store.status().await.unwrap();
    assert_eq!(
        (status.pending, status.pending_exact),
        (2_000 - delivered, true)
    );
    assert_eq!(status.destinations[0].pending, 2_000 - delivered);
    assert_eq!(status.destinations[0].relay.as_deref(), Some("a, b"));
    let of_relays: Vec<_> = status.relays.iter().map(|relay| relay.partitions).collect();
    assert_eq!(of_relays, [40, 24]);
    let [share] = &status.relays[1].shares[..] else {
        panic!("{:?}", status.relays);
    };
    assert_eq!(
        (share.destination.as_str(), share.partitions),
        ("default", 24)
    );
    // The group that is behind holds everything, by name once.
    store.housekeep(Some(a)).await.unwrap();
    assert_eq!(
        database.psql("select count(*) from posthaste.outbox"),
        "2000"
    );
    let pins = store.retained().await.unwrap().pins;
    assert_eq!(pins.len(), 1, "{pins:?}");
    assert_eq!(pins[0].kind, PinKind::Destination);
    drain(&second, ALL).await;
    assert_eq!(store.status().await.unwrap().pending, 0);
    // Floors follow with the next advances.
    while database.psql("select count(*) from posthaste.outbox") != "0" {
        drain(&first, ALL).await;
        drain(&second, ALL).await;
        store.housekeep(Some(a)).await.unwrap();
    }

    // A destination goes with all of its groups, and late statements of its relays find nothing.
    let refused = store
        .set_destination("default", DestinationState::Removed)
        .await;
    assert!(
        matches!(refused, Err(StoreError::Misconfigured { .. })),
        "{refused:?}"
    );
    let epoch: u64 = database
        .psql("select epoch from posthaste.destinations")
        .parse()
        .unwrap();
    for relay in [a, b] {
        store.leave(relay, Duration::ZERO).await.unwrap();
    }
    assert!(
        store
            .set_destination("default", DestinationState::Removed)
            .await
            .unwrap()
    );
    let page = first.next(ALL).await.unwrap();
    let late = first.advance(&page.end, &[]).await;
    assert!(matches!(late, Err(StoreError::Fenced { .. })), "{late:?}");
    let c = register(&store, "c").await;
    let anew = claim_some(&store, c, 64).await;
    assert!(anew.epoch > epoch && anew.partitions.is_all());
}
