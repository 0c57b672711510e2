//! Housekeeping in an SQLite file, beside an application that writes.
#![cfg(feature = "sqlite")]
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests too")]

use std::{
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use posthaste_engine::{
    Admin, AfterFailure, Budget, ClaimOutcome, ClaimRequest, Claimed, DeadAction, DestinationState,
    HostIdentity, Housekeeping, Leases, Ownership, Page, ParkedFilter, ParkedState, Parking,
    Registered, Registration, Retention, Settlement, Store, StoredEvent,
};
use posthaste_stores::sqlite::{InitOptions, SqliteStore, init};
use rusqlite::Connection;
use tempfile::TempDir;

struct Outbox {
    directory: TempDir,
    store: SqliteStore,
}

impl Outbox {
    /// Where delivered events are not kept at all.
    async fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let url = format!("sqlite:{}", directory.path().join("outbox.db").display());
        let options = InitOptions {
            retention: Some(Duration::ZERO),
            ..InitOptions::default()
        };
        init(&url, options).await.unwrap();
        let store = SqliteStore::new(&url).unwrap();
        Self { directory, store }
    }

    fn path(&self) -> PathBuf {
        self.directory.path().join("outbox.db")
    }

    /// As an application opens it, with a busy time-out of a second: any error is a failure.
    fn connect(&self) -> Connection {
        let connection = Connection::open(self.path()).unwrap();
        connection.busy_timeout(Duration::from_secs(1)).unwrap();
        connection
    }

    fn count(&self, sql: &str) -> i64 {
        self.connect().query_row(sql, [], |row| row.get(0)).unwrap()
    }

    async fn own(&self) -> Arc<dyn Claimed> {
        self.own_at("null:").await
    }

    async fn own_at(&self, target: &str) -> Arc<dyn Claimed> {
        self.own_as(self.register().await, target).await
    }

    async fn register(&self) -> Registered {
        let registration = Registration {
            name: "relay".to_owned(),
            version: "1".to_owned(),
            host: HostIdentity::default(),
            lease: Duration::from_secs(600),
        };
        self.store.register(&registration).await.unwrap()
    }

    async fn own_as(&self, relay: Registered, target: &str) -> Arc<dyn Claimed> {
        let request = ClaimRequest::all("default", target);
        match self.store.claim(relay, &request).await.unwrap() {
            ClaimOutcome::Owned(claim) => self.store.open(&claim).await.unwrap(),
            other => panic!("{other:?}"),
        }
    }

    async fn keep_house(&self) -> Housekeeping {
        let mut all = Housekeeping::default();
        loop {
            all.add(self.store.housekeep(None).await.unwrap());
            if !all.more {
                return all;
            }
        }
    }
}

const PLENTY: Budget = Budget {
    events: 100_000,
    bytes: 256 << 20,
};

#[tokio::test]
async fn a_writer_is_never_kept_waiting_and_loses_nothing() {
    let outbox = Outbox::new().await;
    let claimed = outbox.own().await;
    outbox
        .connect()
        .execute_batch(
            "with recursive n (i) as (select 1 union all select i + 1 from n where i < 20000)
             insert into posthaste_outbox (topic, key, payload)
             select 't', i, randomblob(300) from n",
        )
        .unwrap();
    let page = claimed.next(PLENTY).await.unwrap();
    assert_eq!(page.events.len(), 20_000);
    claimed.advance(&page.end, &[]).await.unwrap();

    let stop = Arc::new(AtomicBool::new(false));
    let writer = std::thread::spawn({
        let (connection, stop) = (outbox.connect(), Arc::clone(&stop));
        move || {
            let mut written = 0_i64;
            while !stop.load(Ordering::Relaxed) || written == 0 {
                connection
                    .execute(
                        "insert into posthaste_outbox (topic, payload) values ('t', 'beside')",
                        [],
                    )
                    .unwrap();
                written += 1;
            }
            written
        }
    });
    let gone = outbox.keep_house().await;
    stop.store(true, Ordering::Relaxed);
    let written = writer.join().unwrap();
    assert_eq!(gone.events, 20_000);
    assert_eq!(
        outbox.count("select count(*) from posthaste_outbox"),
        written
    );
    let page = claimed.next(PLENTY).await.unwrap();
    assert_eq!(page.events.len() as i64, written);
    assert!(page.events[0].seq() > 20_000);
}

fn first_is_dead(page: &Page) -> Parking {
    let first = &page.events[0];
    Parking {
        event: first.clone(),
        at: page.cursor_at(first),
        attempts: 1,
        kind: "invalid",
        reason: String::new(),
        next: AfterFailure::Dead,
    }
}

