//! The shortest histories that lose events when retention takes a shortcut, on a real server. Each
//! stops between the look and the deed, where the shortcut would go on with what it saw.

mod evacuation;

use std::{sync::Arc, time::Duration};

use posthaste_engine::{
    Budget, ClaimOutcome, ClaimRequest, Claimed, Housekeeping, Leases, Ownership, Registered,
    Registration, Retention, Start, Store,
};
use posthaste_testkit::servers::postgres::{Database, PostgresServer};
use tokio_postgres::{Client, NoTls};

use super::{
    super::{InitOptions, PostgresStore, init},
    Housekeeper, delete, name_of,
    survey::{Due, Leaf, Survey},
    truncate, truncate_script,
};

const ALL: Budget = Budget {
    events: 10_000,
    bytes: 64 << 20,
};
const LEASE: Duration = Duration::from_secs(600);

/// An outbox with the smallest leaves, where delivered events are not kept at all.
struct Bench {
    database: Database,
    store: PostgresStore,
    relay: Registered,
}

impl Bench {
    async fn new() -> Self {
        let database = PostgresServer::shared(15).create_database();
        let options = InitOptions {
            leaf_rows: Some(1 << 10),
            retention: Some(Duration::ZERO),
            ..InitOptions::default()
        };
        init(&database.url(), &options).await.unwrap();
        let store = PostgresStore::new(&database.url()).unwrap();
        let registration = Registration {
            name: "relay".to_owned(),
            version: "1".to_owned(),
            host: Default::default(),
            lease: LEASE,
        };
        let relay = store.register(&registration).await.unwrap();
        Self {
            database,
            store,
            relay,
        }
    }

    fn emit(&self, events: u32) {
        self.database.psql(&format!(
            "insert into posthaste.outbox (topic, key, payload)
             select 't', 'k', convert_to(i::text, 'UTF8') from generate_series(1, {events}) i"
        ));
    }

    async fn open(&self, destination: &str, start: Start) -> Arc<dyn Claimed> {
        let request = ClaimRequest {
            start,
            ..ClaimRequest::all(destination, "null:")
        };
        match self.store.claim(self.relay, &request).await.unwrap() {
            ClaimOutcome::Owned(claim) => self.store.open(&claim).await.unwrap(),
            other => panic!("{other:?}"),
        }
    }

    async fn client(&self) -> Client {
        let (client, connection) = tokio_postgres::connect(&self.database.url(), NoTls)
            .await
            .unwrap();
        tokio::spawn(connection);
        client
    }

