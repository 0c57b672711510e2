//! Copies of a database: refused until a new era begins, which loses nothing and repeats no more
//! than it said.

use std::{process::Command, sync::Arc};

use super::support::*;
use posthaste_engine::{
    Admin, Claimed, OrderBy, Ownership, Retention, Settlement, Start, Store, StoreError,
    StoredEvent,
};
use posthaste_stores::postgres::{
    InitOptions, Initialised, NewEra, PostgresStore, init, plan_new_era,
};
use posthaste_testkit::servers::postgres::{Database, PostgresServer};

/// Takes a dump and restores it, as a backup does.
fn restore(from: &str, to: &str) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("dump");
    let run = |program: &str, args: &[&str]| {
        let mut command = Command::new(PostgresServer::client_programs().join(program));
        let output = command.args(args).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{program}: {said}");
    };
    let path = file.to_str().unwrap();
    run("pg_dump", &["-Fc", "-f", path, from]);
    run(
        "pg_restore",
        &["--exit-on-error", "--no-owner", "-d", to, path],
    );
}

/// Uses up transaction numbers.
fn burn(server: &PostgresServer, numbers: u32) {
    server.psql(
        "postgres",
        &format!(
            "do $$ begin \
             for i in 1..{numbers} loop perform pg_current_xact_id(); commit; end loop; \
             end $$"
        ),
    );
}

async fn begin_era(url: &str) -> Initialised {
    let options = InitOptions {
        new_era: true,
        ..InitOptions::default()
    };
    init(url, &options).await.unwrap()
}

async fn plan(url: &str) -> NewEra {
    plan_new_era(url).await.unwrap().expect("a copy")
}

/// Everything that reads or moves progress refuses, and names the way out; nothing of the advice
/// drops anything.
async fn is_refused(url: &str) {
    let store = store(url);
    let started = store.check().await.unwrap_err().to_string();
    let relay = register(&store, "running").await;
    let claimed = store.claim(relay, &whole("null:")).await;
    let claimed = claimed.unwrap_err().to_string();
    let again = init(url, &InitOptions::default()).await;
    let again = again.unwrap_err().to_string();
    for refusal in [started, claimed, again] {
        assert!(refusal.contains("--new-era"), "{refusal}");
        assert!(refusal.contains("no longer delivers"), "{refusal}");
        assert!(!refusal.contains("drop"), "{refusal}");
    }
}

fn emit(database: &Database, payloads: &str, from: u32, to: u32) {
    database.psql(&format!(
        "select posthaste.emit('t', '{payloads}' || n, key => 'k' || n % 7) \
         from generate_series({from}, {to}) n"
    ));
}

fn numbered(payloads: &str, from: u32, to: u32) -> Vec<String> {
    (from..=to).map(|n| format!("{payloads}{n}")).collect()
}

/// Delivers up to an event in the middle of a page.
async fn deliver(claimed: &Arc<dyn Claimed>, events: usize) {
    let mut left = events;
    while left > 0 {
        let page = claimed.next(ALL).await.unwrap();
        let here = page.events.len().min(left);
        let last: &StoredEvent = &page.events[here - 1];
        claimed.advance(&page.cursor_at(last), &[]).await.unwrap();
        left -= here;
    }
}

/// Advances until the stored floor has come to the end, as an idle relay does.
async fn come_to_rest(claimed: &Arc<dyn Claimed>) {
    for _ in 0..3 {
        let page = claimed.next(ALL).await.unwrap();
        assert!(page.events.is_empty());
        claimed.advance(&page.end, &[]).await.unwrap();
    }
}

/// Reads until nothing is left, each page under a claim of its own.
async fn drain_with_restarts(url: &str) -> Vec<String> {
    let store = store(url);
    let relay = register(&store, "restarted").await;
    let mut seen = Vec::new();
    loop {
        let claimed = reopen(&store, relay, Start::Oldest).await;
        let page = claimed.next(ALL).await.unwrap();
        seen.extend(payloads_of(&page));
        claimed.advance(&page.end, &[]).await.unwrap();
        if page.caught_up && page.events.is_empty() {
            return seen;
        }
    }
}

