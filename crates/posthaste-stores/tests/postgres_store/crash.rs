//! Histories that lose or invert events when a reader takes a shortcut, on a real server.

use super::{hints::idle, support::*};
use posthaste_engine::{Start, Store, StoreError};
use posthaste_testkit::servers::postgres::PostgresServer;

/// A server of its own, without autovacuum: nobody else draws transaction numbers.
async fn quiet_server() -> PostgresServer {
    let server = PostgresServer::builder()
        .setting("autovacuum", "off")
        .start();
    initialise(&server.admin_url("postgres")).await;
    server
}

#[tokio::test]
async fn a_crash_issues_numbers_again_and_nothing_is_skipped() {
    // The background writers flush what nobody waits for, sooner or later; then a crash loses
    // nothing.
    let server = PostgresServer::builder()
        .setting("wal_writer_delay", "10s")
        .setting("wal_level", "minimal")
        .setting("max_wal_senders", "0")
        .start();
    let url = server.admin_url("postgres");
    initialise(&url).await;
    let store = store(&url);
    let psql = |sql: &str| server.psql("postgres", sql);
    let mut crashes = 0;
    loop {
        psql("update posthaste.relays set lease_until = clock_timestamp()");
        let claimed = open(&store, Start::Oldest).await;
        for _ in 0..3 {
            psql("begin; select posthaste.emit('t', 'aborted'); rollback");
        }
        psql("begin; select pg_current_xact_id(); rollback");
        // The relay's memory holds a snapshot that sees those numbers.
        assert!(claimed.next(ALL).await.unwrap().events.is_empty());
        let remembered = psql("select pg_current_snapshot()");
        server.crash();
        server.start_again();
        crashes += 1;
        psql("select posthaste.emit('t', 'one')");
        psql("select posthaste.emit('t', 'two')");
        let skipped = psql(&format!(
            "select count(*) from posthaste.outbox
             where payload in ('one', 'two') and pg_visible_in_snapshot(xid, '{remembered}')"
        ));

        let read = claimed.next(ALL).await;
        assert!(
            matches!(read, Err(StoreError::Unavailable { .. })),
            "{read:?}"
        );
        psql("update posthaste.relays set lease_until = clock_timestamp()");
        let claimed = open(&store, Start::Oldest).await;
        assert_eq!(drain(&claimed, ALL).await, ["one", "two"]);
        let audited = "select count(*) from posthaste.audit where action = 'incarnation'";
        assert_eq!(psql(audited), crashes.to_string());
        // The positive control: a reader that trusts its memory would have skipped them.
        if skipped != "0" {
            break;
        }
        assert!(crashes < 30, "no number was ever issued a second time");
        psql("delete from posthaste.outbox");
    }
}

#[tokio::test]
async fn a_connection_that_outlives_a_crash_reads_and_stores_nothing_more() {
    // Behind a pooler the session may be another one than before; the token tells.
    let database = fresh().await;
    let store = store(&database.url());
    let relay = register(&store, "one").await;
    let claimed = reopen(&store, relay, Start::Oldest).await;
    database.psql("select posthaste.emit('t', 'e')");
    let page = claimed.next(ALL).await.unwrap();
    database.psql("truncate posthaste.incarnation");
    for _ in 0..2 {
        let read = claimed.next(ALL).await;
        assert!(
            matches!(read, Err(StoreError::IncarnationChanged { .. })),
            "{read:?}"
        );
        let stored = claimed.advance(&page.end, &[]).await;
        assert!(
            matches!(stored, Err(StoreError::IncarnationChanged { .. })),
            "{stored:?}"
        );
        // Refilled by somebody else: still not ours.
        register(&store, "other").await;
    }
    let claimed = reopen(&store, relay, Start::Oldest).await;
    assert_eq!(drain(&claimed, ALL).await, ["e"]);
}

#[tokio::test]
async fn an_open_transaction_at_xmax_is_in_no_xip_and_is_not_lost() {
    let server = quiet_server().await;
    let url = server.admin_url("postgres");
    let store = store(&url);
    let claimed = open(&store, Start::Oldest).await;
    let late = writer(&url).await;
    // The relay draws a number, too, when it begins to listen for hints.
    idle(&claimed, &late).await;
    late.batch_execute("begin; select posthaste.emit('t', 'late')")
        .await
        .unwrap();
    let snapshot = server.psql("postgres", "select pg_current_snapshot()");
    let (xmin, rest) = snapshot.split_once(':').unwrap();
    assert_eq!(rest, format!("{xmin}:"), "the open transaction is in xip");
    let page = claimed.next(ALL).await.unwrap();
    late.batch_execute("commit").await.unwrap();
    claimed.advance(&page.end, &[]).await.unwrap();
    assert_eq!(drain(&claimed, ALL).await, ["late"]);
}

#[tokio::test]
async fn an_early_seq_held_open_delays_itself_alone() {
    let database = fresh().await;
    let store = store(&database.url());
    let relay = register(&store, "one").await;
    let claimed = reopen(&store, relay, Start::Oldest).await;
    let late = writer(&database.url()).await;
    late.batch_execute("begin; select posthaste.emit('t', 'late')")
        .await
        .unwrap();
    let mut seen = Vec::new();
    for n in 0..5 {
        database.psql(&format!("select posthaste.emit('t', 'e{n}')"));
        seen.append(&mut drain(&claimed, ALL).await);
    }
    assert_eq!(seen, ["e0", "e1", "e2", "e3", "e4"]);
    // Finished while nobody reads, and found by the next claim.
    late.batch_execute("commit").await.unwrap();
    let claimed = reopen(&store, relay, Start::Oldest).await;
    assert_eq!(drain(&claimed, ALL).await, ["late"]);
    assert!(drain(&claimed, ALL).await.is_empty());
}