    /// Delivers what is there, and looks until a leaf is due. Transactions of other tests on the
    /// same server keep the floors down for a moment.
    async fn deliver_and_look(&self, claimed: &Arc<dyn Claimed>) -> (Survey, Leaf) {
        loop {
            deliver(claimed).await;
            let client = self.store.housekeeping.client().await.unwrap();
            let survey = Survey::make(&client, &self.store.emptied).await.unwrap();
            let mut leaves = survey.leaves.iter();
            if let Some(leaf) = leaves.find(|leaf| survey.due(leaf) == Some(Due::Truncate)) {
                return (survey.clone(), leaf.clone());
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// The deed succeeds once nobody is in the way.
    async fn truncate_at_last(&self, claimed: &Arc<dyn Claimed>) {
        loop {
            let look = self.deliver_and_look(claimed).await;
            if self.truncate(&look).await.leaves == 1 {
                return;
            }
        }
    }

    /// The deed, with what the look saw.
    async fn truncate(&self, (survey, leaf): &(Survey, Leaf)) -> Housekeeping {
        let mut done = Housekeeping::default();
        let client = self.store.housekeeping.client().await.unwrap();
        let keeper = Housekeeper {
            client: &client,
            emptied: &self.store.emptied,
            by: Some(self.relay),
        };
        truncate(&keeper, survey, leaf, &mut done).await.unwrap();
        done
    }

    /// Returns once a session waits for such a lock.
    async fn wait_for_a_wait(&self, lock: &str) {
        let waits = format!(
            "select count(*) from pg_locks l join pg_database d on d.oid = l.database
             where d.datname = current_database() and l.{lock} and not l.granted"
        );
        while self.count(&waits) == 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    fn count(&self, sql: &str) -> u64 {
        self.database.psql(sql).parse().unwrap()
    }

    fn rows(&self) -> u64 {
        self.count("select count(*) from posthaste.outbox")
    }
}

/// Delivers all that is there, and lets the floors follow.
async fn deliver(claimed: &Arc<dyn Claimed>) -> usize {
    let mut delivered = 0;
    loop {
        let page = claimed.next(ALL).await.unwrap();
        delivered += page.events.len();
        let outcome = claimed.advance(&page.end, &[]).await.unwrap();
        if page.caught_up && !page.store_end && !outcome.read_at_once {
            return delivered;
        }
    }
}

#[tokio::test]
async fn what_is_due_goes_and_leaves_a_line() {
    let bench = Bench::new().await;
    let claimed = bench.open("default", Start::Oldest).await;
    bench.emit(1_000);
    let look = bench.deliver_and_look(&claimed).await;
    let mut done = bench.truncate(&look).await;
    // The server's own housekeeping may be at the leaf.
    while done.in_the_way.is_some() {
        done = bench.truncate(&look).await;
    }
    assert_eq!((done.leaves, done.events), (1, 1_000));
    assert!(done.bytes > 0);
    assert_eq!(bench.rows(), 0);
    let audited =
        "select count(*) from posthaste.audit where action = 'truncate' and relay is not null";
    assert_eq!(bench.count(audited), 1);
}

#[tokio::test]
async fn trace_3_a_destination_is_created_between_look_and_deed() {
    let bench = Bench::new().await;
    let claimed = bench.open("default", Start::Oldest).await;
    bench.emit(1_000);
    let look = bench.deliver_and_look(&claimed).await;
    let new = bench.open("new", Start::Oldest).await;
    assert_eq!(bench.truncate(&look).await, Housekeeping::default());
    assert_eq!(deliver(&new).await, 1_000);
    bench.truncate_at_last(&new).await;
}

#[tokio::test]
async fn trace_3_a_destination_is_being_created() {
    let bench = Bench::new().await;
    let claimed = bench.open("default", Start::Oldest).await;
    bench.emit(1_000);
    let look = bench.deliver_and_look(&claimed).await;
    let creator = bench.client().await;
    creator
        .batch_execute(concat!(
            "begin; ",
            include_str!("../sql/destination_lock.sql")
        ))
        .await
        .unwrap();
    let done = bench.truncate(&look).await;
    assert!(
        done.in_the_way.is_some() && !done.did_something(),
        "{done:?}"
    );
    creator.batch_execute("commit").await.unwrap();
    bench.truncate_at_last(&claimed).await;
}

#[tokio::test]
async fn trace_3b_a_writer_commits_into_the_leaf_between_look_and_deed() {
    let bench = Bench::new().await;
    let claimed = bench.open("default", Start::Oldest).await;
    bench.emit(1_000);
    let look = bench.deliver_and_look(&claimed).await;
    let writer = bench.client().await;
    // Its row is not to be seen yet: the leaf still looks as if all of it was delivered.
    writer
        .batch_execute("begin; select posthaste.emit('t', 'late', 'k')")
        .await
        .unwrap();
    let done = bench.truncate(&look).await;
    assert!(
        done.in_the_way.is_some() && !done.did_something(),
        "{done:?}"
    );
    writer.batch_execute("commit").await.unwrap();
    assert_eq!(bench.truncate(&look).await, Housekeeping::default());
    assert_eq!(bench.rows(), 1_001);
    assert_eq!(deliver(&claimed).await, 1);
}

/// The control of the trace before: the same history, decided by the look alone.
#[tokio::test]
async fn trace_3b_loses_the_late_event_without_the_check_under_the_lock() {
    let bench = Bench::new().await;
    let claimed = bench.open("default", Start::Oldest).await;
    bench.emit(1_000);
    let (_, leaf) = bench.deliver_and_look(&claimed).await;
    let writer = bench.client().await;
    writer
        .batch_execute("begin; select posthaste.emit('t', 'late', 'k')")
        .await
        .unwrap();
    let unchecked = truncate_script(&name_of(&leaf).unwrap(), Some(bench.relay))
        .replace("if due is not true then", "if false then")
        .replace("'50ms'", "'5s'");
    let keeper = bench.client().await;
    let commits = async {
        bench.wait_for_a_wait("mode = 'AccessExclusiveLock'").await;
        writer.batch_execute("commit").await.unwrap();
    };
    let unchecked = format!("begin; {unchecked} commit");
    let (truncated, ()) = tokio::join!(keeper.batch_execute(&unchecked), commits);
    truncated.unwrap();
    assert_eq!(bench.rows(), 0, "the late event was committed, and is gone");
    assert_eq!(deliver(&claimed).await, 0);
}

#[tokio::test]
async fn trace_12_the_floor_stored_in_mid_difference_is_that_of_low() {
    let bench = Bench::new().await;
    let claimed = bench.open("default", Start::Oldest).await;
    bench.emit(2_000);
    let half = Budget { events: 500, ..ALL };
    let page = claimed.next(half).await.unwrap();
    claimed.advance(&page.end, &[]).await.unwrap();
    let mut read = page.events.len();
    // Within the difference, page by page; each advance proves what there is to prove.
    while read < 1_500 {
        assert!(!page.joinable, "in mid-difference");
        let page = claimed.next(half).await.unwrap();
        claimed.advance(&page.end, &[]).await.unwrap();
        read += page.events.len();
    }
    let done = bench.store.housekeep(Some(bench.relay)).await.unwrap();
    assert_eq!(done, Housekeeping::default(), "low has seen none of them");
    let again = bench.open("default", Start::Oldest).await;
    assert_eq!(deliver(&again).await, 2_000 - read);
}

#[tokio::test]
async fn trace_19_a_destination_from_now_on_waits_before_it_takes_its_snapshot() {
    let bench = Bench::new().await;
    let keeper = bench.client().await;
    keeper
        .batch_execute(concat!(
            "begin; ",
            include_str!("../sql/destination_lock.sql")
        ))
        .await
        .unwrap();
    let create = bench.open("new", Start::Now);
    let meanwhile = async {
        bench
            .wait_for_a_wait("mode = 'ShareRowExclusiveLock'")
            .await;
        // Before the destination's own beginning: it may be delivered by others, and go.
        bench.emit(1);
        keeper.batch_execute("commit").await.unwrap();
    };
    let (new, ()) = tokio::join!(create, meanwhile);
    assert_eq!(deliver(&new).await, 0);
    bench.emit(1);
    assert_eq!(deliver(&new).await, 1);
}

#[tokio::test]
async fn trace_20_a_key_is_blocked_between_look_and_deed() {
    let bench = Bench::new().await;
    let claimed = bench.open("default", Start::Oldest).await;
    bench.emit(1_000);
    let look = bench.deliver_and_look(&claimed).await;
    bench.database.psql(
        "insert into posthaste.markers (destination_id, key, slot, low, floor, floor_min)
         select id, 'blocked', 0, '1:1:', 500, 500 from posthaste.destinations",
    );
    assert_eq!(bench.truncate(&look).await, Housekeeping::default());
    // Nor do rows behind it go one by one.
    let mut done = Housekeeping::default();
    let client = bench.store.housekeeping.client().await.unwrap();
    let keeper = Housekeeper {
        client: &client,
        emptied: &bench.store.emptied,
        by: None,
    };
    delete(&keeper, &look.1, 4, &mut done).await.unwrap();
    assert_eq!((done.events, done.in_the_way), (500, None));
    drop(client);
    assert_eq!(bench.count("select min(seq) from posthaste.outbox"), 501);
}

#[tokio::test]
async fn a_leaf_that_holds_rows_of_two_laps_goes_by_the_greatest() {
    let bench = Bench::new().await;
    let claimed = bench.open("default", Start::Oldest).await;
    bench.emit(1_000);
    let look = bench.deliver_and_look(&claimed).await;
    // Numbers are used up by rolled back transactions; the ring comes round.
    bench.database.psql(&format!(
        "select count(nextval('posthaste.outbox_seq_seq')) from generate_series(1, {})",
        16 * 1_024
    ));
    bench.emit(1);
    assert_eq!(bench.truncate(&look).await, Housekeeping::default());
    assert_eq!(deliver(&claimed).await, 1);
    bench.truncate_at_last(&claimed).await;
    assert_eq!(bench.rows(), 0);
}

#[tokio::test]
async fn a_reader_in_the_leaf_is_waited_for_a_moment_only() {
    let bench = Bench::new().await;
    let claimed = bench.open("default", Start::Oldest).await;
    bench.emit(1_000);
    let look = bench.deliver_and_look(&claimed).await;
    let reader = bench.client().await;
    reader
        .batch_execute("begin; select count(*) from posthaste.outbox")
        .await
        .unwrap();
    let done = bench.truncate(&look).await;
    assert!(
        done.in_the_way.is_some() && !done.did_something(),
        "{done:?}"
    );
    // Not even when more is due would it be tried again at once.
    let step = bench.store.housekeep(None).await.unwrap();
    assert!(step.in_the_way.is_some() && !step.more, "{step:?}");
    // Nothing was left behind: writers and the relay go on, and the session too.
    bench.emit(1);
    assert_eq!(deliver(&claimed).await, 1);
    reader.batch_execute("commit").await.unwrap();
    bench.truncate_at_last(&claimed).await;
}
