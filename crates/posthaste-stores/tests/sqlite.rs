//! Tests of SQLite's store alone; the suite that all stores share has the rest.
#![cfg(feature = "sqlite")]
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests too")]

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use posthaste::schema::Placeholders;
use posthaste_engine::{
    Admin, AfterFailure, Budget, Claim, ClaimOutcome, ClaimRequest, Claimed, DestinationReport,
    DestinationState, HostIdentity, Leases, Ownership, Page, Parking, Partitions, Registered,
    Registration, RelayReport, Retention, Start, Store, StoreError, StoredEvent,
};
use posthaste_stores::sqlite::{InitOptions, SqliteStore, init, sql};
use rusqlite::{Connection, MAIN_DB, backup::Backup};
use tempfile::TempDir;

const PLENTY: Budget = Budget {
    events: 10_000,
    bytes: 64 << 20,
};

struct Outbox {
    directory: TempDir,
    store: SqliteStore,
}

impl Outbox {
    async fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let url = url(&directory.path().join("outbox.db"));
        init(&url, InitOptions::default()).await.unwrap();
        let store = SqliteStore::new(&url).unwrap();
        Self { directory, store }
    }

    fn path(&self) -> PathBuf {
        self.directory.path().join("outbox.db")
    }

    fn connect(&self) -> Connection {
        let connection = Connection::open(self.path()).unwrap();
        connection.busy_timeout(Duration::from_secs(1)).unwrap();
        connection
    }

    fn emit(&self, keys: &[&str]) {
        let connection = self.connect();
        for key in keys {
            connection
                .execute(
                    "insert into posthaste_outbox (topic, key, payload) values ('t', ?1, 'x')",
                    [key],
                )
                .unwrap();
        }
    }

    async fn own(&self) -> (Registered, Claim, Arc<dyn Claimed>) {
        let relay = self.store.register(&registration()).await.unwrap();
        let claim = claim(&self.store, relay).await;
        let claimed = self.store.open(&claim).await.unwrap();
        (relay, claim, claimed)
    }
}

fn url(path: &Path) -> String {
    format!("sqlite:{}", path.display())
}

fn registration() -> Registration {
    Registration {
        name: "relay".to_owned(),
        version: "1".to_owned(),
        host: HostIdentity::default(),
        lease: Duration::from_secs(600),
    }
}

async fn claim(store: &SqliteStore, relay: Registered) -> Claim {
    let request = ClaimRequest::all("default", "null:");
    match store.claim(relay, &request).await.unwrap() {
        ClaimOutcome::Owned(claim) => claim,
        other => panic!("{other:?}"),
    }
}

fn seqs(page: &Page) -> Vec<i64> {
    page.events.iter().map(StoredEvent::seq).collect()
}

fn parking(page: &Page, index: usize) -> Parking {
    let event = page.events[index].clone();
    Parking {
        at: page.cursor_at(&event),
        event,
        attempts: 1,
        kind: "invalid",
        reason: "no".to_owned(),
        next: AfterFailure::Dead,
    }
}

/// Copies one database over another through SQLite's own locks, as `.restore` does.
fn copy(from: &Path, to: &Path) {
    let source = Connection::open(from).unwrap();
    let mut target = Connection::open(to).unwrap();
    target.busy_timeout(Duration::from_secs(5)).unwrap();
    let backup = Backup::new(&source, &mut target).unwrap();
    backup
        .run_to_completion(1_000, Duration::from_millis(1), None)
        .unwrap();
}

fn assert_changed<T>(answer: Result<T, StoreError>) {
    let error = answer.err().map(|error| error.to_string());
    assert!(
        error.as_deref().is_some_and(|e| e.contains("incarnation")),
        "expected IncarnationChanged, got {error:?}"
    );
}

#[tokio::test]
async fn a_file_that_was_replaced_is_noticed() {
    let outbox = Outbox::new().await;
    outbox.emit(&["k", "k"]);
    let (relay, _, claimed) = outbox.own().await;
    let page = claimed.next(PLENTY).await.unwrap();
    let other = Outbox::new().await;
    other.emit(&["new"]);
    fs::rename(other.path(), outbox.path()).unwrap();
    for name in ["outbox.db-wal", "outbox.db-shm"] {
        let _ = fs::remove_file(outbox.directory.path().join(name));
        let _ = fs::rename(
            other.directory.path().join(name),
            outbox.directory.path().join(name),
        );
    }

    assert_changed(claimed.next(PLENTY).await);
    assert_changed(claimed.advance(&page.end, &seqs(&page)).await);
    // The same handle goes on with the new file, where nobody knows this relay.
    let renewed = outbox
        .store
        .renew(relay, Duration::from_secs(1), &RelayReport::new())
        .await;
    assert!(matches!(renewed, Err(StoreError::Fenced { .. })));
    let (_, _, claimed) = outbox.own().await;
    let page = claimed.next(PLENTY).await.unwrap();
    assert_eq!(page.events[0].key(), Some("new"));
}