/// A half delivered backlog in the middle of a difference, and a transaction that is open while the
/// copy is made.
async fn half_delivered(database: &Database) -> tokio_postgres::Client {
    initialise(&database.url()).await;
    let store = store(&database.url());
    let relay = register(&store, "original").await;
    emit(database, "before", 1, 700);
    let claimed = reopen(&store, relay, Start::Oldest).await;
    drain(&claimed, ALL).await;
    emit(database, "e", 1, 400);
    deliver(&claimed, 134).await;
    let open = writer(&database.url()).await;
    open.batch_execute("begin; select posthaste.emit('t', 'never here', key => 'k1')")
        .await
        .unwrap();
    open
}

async fn goes_on_with_a_half_delivered_backlog(original: &PostgresServer, copy: &PostgresServer) {
    let database = original.create_database();
    let _open = half_delivered(&database).await;
    let restored = copy.create_database();
    restore(&database.url(), &restored.url());
    is_refused(&restored.url()).await;
    // The application writes already: with numbers that the original's snapshots take for theirs.
    emit(&restored, "early", 1, 5);

    let era = plan(&restored.url()).await;
    let destination = &era.destinations[0];
    // Events that were written here may count as both: nothing tells whose they are.
    assert_eq!(destination.pending, 271);
    assert!(destination.again_max <= 5, "{era:?}");
    assert_eq!(plan(&restored.url()).await, era, "a plan changes nothing");
    is_refused(&restored.url()).await;
    let store_id = "select store_id from posthaste.identity";
    let before = restored.psql(store_id);
    assert_eq!(begin_era(&restored.url()).await.new_era, Some(era));
    assert_ne!(restored.psql(store_id), before);
    emit(&restored, "late", 1, 150);
    let expected = [
        numbered("e", 135, 400),
        numbered("early", 1, 5),
        numbered("late", 1, 150),
    ];
    assert_eq!(
        drain_with_restarts(&restored.url()).await,
        expected.concat()
    );
    let status = Admin::status(&store(&restored.url())).await.unwrap();
    assert_eq!((status.pending, status.pending_exact), (0, true));

    // It is no copy any more; asking again changes nothing.
    let again = begin_era(&restored.url()).await;
    assert_eq!(again.new_era, None);
    assert_eq!(
        restored.psql("select era || ' ' || last_seq from posthaste.eras"),
        restored.psql("select '1 ' || after_seq from posthaste.identity")
    );
    assert_eq!(
        restored.psql(
            "select split_part(detail, ',', 1) from posthaste.audit
             where action = 'new era' and destination = 'default'"
        ),
        "271 events pending"
    );
}

#[tokio::test]
async fn a_restored_dump_goes_on_where_transactions_have_lower_numbers() {
    let original = PostgresServer::builder().setting("fsync", "off").start();
    burn(&original, 20_000);
    let copy = PostgresServer::builder().setting("fsync", "off").start();
    goes_on_with_a_half_delivered_backlog(&original, &copy).await;
}

#[tokio::test]
async fn a_restored_dump_goes_on_where_transactions_have_higher_numbers() {
    let original = PostgresServer::builder().setting("fsync", "off").start();
    let copy = PostgresServer::builder().setting("fsync", "off").start();
    burn(&copy, 20_000);
    goes_on_with_a_half_delivered_backlog(&original, &copy).await;
}