/// SQLite takes any bytes as text, and compares them.
#[tokio::test]
async fn followers_that_are_not_utf8_are_set_aside_and_not_lost() {
    for (target, key) in [
        ("null:", "k\u{fffd}"),
        ("key-and-topic+null:", "t\u{fffd}\u{1f}k\u{fffd}"),
    ] {
        let outbox = Outbox::new().await;
        let claimed = outbox.own_at(target).await;
        outbox
            .connect()
            .execute_batch(
                "with recursive n (i) as (select 1 union all select i + 1 from n where i < 3)
                 insert into posthaste_outbox (topic, key, payload)
                 select cast(x'74ff' as text), cast(x'6bff' as text), 'x' from n",
            )
            .unwrap();
        let page = claimed.next(PLENTY).await.unwrap();
        claimed.park(&[first_is_dead(&page)]).await.unwrap();
        claimed.advance(&page.end, &[]).await.unwrap();
        assert_eq!(outbox.keep_house().await.evacuated, 2, "{target}");
        let filter = ParkedFilter {
            key: Some("k\u{fffd}".to_owned()),
            state: Some(ParkedState::Dead),
            ..ParkedFilter::default()
        };
        let skipped = outbox.store.act(&filter, DeadAction::Skip).await;
        assert_eq!(skipped.unwrap(), 1);
        let mut delivered = Vec::new();
        while let Some(copy) = claimed.due(10).await.unwrap().events.first() {
            assert_eq!(copy.event.order_key(), Some(key));
            delivered.push(copy.event.seq());
            let settled = claimed.settle(copy.id, &Settlement::Delivered);
            settled.await.unwrap();
        }
        let followers = page.events[1..].iter();
        let followers: Vec<i64> = followers.map(StoredEvent::seq).collect();
        assert_eq!(delivered, followers);
    }
}

#[tokio::test]
async fn adopted_copies_that_are_not_utf8_are_found_by_their_key() {
    let outbox = Outbox::new().await;
    let relay = outbox.register().await;
    let claimed = outbox.own_as(relay, "null:").await;
    outbox
        .connect()
        .execute_batch(
            "insert into posthaste_outbox (topic, key) values ('t', 'k');
             insert into posthaste_outbox (topic, key) values (cast(x'74ff' as text), 'k')",
        )
        .unwrap();
    let page = claimed.next(PLENTY).await.unwrap();
    claimed.park(&[first_is_dead(&page)]).await.unwrap();
    claimed.advance(&page.end, &[]).await.unwrap();
    assert_eq!(outbox.keep_house().await.evacuated, 1);
    outbox.store.leave(relay, Duration::ZERO).await.unwrap();
    let removed = DestinationState::Removed;
    let removed = outbox.store.set_destination("default", removed).await;
    assert!(removed.unwrap());
    outbox.own_at("key-and-topic+null:").await;
    let skipped = ParkedFilter {
        key: Some("k".to_owned()),
        state: Some(ParkedState::Skipped),
        ..ParkedFilter::default()
    };
    let adopted = outbox.store.act(&skipped, DeadAction::Retry).await;
    assert_eq!(adopted.unwrap(), 2);
}

#[tokio::test]
async fn large_rows_go_a_few_at_a_time() {
    let outbox = Outbox::new().await;
    let claimed = outbox.own().await;
    outbox
        .connect()
        .execute_batch(
            "with recursive n (i) as (select 1 union all select i + 1 from n where i < 20)
             insert into posthaste_outbox (topic, payload) select 't', randomblob(1048576) from n",
        )
        .unwrap();
    let page = claimed.next(PLENTY).await.unwrap();
    claimed.advance(&page.end, &[]).await.unwrap();
    assert_eq!(outbox.keep_house().await.events, 20);
    assert_eq!(outbox.count("select count(*) from posthaste_outbox"), 0);
}

#[tokio::test]
async fn what_was_set_aside_goes_a_month_after_nothing_waits_for_it() {
    let outbox = Outbox::new().await;
    outbox
        .connect()
        .execute_batch(
            "insert into posthaste_outbox (topic, key) values ('t', 'k'), ('t', 's'), ('t', null)",
        )
        .unwrap();
    let claimed = outbox.own().await;
    let page = claimed.next(PLENTY).await.unwrap();
    let parkings = page.events.iter().map(|event| Parking {
        at: page.cursor_at(event),
        event: event.clone(),
        attempts: 1,
        kind: "invalid",
        reason: "no".to_owned(),
        next: match event.key() {
            Some("s") => AfterFailure::Skip,
            _ => AfterFailure::Dead,
        },
    });
    claimed.park(&parkings.collect::<Vec<_>>()).await.unwrap();
    let age = |days: i64| {
        let micros = days * 86_400_000_000;
        outbox
            .connect()
            .execute_batch(&format!(
                "update posthaste_parked
                 set parked_at = parked_at - {micros}, closed_at = closed_at - {micros};
                 update posthaste_attempts set at = at - {micros}"
            ))
            .unwrap();
    };
    age(29);
    assert_eq!(outbox.keep_house().await.parked, 0);
    age(2);
    let gone = outbox.keep_house().await;
    assert_eq!((gone.parked, gone.attempts), (2, 2));
    // It holds its key: an operator decides.
    let dead = "select count(*) from posthaste_parked where state = 'dead' and key = 'k'";
    assert_eq!(outbox.count(dead), 1);
    assert_eq!(outbox.count("select count(*) from posthaste_parked"), 1);
    let forgotten = "select count(*) from posthaste_audit where action = 'forget'";
    assert_eq!(outbox.count(forgotten), 1);
}