#[tokio::test]
async fn a_file_that_is_gone_is_unavailable() {
    let outbox = Outbox::new().await;
    let (_, _, claimed) = outbox.own().await;
    let away = outbox.directory.path().join("away.db");
    fs::rename(outbox.path(), &away).unwrap();
    let refused = claimed.next(PLENTY).await;
    assert!(matches!(refused, Err(StoreError::Unavailable { .. })));
    let refused = outbox.store.register(&registration()).await;
    assert!(matches!(refused, Err(StoreError::Unavailable { .. })));
    fs::rename(&away, outbox.path()).unwrap();
    claimed.next(PLENTY).await.unwrap();
}

/// An older state of the same claim: its epoch and registration are right, what was done since is
/// not there. Passing on would skip the events whose numbers are drawn a second time.
#[tokio::test]
async fn an_older_state_without_events_that_were_read_is_noticed() {
    let outbox = Outbox::new().await;
    outbox.emit(&["k"]);
    let (relay, _, claimed) = outbox.own().await;
    let backup = outbox.directory.path().join("backup.db");
    copy(&outbox.path(), &backup);
    outbox.emit(&["k", "k"]);
    let page = claimed.next(PLENTY).await.unwrap();
    assert_eq!(page.events.len(), 3);
    copy(&backup, &outbox.path());
    // The numbers 2 and 3 come again, for other events.
    outbox.emit(&["again", "again", "again"]);

    assert_changed(claimed.advance(&page.end, &seqs(&page)).await);
    assert_changed(claimed.next(PLENTY).await);
    let claim = claim(&outbox.store, relay).await;
    let claimed = outbox.store.open(&claim).await.unwrap();
    let page = claimed.next(PLENTY).await.unwrap();
    let keys: Vec<_> = page
        .events
        .iter()
        .map(|event| event.key().unwrap())
        .collect();
    assert_eq!(keys, ["k", "again", "again", "again"]);
}

#[tokio::test]
async fn an_older_state_without_what_was_parked_is_noticed() {
    let outbox = Outbox::new().await;
    outbox.emit(&["k", "k"]);
    let (_, _, claimed) = outbox.own().await;
    let page = claimed.next(PLENTY).await.unwrap();
    let backup = outbox.directory.path().join("backup.db");
    copy(&outbox.path(), &backup);
    claimed.park(&[parking(&page, 0)]).await.unwrap();
    copy(&backup, &outbox.path());
    // Passing the parked event now would lose it: its copy is gone.
    assert_changed(claimed.advance(&page.end, &seqs(&page)).await);
    assert_changed(claimed.markers(None, 10).await);
}

#[tokio::test]
async fn a_state_that_has_everything_is_accepted() {
    let outbox = Outbox::new().await;
    outbox.emit(&["k", "k"]);
    let (_, _, claimed) = outbox.own().await;
    let page = claimed.next(PLENTY).await.unwrap();
    claimed.park(&[parking(&page, 0)]).await.unwrap();
    let backup = outbox.directory.path().join("backup.db");
    copy(&outbox.path(), &backup);
    copy(&backup, &outbox.path());
    claimed.advance(&page.end, &seqs(&page)).await.unwrap();
    outbox.emit(&["k"]);
    assert_eq!(claimed.next(PLENTY).await.unwrap().events.len(), 1);
}

/// An application with a busy time-out of a second, beside a relay that does nothing but write,
/// some milliseconds at a time.
#[tokio::test(flavor = "multi_thread")]
async fn an_application_never_meets_our_lock() {
    let outbox = Outbox::new().await;
    let keys: Vec<String> = (0..200).map(|n| format!("k{n}")).collect();
    outbox.emit(&keys.iter().map(String::as_str).collect::<Vec<_>>());
    let (relay, _, claimed) = outbox.own().await;
    let page = claimed.next(PLENTY).await.unwrap();
    let connection = outbox.connect();
    let application = tokio::task::spawn_blocking(move || {
        for _ in 0..300 {
            connection.execute_batch("begin immediate").unwrap();
            connection
                .execute("insert into posthaste_outbox (topic) values ('t')", [])
                .unwrap();
            connection.execute_batch("commit").unwrap();
        }
    });
    let mut turns = 0;
    while !application.is_finished() {
        let parked: Vec<_> = (0..200).map(|index| parking(&page, index)).collect();
        claimed.park(&parked).await.unwrap();
        let at = page.cursor_at(&page.events[turns % 200]);
        claimed.advance(&at, &[]).await.unwrap();
        outbox
            .store
            .renew(relay, Duration::from_secs(600), &RelayReport::new())
            .await
            .unwrap();
        claimed.next(PLENTY).await.unwrap();
        turns += 1;
    }
    application.await.unwrap();
}