/// A transaction that drew its numbers early commits after its successors were delivered, and
/// nobody has read it when the copy is made.
#[tokio::test]
async fn what_committed_late_is_delivered_and_the_repeats_are_counted_before() {
    let original = PostgresServer::shared(15);
    let database = fresh().await;
    let store = store(&database.url());
    let relay = register(&store, "original").await;
    let claimed = reopen(&store, relay, Start::Oldest).await;
    emit(&database, "before", 1, 10);
    let late = writer(&database.url()).await;
    late.batch_execute("begin; select posthaste.emit('t', 'late')")
        .await
        .unwrap();
    emit(&database, "e", 1, 50);
    drain(&claimed, ALL).await;
    come_to_rest(&claimed).await;
    late.batch_execute("commit").await.unwrap();
    let restored = original.create_database();
    restore(&database.url(), &restored.url());
    let era = begin_era(&restored.url()).await.new_era.unwrap();
    let destination = &era.destinations[0];
    assert_eq!((destination.pending, destination.again_max), (1, 50));
    let expected = [vec!["late".to_owned()], numbered("e", 1, 50)].concat();
    assert_eq!(drain_with_restarts(&restored.url()).await, expected);
}

#[tokio::test]
async fn blocked_keys_and_parked_events_go_on_in_the_new_era() {
    what_waits_goes_on(OrderBy::Key).await;
}

#[tokio::test]
async fn blocked_topics_of_a_key_go_on_in_the_new_era() {
    what_waits_goes_on(OrderBy::KeyAndTopic).await;
}

async fn what_waits_goes_on(order_by: OrderBy) {
    let target = order_by.target("null:");
    let bad = order_by.order_key("t", "bad").into_owned();
    let reopen = async |store: &PostgresStore, relay| {
        let claimed = store.claim(relay, &whole(&target)).await;
        store.open(&owned(claimed.unwrap())).await.unwrap()
    };
    let database = fresh().await;
    let original = store(&database.url());
    let relay = register(&original, "original").await;
    let claimed = reopen(&original, relay).await;
    let emit_to = |database: &Database, key: &str, payload: &str| {
        database.psql(&format!(
            "select posthaste.emit('t', '{payload}', key => '{key}')"
        ));
    };
    for n in 0..6 {
        emit_to(&database, "bad", &format!("bad{n}"));
        emit_to(&database, "good", &format!("good{n}"));
    }
    let page = claimed.next(ALL).await.unwrap();
    claimed.park(&[parking(&page, 2, AT_ONCE)]).await.unwrap();
    claimed.advance(&page.end, &[]).await.unwrap();
    drain(&claimed, ALL).await;
    come_to_rest(&claimed).await;
    emit_to(&database, "bad", "bad6");

    let copy = PostgresServer::builder().setting("fsync", "off").start();
    burn(&copy, 20_000);
    let restored = copy.create_database();
    restore(&database.url(), &restored.url());
    let era = begin_era(&restored.url()).await.new_era.unwrap();
    let destination = &era.destinations[0];
    assert_eq!((destination.blocked_keys, destination.again_max), (1, 0));
    assert_eq!(
        destination.pending, 5,
        "four behind the marker, and one that nobody has read"
    );

    emit_to(&restored, "bad", "bad7");
    let store = store(&restored.url());
    let relay = register(&store, "copy").await;
    let claimed = reopen(&store, relay).await;
    let marker = &claimed.markers(None, 10).await.unwrap()[0];
    assert_eq!((marker.key.as_str(), marker.released), (&*bad, false));
    let standing = loop {
        let page = claimed.next(ALL).await.unwrap();
        claimed.advance(&page.end, &[]).await.unwrap();
        if page.caught_up {
            break page;
        }
    };
    let due = claimed.due(10).await.unwrap();
    let copy = &due.events[0];
    assert_eq!(copy.event.payload(), Some(&b"bad1"[..]));
    claimed
        .settle(copy.id, &Settlement::Delivered)
        .await
        .unwrap();
    assert_eq!(claimed.due(10).await.unwrap().released, [&*bad]);
    // Moved along and read anew, as after a restart.
    let mut seen = Vec::new();
    let mut side = claimed.side_read(std::slice::from_ref(&bad)).await.unwrap();
    let page = side.next(pages_of(2), &standing.end).await.unwrap();
    seen.extend(payloads_of(&page));
    side.advance(&page.end, &[]).await.unwrap();
    let mut side = claimed.side_read(std::slice::from_ref(&bad)).await.unwrap();
    loop {
        let page = side.next(ALL, &standing.end).await.unwrap();
        seen.extend(payloads_of(&page));
        side.advance(&page.end, &[]).await.unwrap();
        if page.events.is_empty() && page.caught_up {
            break;
        }
    }
    assert_eq!(seen, numbered("bad", 2, 7));
    claimed
        .join(std::slice::from_ref(&bad), &standing.end)
        .await
        .unwrap();
    assert_eq!(drain(&claimed, ALL).await, Vec::<String>::new());
}