#[tokio::test]
async fn a_row_has_its_transactions_number_before_its_seq() {
    let database = fresh().await;
    let first = "select attname from pg_attribute
                 where attrelid = 'posthaste.outbox'::regclass and attnum in (1, 2)
                 order by attnum";
    assert_eq!(database.psql(first), "xid\nseq");
}

#[tokio::test]
async fn prepared_transactions_and_savepoints_keep_their_order() {
    let server = PostgresServer::builder()
        .setting("fsync", "off")
        .setting("max_prepared_transactions", "2")
        .start();
    let url = server.admin_url("postgres");
    initialise(&url).await;
    let store = store(&url);
    let claimed = open(&store, Start::Oldest).await;
    server.psql(
        "postgres",
        "begin; select posthaste.emit('t', 'a');
         savepoint s; select posthaste.emit('t', 'undone'); rollback to s;
         savepoint s; select posthaste.emit('t', 'b'); release s;
         select posthaste.emit('t', 'c'); prepare transaction 'p'",
    );
    server.psql("postgres", "select posthaste.emit('t', 'other')");
    assert_eq!(drain(&claimed, ALL).await, ["other"]);
    server.psql("postgres", "commit prepared 'p'");
    assert_eq!(drain(&claimed, ALL).await, ["a", "b", "c"]);
}

#[tokio::test]
async fn commit_order_of_a_key_is_kept_for_writers_that_lock_it_first() {
    let database = fresh().await;
    let store = store(&database.url());
    let claimed = open(&store, Start::Oldest).await;
    let (one, two) = (writer(&database.url()).await, writer(&database.url()).await);
    // Without a lock before the emit nothing is promised: the later commit drew the lower number.
    one.batch_execute("begin; select posthaste.emit('t', 'one', key => 'k')")
        .await
        .unwrap();
    two.batch_execute("select posthaste.emit('t', 'two', key => 'k')")
        .await
        .unwrap();
    one.batch_execute("commit").await.unwrap();
    assert_eq!(drain(&claimed, ALL).await, ["one", "two"]);

    let emit =
        |name: &str| format!("select posthaste.emit('t', '{name}', key => 'k', lock_key => true)");
    one.batch_execute(&format!("begin; {}", emit("first")))
        .await
        .unwrap();
    let text = emit("second");
    let waiting = two.batch_execute(&text);
    let committing = async {
        let blocked = "select count(*)
                       from pg_locks l join pg_database d on d.oid = l.database
                       where l.locktype = 'advisory' and not l.granted
                           and d.datname = current_database()";
        while database.psql(blocked) == "0" {
            tokio::task::yield_now().await;
        }
        one.batch_execute("commit").await
    };
    let (waited, committed) = tokio::join!(waiting, committing);
    waited.unwrap();
    committed.unwrap();
    assert_eq!(drain(&claimed, ALL).await, ["first", "second"]);
}

#[tokio::test]
async fn a_lost_connection_ends_the_claim_and_the_store_connects_again() {
    let database = fresh().await;
    let store = store(&database.url());
    let relay = register(&store, "one").await;
    let claimed = reopen(&store, relay, Start::Oldest).await;
    database.psql("select posthaste.emit('t', 'e')");
    database.psql(
        "select pg_terminate_backend(pid) from pg_stat_activity
         where datname = current_database() and pid <> pg_backend_pid()",
    );
    for _ in 0..2 {
        let read = claimed.next(ALL).await.unwrap_err();
        assert!(read.is_retryable(), "{read}");
    }
    store.check().await.unwrap();
    let claimed = reopen(&store, relay, Start::Oldest).await;
    assert_eq!(drain(&claimed, ALL).await, ["e"]);
}

#[tokio::test]
async fn pages_are_bounded_in_bytes_whatever_the_events_weigh() {
    let database = fresh().await;
    let store = store(&database.url());
    let claimed = open(&store, Start::Oldest).await;
    database.psql(
        "insert into posthaste.outbox (topic, payload)
         select 't', convert_to(n || repeat('x', weight), 'UTF8')
         from generate_series(1, 200) n,
             lateral (select case when n % 40 < 20 then 10 else 100000 end) w (weight);
         insert into posthaste.outbox (topic, payload)
         select 't', convert_to(repeat('x', 5000000), 'UTF8')",
    );
    let budget = posthaste_engine::Budget {
        events: 1_000,
        bytes: 300_000,
    };
    let mut seqs = Vec::new();
    loop {
        let page = claimed.next(budget).await.unwrap();
        let bytes: usize = page.events.iter().map(|event| event.footprint()).sum();
        assert!(
            bytes <= budget.bytes || page.events.len() == 1,
            "{bytes} bytes"
        );
        seqs.extend(page.events.iter().map(|event| event.seq()));
        claimed.advance(&page.end, &[]).await.unwrap();
        if page.caught_up || (page.joinable && page.events.is_empty()) {
            break;
        }
    }
    assert_eq!(seqs, (1..=201).collect::<Vec<i64>>());
}