/// A destination with so many copies that they would hold an application up for a second.
#[tokio::test]
async fn copies_are_closed_in_transactions_that_applications_come_between() {
    let outbox = Outbox::new().await;
    let (relay, partitions, claimed) = outbox.own().await;
    drop((partitions, claimed));
    outbox
        .connect()
        .execute_batch(
            "with recursive numbers (n) as (
                 values (1) union all select n + 1 from numbers where n < 2001)
             insert into posthaste_outbox (topic, key, payload)
             select 't', 'k' || n, 'x' from numbers;
             insert into posthaste_parked (destination_id, state, attempts, kind, reason, parked_at,
                 seq, event_id, topic, key, headers, occurred_at, inserted_at)
             select d.id, 'dead', 6, 'other', 'by hand', 0, o.seq, o.id, o.topic, o.key, '[]', 0, 0
             from posthaste_destinations as d, posthaste_outbox as o;",
        )
        .unwrap();
    let store = &outbox.store;
    store
        .withdraw(relay, "default", Duration::ZERO)
        .await
        .unwrap();
    let removed = DestinationState::Removed;
    assert!(store.set_destination("default", removed).await.unwrap());
    let connection = outbox.connect();
    connection
        .execute_batch(
            "create trigger cut before insert on posthaste_audit
             when new.action = 'read again'
                 and exists (select 1 from posthaste_audit where action = 'read again')
             begin select raise(abort, 'cut short'); end",
        )
        .unwrap();
    let request = ClaimRequest::all("default", "null:");
    let error = store.claim(relay, &request).await.unwrap_err();
    assert!(error.to_string().contains("cut short"), "{error}");
    // It keeps the events of the others, and of those that are discarded, in the outbox.
    let active = "select count(*) from posthaste_destinations where state = 'active'";
    let active: i64 = connection.query_row(active, [], |row| row.get(0)).unwrap();
    assert_eq!(active, 1);
    connection.execute_batch("drop trigger cut").unwrap();
    outbox.own().await;
    let mut lines = connection
        .prepare(
            "select action || ': ' || detail from posthaste_audit
             where action in ('destination emptied', 'destination removed', 'read again')
             order by id",
        )
        .unwrap();
    let lines: Vec<String> = lines
        .query_map([], |row| row.get(0))
        .unwrap()
        .collect::<Result<_, _>>()
        .unwrap();
    let closed = |action, count| format!("{action}: {count} parked events closed as skipped");
    let read_again = |count| {
        format!("read again: {count} skipped events discarded: they are read again from the outbox")
    };
    let expected = [
        closed("destination emptied", 1_000),
        closed("destination emptied", 1_000),
        closed("destination removed", 2_001),
        read_again(1_000),
        read_again(1_000),
        read_again(1),
    ];
    assert_eq!(lines, expected);
}

/// Our reads end soon enough for the write-ahead log to start over.
#[tokio::test]
async fn the_write_ahead_log_does_not_grow_beside_a_reader() {
    let outbox = Outbox::new().await;
    let (_, _, claimed) = outbox.own().await;
    let connection = outbox.connect();
    connection
        .pragma_update(None, "synchronous", "off")
        .unwrap();
    for _ in 0..200 {
        connection.execute_batch("begin immediate").unwrap();
        for _ in 0..40 {
            connection
                .execute(
                    "insert into posthaste_outbox (topic, payload) values ('t', zeroblob(4000))",
                    [],
                )
                .unwrap();
        }
        connection.execute_batch("commit").unwrap();
        let page = claimed.next(PLENTY).await.unwrap();
        claimed.advance(&page.end, &seqs(&page)).await.unwrap();
    }
    let main = fs::metadata(outbox.path()).unwrap().len();
    let log = fs::metadata(outbox.directory.path().join("outbox.db-wal"))
        .unwrap()
        .len();
    assert!(main > 30 << 20, "{main}");
    assert!(log < 10 << 20, "{log}");
}

/// SQLite takes any bytes as text, so one damaged row must neither stop the outbox nor be lost.
#[tokio::test]
async fn text_that_is_not_utf8_is_delivered_and_found_again() {
    let outbox = Outbox::new().await;
    outbox
        .connect()
        .execute_batch(
            r#"insert into posthaste_outbox (topic, key) values ('t', cast(x'6bff' as text));
               insert into posthaste_outbox (topic, key, tenant_id)
               values ('t', cast(x'6bff' as text), cast(x'80' as text));
               insert into posthaste_outbox (topic, headers) values ('t', '["a","\ud800"]');"#,
        )
        .unwrap();
    let (_, _, claimed) = outbox.own().await;
    let page = claimed.next(PLENTY).await.unwrap();
    assert_eq!(page.events.len(), 3);
    assert_eq!(page.events[0].key(), Some("k\u{fffd}"));
    let headers: Vec<_> = page.events[2].headers().collect();
    assert_eq!(headers, [("a", Some("\u{fffd}"))]);
    claimed.park(&[parking(&page, 0)]).await.unwrap();
    claimed.advance(&page.end, &[]).await.unwrap();
    let mut side = claimed.side_read(&["k\u{fffd}".into()]).await.unwrap();
    let behind = side.next(PLENTY, &page.end).await.unwrap();
    assert_eq!(seqs(&behind), [page.events[1].seq()]);
}