/// Keys with markers of both eras.
#[tokio::test]
async fn released_keys_are_side_read_together_across_the_eras() {
    let database = fresh().await;
    let original = store(&database.url());
    let relay = register(&original, "original").await;
    let claimed = reopen(&original, relay, Start::Oldest).await;
    let emit_to = |database: &Database, keys: &str, from: u32, to: u32| {
        database.psql(&format!(
            "select posthaste.emit('t', k || n, key => k)
             from generate_series({from}, {to}) n, unnest('{keys}'::text[]) k order by n, k"
        ));
    };
    emit_to(&database, "{a, b, c}", 0, 2);
    let page = claimed.next(ALL).await.unwrap();
    // The first of `a`, the second of `b`, the last of `c`.
    let parked = [0, 4, 8].map(|index| parking(&page, index, AT_ONCE));
    claimed.park(&parked).await.unwrap();
    claimed.advance(&page.end, &[]).await.unwrap();
    come_to_rest(&claimed).await;

    let copy = PostgresServer::builder().setting("fsync", "off").start();
    burn(&copy, 20_000);
    let restored = copy.create_database();
    restore(&database.url(), &restored.url());
    begin_era(&restored.url()).await;

    emit_to(&restored, "{a, b, c, d}", 3, 5);
    let store = store(&restored.url());
    let relay = register(&store, "copy").await;
    let claimed = reopen(&store, relay, Start::Oldest).await;
    let standing = loop {
        let page = claimed.next(ALL).await.unwrap();
        let first_of_d = |event: &StoredEvent| event.payload() == Some(b"d3");
        if let Some(index) = page.events.iter().position(first_of_d) {
            claimed
                .park(&[parking(&page, index, AT_ONCE)])
                .await
                .unwrap();
        }
        claimed.advance(&page.end, &[]).await.unwrap();
        if page.caught_up {
            break page;
        }
    };
    for copy in claimed.due(10).await.unwrap().events {
        let delivered = Settlement::Delivered;
        claimed.settle(copy.id, &delivered).await.unwrap();
    }
    let keys = ["a", "b", "c", "d"].map(str::to_owned);
    let mut released = claimed.due(10).await.unwrap().released;
    released.sort();
    assert_eq!(released, keys);
    // Each page by a side read of its own, as after restarts.
    let mut seen: Vec<String> = Vec::new();
    loop {
        let mut side = claimed.side_read(&keys).await.unwrap();
        let page = side.next(pages_of(2), &standing.end).await.unwrap();
        seen.extend(payloads_of(&page));
        side.advance(&page.end, &[]).await.unwrap();
        let beyond = "select count(*) from posthaste.markers
                      where seq > floor and pg_snapshot_xmin(high) = '9223372036854775807'";
        assert_eq!(restored.psql(beyond), "0");
        if page.events.is_empty() && page.caught_up {
            break;
        }
    }
    for (key, from) in [("a", 1), ("b", 2), ("c", 3), ("d", 4)] {
        let of_key = seen.iter().filter(|payload| payload.starts_with(key));
        let of_key: Vec<String> = of_key.cloned().collect();
        assert_eq!(of_key, numbered(key, from, 5));
    }
    assert_eq!(seen.len(), 14);
    claimed.join(&keys, &standing.end).await.unwrap();
    assert_eq!(drain(&claimed, ALL).await, Vec::<String>::new());
}