/// Rows that a plain INSERT wrote, with the table's own defaults.
#[tokio::test]
async fn plain_rows_get_their_defaults() {
    let outbox = Outbox::new().await;
    outbox
        .connect()
        .execute(
            "insert into posthaste_outbox (topic, payload) values ('t', 'Größe')",
            [],
        )
        .unwrap();
    let (_, _, claimed) = outbox.own().await;
    let event = claimed.next(PLENTY).await.unwrap().events.remove(0);
    assert_eq!(event.id().get_version_num(), 7);
    assert_eq!(event.payload(), Some("Größe".as_bytes()));
    assert_eq!(event.key(), None);
    assert_eq!(event.slot(), posthaste::slot(&event.id().to_string()));
    assert!(event.occurred_at() > 1_600_000_000_000_000);
}

#[tokio::test]
async fn a_side_read_looks_past_many_rows_of_others() {
    let outbox = Outbox::new().await;
    let connection = outbox.connect();
    connection
        .execute_batch(
            "insert into posthaste_outbox (topic, key) values ('t', 'k');
             with recursive n (i) as (select 1 union all select i + 1 from n where i < 50000)
             insert into posthaste_outbox (topic, key) select 't', 'other' from n;
             insert into posthaste_outbox (topic, key) values ('t', 'k');
             with recursive n (i) as (select 1 union all select i + 1 from n where i < 30000)
             insert into posthaste_outbox (topic, key) select 't', 'other' from n;",
        )
        .unwrap();
    let (_, _, claimed) = outbox.own().await;
    let one = Budget {
        events: 1,
        bytes: 1,
    };
    let first = claimed.next(one).await.unwrap();
    assert!(!first.caught_up);
    claimed.park(&[parking(&first, 0)]).await.unwrap();
    let end = loop {
        let page = claimed.next(PLENTY).await.unwrap();
        if page.caught_up {
            break page.end;
        }
    };
    claimed.advance(&end, &[]).await.unwrap();
    let mut side = claimed.side_read(&["k".into()]).await.unwrap();
    let page = side.next(PLENTY, &end).await.unwrap();
    assert_eq!(seqs(&page), [50_002]);
    let page = side.next(PLENTY, &end).await.unwrap();
    assert!(page.caught_up && page.events.is_empty());
    claimed.advance(&page.end, &[]).await.unwrap();
}

#[tokio::test]
async fn what_is_wrong_with_a_file_is_said_with_the_fix() {
    let directory = tempfile::tempdir().unwrap();
    let check = async |name: &str| {
        let store = SqliteStore::new(&url(&directory.path().join(name))).unwrap();
        store.check().await.unwrap_err()
    };
    let missing = check("missing.db").await;
    assert!(matches!(missing, StoreError::Misconfigured { .. }));
    assert!(missing.to_string().contains("posthaste init"), "{missing}");

    fs::create_dir(directory.path().join("folder")).unwrap();
    let folder = check("folder").await;
    assert!(folder.to_string().contains("not a file"), "{folder}");

    fs::write(directory.path().join("text.db"), "x".repeat(10_000)).unwrap();
    let text = check("text.db").await;
    assert!(matches!(text, StoreError::Misconfigured { .. }), "{text}");

    fs::write(directory.path().join("empty.db"), "").unwrap();
    let empty = check("empty.db").await;
    assert!(matches!(empty, StoreError::Schema { .. }));
    assert!(empty.to_string().contains("posthaste init"), "{empty}");

    let name = url(&directory.path().join("mode.db"));
    init(&name, InitOptions::default()).await.unwrap();
    let connection = Connection::open(directory.path().join("mode.db")).unwrap();
    connection
        .pragma_update(None, "journal_mode", "delete")
        .unwrap();
    drop(connection);
    let mode = check("mode.db").await;
    assert!(matches!(mode, StoreError::Misconfigured { .. }));
    assert!(mode.to_string().contains("journal mode"), "{mode}");

    let wide = directory.path().join("wide.db");
    let connection = Connection::open(&wide).unwrap();
    connection
        .execute_batch("pragma encoding = 'UTF-16le'; create table t (x)")
        .unwrap();
    let refused = init(&url(&wide), InitOptions::default()).await.unwrap_err();
    assert!(refused.to_string().contains("needs UTF-8"), "{refused}");

    let nowhere = init("sqlite:/nowhere/at/all/outbox.db", InitOptions::default()).await;
    assert!(
        nowhere
            .unwrap_err()
            .to_string()
            .contains("no such directory")
    );
}

/// Empties the outbox as people do by hand, and writes into it anew.
fn empty_and_emit(outbox: &Outbox, keys: &[&str]) {
    outbox
        .connect()
        .execute_batch("delete from posthaste_outbox; delete from sqlite_sequence")
        .unwrap();
    outbox.emit(keys);
}

fn assert_set_back<T>(answer: Result<T, StoreError>) {
    let refused = answer.err().unwrap();
    assert!(
        matches!(refused, StoreError::Misconfigured { .. }),
        "{refused}"
    );
    assert!(
        refused.to_string().contains("Run `posthaste init`"),
        "{refused}"
    );
}

/// After `init` all events that the table holds are read, and those that come.
async fn assert_init_heals(outbox: &Outbox, relay: Registered, keys: &[&str]) {
    init(&url(&outbox.path()), InitOptions::default())
        .await
        .unwrap();
    outbox.store.check().await.unwrap();
    outbox.emit(&["after"]);
    let claimed = outbox
        .store
        .open(&claim(&outbox.store, relay).await)
        .await
        .unwrap();
    let page = claimed.next(PLENTY).await.unwrap();
    let read: Vec<_> = page.events.iter().filter_map(StoredEvent::key).collect();
    assert_eq!(read, [keys, &["after"]].concat());
    claimed.advance(&page.end, &seqs(&page)).await.unwrap();
    // It mends once.
    init(&url(&outbox.path()), InitOptions::default())
        .await
        .unwrap();
    assert!(claimed.next(PLENTY).await.unwrap().events.is_empty());
}

#[tokio::test]
async fn a_counter_that_was_set_back_is_refused() {
    // Short of the cursor, at it, and past it again.
    for hidden in [
        &["a", "b"][..],
        &["a", "b", "c"],
        &["a", "b", "c", "d", "e"],
    ] {
        let outbox = Outbox::new().await;
        outbox.emit(&["k", "k", "k"]);
        let (relay, _, claimed) = outbox.own().await;
        let page = claimed.next(PLENTY).await.unwrap();
        claimed.advance(&page.end, &seqs(&page)).await.unwrap();
        assert!(claimed.next(PLENTY).await.unwrap().events.is_empty());
        empty_and_emit(&outbox, hidden);
        // A running relay and one that starts.
        assert_set_back(claimed.next(PLENTY).await);
        assert_set_back(outbox.store.check().await);
        assert_init_heals(&outbox, relay, hidden).await;
    }
}

/// Its claim ends, and the next one would begin behind the events that are hidden.
#[tokio::test]
async fn a_counter_that_was_set_back_below_what_was_read_is_refused() {
    let outbox = Outbox::new().await;
    outbox.emit(&["k", "k", "k"]);
    let (relay, of, claimed) = outbox.own().await;
    let page = claimed.next(PLENTY).await.unwrap();
    claimed
        .advance(&page.cursor_at(&page.events[1]), &[])
        .await
        .unwrap();
    let hidden = ["a", "b", "c", "d"];
    empty_and_emit(&outbox, &hidden);
    assert_set_back(claimed.advance(&page.end, &[]).await);
    assert_set_back(outbox.store.open(&of).await);
    assert_init_heals(&outbox, relay, &hidden).await;
}

/// The cursor knows its event although retention has removed it. Events that no relay has read
/// stay.
#[tokio::test]
async fn retention_removes_nothing_behind_a_counter_that_was_set_back() {
    for hidden in [&["a", "b"][..], &["a", "b", "c", "d", "e"]] {
        let outbox = Outbox::new().await;
        let options = InitOptions {
            partitions: None,
            retention: Some(Duration::ZERO),
        };
        init(&url(&outbox.path()), options).await.unwrap();
        outbox.emit(&["k", "k", "k"]);
        let (relay, _, claimed) = outbox.own().await;
        let page = claimed.next(PLENTY).await.unwrap();
        claimed.advance(&page.end, &seqs(&page)).await.unwrap();
        assert_eq!(outbox.store.housekeep(None).await.unwrap().events, 3);
        empty_and_emit(&outbox, hidden);
        assert_set_back(outbox.store.housekeep(None).await);
        assert_set_back(claimed.next(PLENTY).await);
        assert_init_heals(&outbox, relay, hidden).await;
    }
}

/// One whose cursor has not come so far, and one that began behind the events that stood there.
#[tokio::test]
async fn each_destination_notices_a_counter_that_was_set_back() {
    let outbox = Outbox::new().await;
    outbox.emit(&["k", "k", "k"]);
    let (relay, _, _) = outbox.own().await;
    let request = ClaimRequest {
        start: Start::Now,
        ..ClaimRequest::all("late", "null:")
    };
    let claim = match outbox.store.claim(relay, &request).await.unwrap() {
        ClaimOutcome::Owned(claim) => claim,
        other => panic!("{other:?}"),
    };
    let late = outbox.store.open(&claim).await.unwrap();
    empty_and_emit(&outbox, &["a", "b", "c", "d", "e"]);
    assert_set_back(late.next(PLENTY).await);
    assert_set_back(outbox.store.check().await);
}

/// The row at the cursor was deleted by hand: its event is not known.
#[tokio::test]
async fn a_hole_at_the_cursor_proves_nothing() {
    let outbox = Outbox::new().await;
    outbox.emit(&["k", "k", "k", "k"]);
    let (_, _, claimed) = outbox.own().await;
    let page = claimed.next(PLENTY).await.unwrap();
    let advance = async |index: usize| {
        let at = page.cursor_at(&page.events[index]);
        claimed.advance(&at, &[]).await.unwrap();
    };
    let delete = |seq: i64| {
        let sql = "delete from posthaste_outbox where seq = ?1";
        assert_eq!(outbox.connect().execute(sql, [seq]).unwrap(), 1);
    };
    advance(0).await;
    delete(1);
    delete(2);
    advance(1).await;
    outbox.store.check().await.unwrap();
    advance(2).await;
    delete(3);
    advance(3).await;
    outbox.store.check().await.unwrap();
    assert!(claimed.next(PLENTY).await.unwrap().caught_up);
}