/// Groups of partitions that stand at several places come together, across the end of the old era.
#[tokio::test]
async fn groups_at_several_places_converge_across_the_eras() {
    let database = fresh().await;
    let original = store(&database.url());
    let (one, two) = (
        register(&original, "one").await,
        register(&original, "two").await,
    );
    emit(&database, "e", 1, 300);
    let half = claim_some(&original, one, 32).await;
    let half = original.open(&half).await.unwrap();
    let rest = claim_some(&original, two, 32).await;
    let rest = original.open(&rest).await.unwrap();
    let mut delivered = drain(&half, ALL).await;
    come_to_rest(&half).await;
    let page = rest.next(pages_of(40)).await.unwrap();
    rest.advance(&page.end, &[]).await.unwrap();
    delivered.extend(payloads_of(&page));

    let restored = PostgresServer::shared(15).create_database();
    restore(&database.url(), &restored.url());
    let era = begin_era(&restored.url()).await.new_era.unwrap();
    assert_eq!(era.destinations[0].again_max, 0);
    emit(&restored, "new", 1, 10);
    let mut seen = drain_with_restarts(&restored.url()).await;
    let news: Vec<String> = seen.split_off(seen.len() - 10);
    assert_eq!(news, numbered("new", 1, 10));
    seen.extend(delivered);
    seen.sort();
    let mut expected = numbered("e", 1, 300);
    expected.sort();
    assert_eq!(seen, expected);
}

/// The same server's counter goes on, and the original with it.
#[tokio::test]
async fn a_template_copy_goes_on_beside_its_original() {
    let server = PostgresServer::builder().setting("fsync", "off").start();
    let database = server.create_database();
    let open = half_delivered(&database).await;
    open.batch_execute("rollback").await.unwrap();
    drop(open);
    let name = format!("{}_copy", database.name());
    server.psql(
        "postgres",
        &format!(
            "select pg_terminate_backend(pid, 10000) from pg_stat_activity where datname = '{}'",
            database.name()
        ),
    );
    server.psql(
        "postgres",
        &format!("create database {name} template {}", database.name()),
    );
    let copy = server.admin_url(&name);
    is_refused(&copy).await;
    begin_era(&copy).await.new_era.unwrap();
    let expected = numbered("e", 135, 400);
    assert_eq!(drain_with_restarts(&copy).await, expected);
    store(&database.url()).check().await.unwrap();
    let end_lease = "update posthaste.relays set lease_until = clock_timestamp()";
    database.psql(end_lease);
    assert_eq!(drain_with_restarts(&database.url()).await, expected);
}

/// A copy of a copy, made while the rest of the first era is being read; then a destination that
/// begins there.
#[tokio::test]
async fn eras_follow_each_other_and_new_destinations_read_all_of_them() {
    let server = PostgresServer::shared(15);
    let database = server.create_database();
    let _open = half_delivered(&database).await;
    let first = server.create_database();
    restore(&database.url(), &first.url());
    begin_era(&first.url()).await.new_era.unwrap();
    emit(&first, "second", 1, 30);
    let store_of_first = store(&first.url());
    let claimed = open(&store_of_first, Start::Oldest).await;
    deliver(&claimed, 100).await;
    let second = server.create_database();
    restore(&first.url(), &second.url());
    let era = begin_era(&second.url()).await.new_era.unwrap();
    assert_eq!(era.destinations[0].again_max, 0);
    emit(&second, "third", 1, 30);
    let left_over = [
        numbered("e", 235, 400),
        numbered("second", 1, 30),
        numbered("third", 1, 30),
    ];
    assert_eq!(drain_with_restarts(&second.url()).await, left_over.concat());

    let store = store(&second.url());
    let relay = register(&store, "others").await;
    let mut request = whole("null:");
    request.destination = "oldest";
    request.start = Start::Oldest;
    let oldest = owned(store.claim(relay, &request).await.unwrap());
    let oldest = store.open(&oldest).await.unwrap();
    let all = [
        numbered("before", 1, 700),
        numbered("e", 1, 400),
        numbered("second", 1, 30),
        numbered("third", 1, 30),
    ];
    assert_eq!(drain(&oldest, ALL).await, all.concat());
    request.destination = "now";
    request.start = Start::Now;
    let now = owned(store.claim(relay, &request).await.unwrap());
    let now = store.open(&now).await.unwrap();
    emit(&second, "from now", 1, 3);
    assert_eq!(drain(&now, ALL).await, numbered("from now", 1, 3));
}

/// A sequence that did not come along is set forward; one that was used meanwhile proves nothing
/// any more.
#[tokio::test]
async fn a_sequence_that_was_left_behind_is_mended_or_all_is_sent_again() {
    let server = PostgresServer::shared(15);
    let database = server.create_database();
    let _open = half_delivered(&database).await;
    // The last one more often than the original.
    for used in [0, 2, 1_500] {
        let restored = server.create_database();
        restore(&database.url(), &restored.url());
        restored.psql("alter sequence posthaste.outbox_seq_seq restart");
        emit(&restored, "twice", 1, used);
        let era = begin_era(&restored.url()).await.new_era.unwrap();
        assert_eq!(era.seq_given_twice, used > 0);
        emit(&restored, "new", 1, 1);
        let seen = drain_with_restarts(&restored.url()).await;
        let expected = [numbered("e", 135, 400), numbered("new", 1, 1)].concat();
        if used == 0 {
            assert_eq!(seen, expected);
            continue;
        }
        assert!(expected.iter().all(|payload| seen.contains(payload)));
        assert!(
            numbered("twice", 1, used)
                .iter()
                .all(|payload| seen.contains(payload))
        );
        let again = era.destinations[0].again_max;
        let repeats = seen.len() as u64 - 1 - era.destinations[0].pending;
        assert!(repeats <= again, "{repeats} repeats, {again} said");
    }
}

/// A copy whose writers hold events open gets its era when they end, and they are not held up for
/// it.
#[tokio::test]
async fn an_era_waits_for_open_writers_without_holding_others_up() {
    let server = PostgresServer::shared(15);
    let database = server.create_database();
    let _open = half_delivered(&database).await;
    let restored = server.create_database();
    restore(&database.url(), &restored.url());
    let slow = writer(&restored.url()).await;
    slow.batch_execute("begin; select posthaste.emit('t', 'slow')")
        .await
        .unwrap();
    let url = restored.url();
    let era = tokio::spawn(async move { begin_era(&url).await });
    let other = writer(&restored.url()).await;
    other
        .batch_execute("set lock_timeout = '20s'; select posthaste.emit('t', 'other')")
        .await
        .unwrap();
    assert!(!era.is_finished());
    slow.batch_execute("commit").await.unwrap();
    era.await.unwrap().new_era.unwrap();
    let seen = drain_with_restarts(&restored.url()).await;
    let expected = [
        numbered("e", 135, 400),
        vec!["slow".to_owned(), "other".to_owned()],
    ];
    assert_eq!(seen, expected.concat());
}

/// Storing an era takes its time where many keys are blocked.
#[tokio::test]
async fn writers_write_while_an_era_is_stored() {
    let server = PostgresServer::shared(15);
    let database = server.create_database();
    let _open = half_delivered(&database).await;
    let restored = server.create_database();
    restore(&database.url(), &restored.url());
    let looking = writer(&restored.url()).await;
    looking
        .batch_execute("begin; lock table posthaste.audit in access exclusive mode")
        .await
        .unwrap();
    let url = restored.url();
    let era = tokio::spawn(async move { begin_era(&url).await });
    wait_for_waits(&restored, 1).await;
    emit(&restored, "meanwhile", 1, 10);
    assert!(!era.is_finished());
    looking.batch_execute("rollback").await.unwrap();
    era.await.unwrap().new_era.unwrap();
    let expected = [numbered("e", 135, 400), numbered("meanwhile", 1, 10)];
    assert_eq!(
        drain_with_restarts(&restored.url()).await,
        expected.concat()
    );
}