#[tokio::test]
async fn a_file_with_two_names_is_refused() {
    let outbox = Outbox::new().await;
    let second = outbox.directory.path().join("second.db");
    fs::hard_link(outbox.path(), &second).unwrap();
    for path in [&second, &outbox.path()] {
        let store = SqliteStore::new(&url(path)).unwrap();
        let init = init(&url(path), InitOptions::default()).await.map(drop);
        for refused in [init, store.check().await] {
            let refused = refused.unwrap_err().to_string();
            assert!(refused.contains("remove the other name"), "{refused}");
        }
    }
    fs::remove_file(second).unwrap();
    outbox.store.check().await.unwrap();
}

/// Its owner is gone, and its lease was given by a clock that went an hour ahead.
#[tokio::test]
async fn a_lease_of_a_clock_that_was_set_back_ends() {
    a_lease_ends_although_a_clock_was_set_back("null:").await;
}

#[tokio::test]
async fn a_clock_that_was_set_back_keeps_nobody_from_another_address() {
    a_lease_ends_although_a_clock_was_set_back("null:?other").await;
}

async fn a_lease_ends_although_a_clock_was_set_back(address: &str) {
    const HOUR: &str =
        "update posthaste_relays set lease_expires_at = lease_expires_at + 3600000000";
    let outbox = Outbox::new().await;
    let (owner, _, _) = outbox.own().await;
    let store = SqliteStore::new(&url(&outbox.path())).unwrap();
    let lease = Duration::from_millis(300);
    let by = store
        .register(&Registration {
            lease,
            ..registration()
        })
        .await
        .unwrap();
    outbox
        .store
        .renew(owner, lease, &RelayReport::new())
        .await
        .unwrap();
    outbox.connect().execute_batch(HOUR).unwrap();
    let request = ClaimRequest::all("default", address);
    let held = async || match store.claim(by, &request).await.unwrap() {
        ClaimOutcome::Held(shares) => {
            assert!(
                shares
                    .members
                    .iter()
                    .all(|member| member.lease_left <= lease)
            );
            true
        }
        ClaimOutcome::Elsewhere { .. } => true,
        ClaimOutcome::Owned(_) => false,
    };
    // A relay that renews it is not dead.
    for _ in 0..4 {
        assert!(held().await);
        tokio::time::sleep(lease / 2).await;
        outbox
            .store
            .renew(owner, lease, &RelayReport::new())
            .await
            .unwrap();
        outbox.connect().execute_batch(HOUR).unwrap();
    }
    let began = std::time::Instant::now();
    while held().await {
        assert!(began.elapsed() < lease * 100);
        tokio::time::sleep(lease / 10).await;
    }
    assert!(began.elapsed() >= lease);
    assert!(
        outbox
            .store
            .renew(owner, lease, &RelayReport::new())
            .await
            .is_err()
    );
}

/// Its owner renews it soon, if it lives.
#[tokio::test]
async fn a_lease_of_a_clock_that_was_set_back_is_shown_as_expired() {
    let outbox = Outbox::new().await;
    outbox.emit(&["k"]);
    let retention = InitOptions {
        partitions: None,
        retention: Some(Duration::ZERO),
    };
    init(&url(&outbox.path()), retention).await.unwrap();
    let (owner, _, _) = outbox.own().await;
    let store = SqliteStore::new(&url(&outbox.path())).unwrap();
    let report = DestinationReport {
        accepted_per_second: 7.0,
        ..DestinationReport::default()
    };
    let report = RelayReport::from([("default".to_owned(), report)]);
    let seen = async || {
        let status = store.status().await.unwrap();
        let [destination] = &status.destinations[..] else {
            panic!("{status:?}")
        };
        let pins = store.retained().await.unwrap().pins;
        (
            status.relays[0].state.clone(),
            destination.relay.clone(),
            destination.accepted_per_second,
            pins[0].detail.clone(),
        )
    };
    let lease = Duration::from_secs(600);
    outbox.store.renew(owner, lease, &report).await.unwrap();
    let relay = Some("relay".to_owned());
    let live = |has: &str| ("live".to_owned(), relay.clone(), Some(7.0), has.to_owned());
    let behind = "it has not passed them yet";
    assert_eq!(seen().await, live(behind));
    let remove = async || {
        let state = DestinationState::Removed;
        store.set_destination("default", state).await
    };
    assert!(remove().await.is_err());
    let hour = "update posthaste_relays set lease_expires_at = lease_expires_at + 3600000000";
    outbox.connect().execute_batch(hour).unwrap();
    let gone = "no relay delivers to it".to_owned();
    assert_eq!(seen().await, ("expired".to_owned(), None, None, gone));
    // A relay that renews it is not dead.
    outbox.store.renew(owner, lease, &report).await.unwrap();
    assert_eq!(seen().await, live(behind));
    assert!(remove().await.is_err());
    outbox.connect().execute_batch(hour).unwrap();
    assert!(remove().await.unwrap());
}