/// The relay was not stopped, and is in the midst of a claim.
#[tokio::test]
async fn an_era_waits_for_a_claim_under_way() {
    let database = fresh().await;
    let restored = PostgresServer::shared(15).create_database();
    restore(&database.url(), &restored.url());
    let claimer = writer(&restored.url()).await;
    claimer
        .batch_execute("begin; select from posthaste.destination_locks for update")
        .await
        .unwrap();
    let url = restored.url();
    let mut era = tokio::spawn(async move { begin_era(&url).await });
    tokio::select! {
        () = wait_for_waits(&restored, 1) => (),
        _ = &mut era => panic!("it has not waited"),
    }
    claimer
        .batch_execute(
            "update posthaste.cursors set epoch = epoch; \
             update posthaste.destinations set epoch = epoch; commit",
        )
        .await
        .unwrap();
    era.await.unwrap().new_era.unwrap();
}

#[tokio::test]
async fn an_upgraded_server_goes_on_in_a_new_era() {
    let server = PostgresServer::builder()
        .version(14)
        .setting("fsync", "off")
        .start();
    let database = server.create_database();
    drop(half_delivered(&database).await);
    let upgraded = server.upgrade();
    let url = upgraded.admin_url(database.name());
    is_refused(&url).await;
    let era = begin_era(&url).await.new_era.unwrap();
    assert_eq!(era.destinations[0].again_max, 0);
    upgraded.psql(
        database.name(),
        "select posthaste.emit('t', 'new' || n) from generate_series(1, 5) n",
    );
    let expected = [numbered("e", 135, 400), numbered("new", 1, 5)];
    assert_eq!(drain_with_restarts(&url).await, expected.concat());
}

/// Whether a standby has become a primary.
async fn promoted(server: &PostgresServer) {
    while server.psql("postgres", "select pg_is_in_recovery()") == "t" {
        tokio::task::yield_now().await;
    }
}

/// Progress that was stored up to the point goes on from there; everything behind it is gone.
async fn went_back(server: &PostgresServer) {
    let url = server.admin_url("postgres");
    assert_eq!(plan_new_era(&url).await.unwrap(), None);
    assert_eq!(begin_era(&url).await.new_era, None);
    let store = store(&url);
    store.check().await.unwrap();
    let psql = |sql: &str| server.psql("postgres", sql);
    psql("update posthaste.relays set lease_until = clock_timestamp()");
    psql("select posthaste.emit('t', 'after' || n) from generate_series(1, 40) n");
    let expected = [
        numbered("stored and not delivered", 1, 1),
        numbered("after", 1, 40),
    ];
    assert_eq!(drain_with_restarts(&url).await, expected.concat());
    assert_eq!(
        psql("select count(*) from posthaste.audit where action = 'incarnation'"),
        "1"
    );
}

/// Delivers a part; then, behind the point, more is emitted and delivered.
async fn before_the_point(primary: &PostgresServer) -> Arc<dyn Claimed> {
    let url = primary.admin_url("postgres");
    initialise(&url).await;
    let claimed = open(&store(&url), Start::Oldest).await;
    let psql = |sql: &str| primary.psql("postgres", sql);
    psql("select posthaste.emit('t', 'e' || n) from generate_series(1, 30) n");
    drain(&claimed, ALL).await;
    psql("select posthaste.emit('t', 'stored and not delivered1')");
    claimed
}

async fn behind_the_point(primary: &PostgresServer, claimed: &Arc<dyn Claimed>) {
    burn(primary, 50);
    primary.psql(
        "postgres",
        "select posthaste.emit('t', 'gone' || n) from generate_series(1, 30) n",
    );
    assert_eq!(drain(claimed, ALL).await.len(), 31);
}

#[tokio::test]
async fn a_base_backup_recovered_to_an_earlier_point_goes_on_by_itself() {
    let primary = PostgresServer::builder().setting("fsync", "off").start();
    let backup = primary.standby();
    backup.psql(
        "postgres",
        "alter system set recovery_target_name = 'earlier'",
    );
    backup.psql(
        "postgres",
        "alter system set recovery_target_action = 'promote'",
    );
    backup.stop_fast();
    let claimed = before_the_point(&primary).await;
    primary.psql("postgres", "select pg_create_restore_point('earlier')");
    behind_the_point(&primary, &claimed).await;
    backup.start_again();
    promoted(&backup).await;
    went_back(&backup).await;
}

#[tokio::test]
async fn a_promoted_standby_that_lagged_goes_on_by_itself() {
    let primary = PostgresServer::builder().setting("fsync", "off").start();
    let standby = primary.standby();
    let claimed = before_the_point(&primary).await;
    let reached = primary.psql("postgres", "select pg_current_wal_lsn()");
    let behind = format!("select coalesce(pg_last_wal_replay_lsn() >= '{reached}', false)");
    while standby.psql("postgres", &behind) != "t" {
        tokio::task::yield_now().await;
    }
    standby.psql("postgres", "alter system set primary_conninfo = ''");
    standby.psql("postgres", "select pg_reload_conf()");
    while standby.psql("postgres", "select count(*) from pg_stat_wal_receiver") != "0" {
        tokio::task::yield_now().await;
    }
    behind_the_point(&primary, &claimed).await;
    primary.crash();
    standby.psql("postgres", "select pg_promote()");
    promoted(&standby).await;
    went_back(&standby).await;
}

/// The original's relay goes on when its address leads to the copy: its next claim notices.
#[tokio::test]
async fn a_claim_on_a_copy_changes_nothing() {
    let database = fresh().await;
    let restored = PostgresServer::shared(15).create_database();
    restore(&database.url(), &restored.url());
    let store = store(&restored.url());
    let relay = register(&store, "swapped").await;
    let refused = store.claim(relay, &whole("null:")).await;
    assert!(
        matches!(refused, Err(StoreError::Misconfigured { .. })),
        "{refused:?}"
    );
    assert_eq!(
        restored.psql("select count(*) from posthaste.destinations"),
        "0"
    );
}

/// Keeps house until nothing is due; answers how many events are left of the ended era.
async fn left_of_the_era(database: &Database) -> u32 {
    let store = store(&database.url());
    while Retention::housekeep(&store, None).await.unwrap().more {}
    let old =
        "select count(*) from posthaste.outbox o, posthaste.identity i where o.seq <= i.after_seq";
    database.psql(old).parse().unwrap()
}

#[tokio::test]
async fn retention_keeps_what_an_era_left_over_until_it_is_delivered() {
    let database = PostgresServer::shared(15).create_database();
    let _open = half_delivered(&database).await;
    let restored = PostgresServer::shared(15).create_database();
    restore(&database.url(), &restored.url());
    let options = InitOptions {
        new_era: true,
        retention: Some(std::time::Duration::ZERO),
        ..InitOptions::default()
    };
    init(&restored.url(), &options).await.unwrap();
    assert!(left_of_the_era(&restored).await >= 266);
    let expected = numbered("e", 135, 400);
    assert_eq!(drain_with_restarts(&restored.url()).await, expected);
    assert_eq!(left_of_the_era(&restored).await, 0);
}

/// Events are written below the end of an ended era, whose rest is being read.
#[tokio::test]
async fn a_sequence_set_back_inside_an_ended_era_hides_nothing() {
    let server = PostgresServer::shared(15);
    let database = server.create_database();
    let _open = half_delivered(&database).await;
    let restored = server.create_database();
    restore(&database.url(), &restored.url());
    begin_era(&restored.url()).await.new_era.unwrap();
    let claimed = open(&store(&restored.url()), Start::Oldest).await;
    deliver(&claimed, 50).await;
    restored.psql("select setval('posthaste.outbox_seq_seq', 5)");
    emit(&restored, "hidden", 1, 2);
    init(&restored.url(), &InitOptions::default())
        .await
        .unwrap();
    restored.psql("update posthaste.relays set lease_until = clock_timestamp()");
    emit(&restored, "new", 1, 2);
    let seen = drain_with_restarts(&restored.url()).await;
    let expected = [
        numbered("hidden", 1, 2),
        numbered("e", 185, 400),
        numbered("new", 1, 2),
    ];
    for payload in expected.concat() {
        assert!(seen.contains(&payload), "{payload}");
    }
}