/// The time before which nothing may be sent was written by a clock that went an hour ahead.
#[tokio::test]
async fn a_settle_time_of_a_clock_that_was_set_back_ends() {
    let outbox = Outbox::new().await;
    let lease = Duration::from_millis(100);
    let register = async || {
        let relay = Registration {
            lease,
            ..registration()
        };
        outbox.store.register(&relay).await.unwrap()
    };
    let (former, next) = (register().await, register().await);
    claim(&outbox.store, former).await;
    outbox
        .store
        .leave(former, Duration::from_millis(50))
        .await
        .unwrap();
    outbox
        .connect()
        .execute_batch("update posthaste_ownership set not_before = not_before + 3600000000")
        .unwrap();
    let bound = lease * 10;
    let began = std::time::Instant::now();
    // It is owned at once. Until it has settled nothing is sent, and that is so long at the most.
    let mut settle = claim(&outbox.store, next).await.settle;
    assert!(!settle.is_zero());
    while !settle.is_zero() {
        assert!(settle <= bound, "{settle:?}");
        assert!(began.elapsed() < bound * 10);
        tokio::time::sleep(lease / 10).await;
        settle = claim(&outbox.store, next).await.settle;
    }
    assert!(began.elapsed() >= bound);
}

#[tokio::test]
async fn init_stores_what_is_asked_for_and_leaves_the_rest() {
    let outbox = Outbox::new().await;
    let url = url(&outbox.path());
    let options = InitOptions {
        partitions: Some(16),
        retention: None,
    };
    let again = init(&url, options).await.unwrap();
    assert!(again.applied.is_empty(), "{:?}", again.applied);
    let (relay, claim, _) = outbox.own().await;
    assert_eq!(claim.partitions, Partitions::all_of(16).unwrap());
    assert!(!claim.shares.recut);
    let options = InitOptions {
        partitions: Some(32),
        retention: None,
    };
    init(&url, options).await.unwrap();
    assert!(outbox.store.shares("default").await.unwrap().recut);
    let again = self::claim(&outbox.store, relay).await;
    assert_eq!(again.partitions, Partitions::all_of(32).unwrap());
    assert!(!again.shares.recut);
    for (partitions, retention) in [(Some(3), None), (None, Some(Duration::from_millis(1500)))] {
        let options = InitOptions {
            partitions,
            retention,
        };
        let refused = init(&url, options).await.unwrap_err();
        assert!(matches!(refused, StoreError::Misconfigured { .. }));
    }
    let setting: String = outbox
        .connect()
        .query_row(
            "select value from posthaste_settings where name = 'retention_seconds'",
            [],
            |row| row.get(0),
        )
        .unwrap();
    assert_eq!(setting, "86400");
}

/// Relays that do not know of each other are stopped; their deliveries stay done.
#[tokio::test]
async fn the_second_schema_is_migrated_with_its_progress() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("outbox.db");
    let connection = Connection::open(&path).unwrap();
    connection
        .execute_batch("pragma journal_mode = wal")
        .unwrap();
    for migration in &posthaste::Dialect::Sqlite.migrations()[..2] {
        let body = migration.render(Placeholders::default());
        connection.execute_batch(&body).unwrap();
        connection
            .execute(
                "insert into posthaste_migrations (version, name, min_relay) values (?1, ?2, ?3)",
                (migration.version, migration.name, migration.min_relay),
            )
            .unwrap();
    }
    connection
        .execute_batch(
            "insert into posthaste_outbox (topic) values ('done'), ('left');
             insert into posthaste_destinations (id, name, url, created_at)
             values (1, 'default', 'null:', 1);
             insert into posthaste_cursors (id, destination_id, seq) values (1, 1, 1);
             insert into posthaste_relays (registration, name, version, boot_id, pid_namespace, pid,
                                           process_started, registered_at, lease_expires_at)
             values ('11111111-1111-4111-8111-111111111111', 'old', '0', '', '', 1,
                     1, 1, 9000000000000000);
             insert into posthaste_ownership (destination_id, partition_from, partition_to,
                                              cursor_id, registration, epoch)
             values (1, 0, 64, 1, '11111111-1111-4111-8111-111111111111', 7);
             insert into posthaste_audit (at, action, registration, detail)
             values (1, 'fence', '22222222-2222-4222-8222-222222222222', 'its lease ended');",
        )
        .unwrap();
    let report = init(&url(&path), InitOptions::default()).await.unwrap();
    assert_eq!(
        (report.applied, report.version),
        (vec![3, 4, 5, 6, 7, 8], 8)
    );
    let store = SqliteStore::new(&url(&path)).unwrap();
    store.check().await.unwrap();
    let lines = store.hand_overs(10).await.unwrap();
    let who: Vec<_> = lines.iter().map(|line| line.relay.as_deref()).collect();
    assert_eq!(who, [None, None]);
    assert!(lines[0].detail.contains("`old`"), "{lines:?}");
    assert!(lines[1].detail.contains("22222222"), "{lines:?}");
    let relay = store.register(&registration()).await.unwrap();
    let claim = claim(&store, relay).await;
    assert_eq!(
        (claim.epoch, claim.former.len()),
        (9, 1),
        "taken over from the old one"
    );
    let claimed = store.open(&claim).await.unwrap();
    let page = claimed.next(PLENTY).await.unwrap();
    assert_eq!(seqs(&page), [2]);
    connection
        .execute_batch(
            "delete from posthaste_outbox; delete from sqlite_sequence;
             insert into posthaste_outbox (topic) values ('hidden'), ('read')",
        )
        .unwrap();
    assert_set_back(store.check().await);
}

#[tokio::test]
async fn the_printed_sql_makes_the_same_schema() {
    let outbox = Outbox::new().await;
    let path = outbox.directory.path().join("printed.db");
    let options = InitOptions {
        partitions: Some(8),
        retention: Some(Duration::from_secs(60)),
    };
    Connection::open(&path)
        .unwrap()
        .execute_batch(&sql(options).unwrap())
        .unwrap();
    SqliteStore::new(&url(&path))
        .unwrap()
        .check()
        .await
        .unwrap();
    let schema = |path: &Path| -> Vec<String> {
        Connection::open(path)
            .unwrap()
            .prepare("select sql from sqlite_schema where sql is not null order by name")
            .unwrap()
            .query_map([], |row| row.get(0))
            .unwrap()
            .collect::<Result<_, _>>()
            .unwrap()
    };
    assert_eq!(schema(&path), schema(&outbox.path()));
}

/// Every statement prepares on the schema; none that runs on each poll walks a table.
#[tokio::test]
async fn every_statement_prepares_and_polls_use_indexes() {
    let outbox = Outbox::new().await;
    let connection = outbox.connect();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/sqlite/sql");
    // Parts of other statements.
    let parts = ["holds_key", "live"].map(|name| {
        let path = folder.join(format!("{name}.sql"));
        let text = fs::read_to_string(&path).unwrap();
        (format!("{{{name}}}"), text, path)
    });
    let mut seen = 0;
    for file in fs::read_dir(folder).unwrap() {
        let path = file.unwrap().path();
        if parts.iter().any(|(_, _, part)| *part == path) {
            continue;
        }
        let text = fs::read_to_string(&path).unwrap();
        let text = parts
            .iter()
            .fold(text, |text, (name, part, _)| text.replace(name, part));
        // As for a destination that keeps the order of keys; `ordering.rs` prepares them whole.
        let text = text
            .replace("{by_topic:d}", "0")
            .replace("{by_topic:n}", "0")
            .replace("{before_key:n}", "''")
            .replace("{separator}", "''")
            .replace("{order_key}", "o.key")
            .replace("{plain_key}", "p.key")
            .replace("{is_key}", "p.key = :key");
        if let Err(error) = connection.prepare(&text) {
            panic!("{}: {error}", path.display());
        }
        seen += 1;
        let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
        let polled = [
            "guard",
            "page",
            "due",
            "due_next",
            "released",
            "advance",
            "relay_renew",
        ];
        // Looks for other copies of each copy that it gives to the next destination.
        let adopts = name == "act_adopt";
        if adopts || polled.contains(&name.as_str()) {
            let mut explain = connection
                .prepare(&format!("explain query plan {text}"))
                .unwrap();
            // Without values for its parameters: a plan does not need them.
            let mut rows = explain.raw_query();
            let mut plan: Vec<String> = Vec::new();
            while let Some(row) = rows.next().unwrap() {
                plan.push(row.get(3).unwrap());
            }
            // The identity has one row, and a subquery what it found.
            let small = |line: &String| {
                ["SCAN i", "SCAN (subquery"]
                    .iter()
                    .any(|start| line.starts_with(start))
            };
            let walks = plan.iter().any(|line| {
                line.starts_with(if adopts { "SCAN q" } else { "SCAN" }) && !small(line)
            });
            assert!(!walks, "{name}: {plan:?}");
        }
    }
    assert!(seen > 50);
    assert!(!connection.is_readonly(MAIN_DB).unwrap());
}

#[tokio::test]
async fn a_writer_that_holds_the_lock_keeps_nobody_from_looking() {
    let outbox = Outbox::new().await;
    outbox.emit(&["a"]);
    let writer = outbox.connect();
    writer.execute_batch("begin immediate").unwrap();
    let impatient = format!("{}?busy_timeout=50ms", url(&outbox.path()));
    let store = SqliteStore::new(&impatient).unwrap();
    store.check().await.unwrap();
    assert_eq!(store.status().await.unwrap().destinations.len(), 0);
    writer.execute_batch("rollback").unwrap();
}
