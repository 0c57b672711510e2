//! The relay over a real PostgreSQL server: events whose rows only store and engine together can
//! judge.

#![allow(clippy::unwrap_used)]

use std::{sync::Arc, time::Duration};

use posthaste_engine::{
    Admin, DeadAction, DeliveryPolicy, OnDead, ParkedEvent, ParkedFilter, ParkedState,
};
use posthaste_relay::{
    Destination, Relay, RelayBuilder, Summary,
    memory::{MemorySink, MemorySinkFault},
};
use posthaste_stores::postgres::{InitOptions, PostgresStore, init};
use posthaste_testkit::servers::postgres::{Database, PostgresServer};
use tokio::{sync::oneshot, task::JoinHandle};
use tokio_postgres::{Client, NoTls};

/// Far more than anything here takes: only what hangs meets it.
const LIMIT: Duration = Duration::from_secs(60);

struct World {
    database: Database,
    store: Arc<PostgresStore>,
    sink: MemorySink,
    on_dead: OnDead,
}

impl World {
    async fn new(on_dead: OnDead) -> Self {
        let database = PostgresServer::shared(15).create_database();
        let url = database.url();
        init(&url, &InitOptions::default()).await.unwrap();
        Self {
            store: Arc::new(PostgresStore::new(&url).unwrap()),
            sink: MemorySink::new(),
            database,
            on_dead,
        }
    }

    async fn client(&self) -> Client {
        let url = self.database.url();
        let (client, connection) = tokio_postgres::connect(&url, NoTls).await.unwrap();
        tokio::spawn(connection);
        client
    }

    /// A relay that makes one attempt with each event.
    fn relay(&self) -> RelayBuilder {
        let policy = DeliveryPolicy {
            attempts: Some(1),
            on_dead: self.on_dead,
        };
        let destination = Destination::new("default", Arc::new(self.sink.clone())).policy(policy);
        Relay::builder(self.store.clone()).destination(destination)
    }

    async fn drain(&self) -> Summary {
        let relay = self.relay().until_drained(true).build().unwrap();
        let run = relay.run(std::future::pending());
        tokio::time::timeout(LIMIT, run).await.unwrap().unwrap()
    }

    fn start(&self) -> Running {
        let relay = self.relay().build().unwrap();
        let (stop, stopped) = oneshot::channel();
        let shutdown = async { drop(stopped.await) };
        let relay = tokio::spawn(async { relay.run(shutdown).await.unwrap() });
        Running { stop, relay }
    }

    fn delivered(&self) -> Vec<String> {
        let text = |value: &[u8]| String::from_utf8(value.to_vec()).unwrap();
        let accepted = self.sink.accepted();
        accepted
            .iter()
            .filter_map(|record| record.value().map(text))
            .collect()
    }

    async fn parked(&self, state: ParkedState) -> Vec<ParkedEvent> {
        let filter = ParkedFilter {
            state: Some(state),
            ..ParkedFilter::default()
        };
        self.store.parked(&filter, 100).await.unwrap()
    }

    async fn count(&self, state: ParkedState) -> usize {
        self.parked(state).await.len()
    }

    /// In the order of their places.
    async fn dead(&self) -> Vec<ParkedEvent> {
        let mut dead = self.parked(ParkedState::Dead).await;
        dead.sort_by_key(|parked| parked.event.seq());
        dead
    }
}

struct Running {
    stop: oneshot::Sender<()>,
    relay: JoinHandle<Summary>,
}

impl Running {
    async fn stop(self) {
        self.stop.send(()).unwrap();
        self.relay.await.unwrap();
    }
}

async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let wait = async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let waited = tokio::time::timeout(LIMIT, wait).await;
    waited.unwrap_or_else(|_| panic!("{what}: not within {LIMIT:?}"));
}

/// An event is refused and skipped while an open transaction holds the floor back. Its mended form
/// has the same id.
#[tokio::test]
async fn an_event_emitted_again_with_the_id_of_a_skipped_one_is_delivered() {
    for (key, on_dead) in [
        (None, OnDead::Skip),
        (Some("k"), OnDead::Skip),
        (None, OnDead::Block),
        (Some("k"), OnDead::Block),
    ] {
        let world = World::new(on_dead).await;
        let writer = world.client().await;
        let emit = async |id: &str, payload: &str| {
            let sql = "select posthaste.emit('t', $1::text, key => $2, id => $3::text::uuid)";
            writer.query(sql, &[&payload, &key, &id]).await.unwrap();
        };
        let holder = world.client().await;
        let held = "begin; select posthaste.emit('t', 'held')";
        holder.batch_execute(held).await.unwrap();

        world.sink.set_fault(MemorySinkFault::RejectLarger(6));
        emit("0190c0de-0000-7000-8000-000000000001", "refused").await;
        world.drain().await;
        if on_dead == OnDead::Block {
            let all = ParkedFilter::default();
            assert_eq!(world.store.act(&all, DeadAction::Skip).await.unwrap(), 1);
        }
        assert_eq!(world.count(ParkedState::Skipped).await, 1);

        let running = world.start();
        emit("0190c0de-0000-7000-8000-000000000002", "next").await;
        until("delivery of the next event", || {
            world.delivered() == ["next"]
        })
        .await;
        until("the end of the marker", || {
            world
                .database
                .psql("select count(*) from posthaste.markers")
                == "0"
        })
        .await;
        emit("0190c0de-0000-7000-8000-000000000001", "mended").await;
        until("delivery of the mended event", || {
            world.delivered() == ["next", "mended"]
        })
        .await;
        running.stop().await;
        holder.batch_execute("commit").await.unwrap();
        world.drain().await;
        assert_eq!(world.delivered(), ["next", "mended", "held"]);
    }
}

/// Rules that a superuser can take from the table, and an extension or a shadowed operator can undo
/// in silence.
const UNCHECKED: &str = "
    alter table posthaste.outbox
        drop constraint headers_are_pairs_with_names_and_at_most_65536_bytes,
        drop constraint occurred_at_is_between_year_1_and_9999,
        alter column id drop not null,
        alter column topic drop not null,
        alter column headers drop not null,
        alter column occurred_at drop not null,
        alter column slot drop not null";

const BROKEN: &str = "
    insert into posthaste.outbox (topic, key, payload) values ('t', 'good', 'first');
    insert into posthaste.outbox (topic, key, payload, headers) values
        ('t', 'odd', 'odd-1', '{odd}'),
        ('t', 'square', 'square-1', '{{a,b},{c,d}}'),
        ('t', 'nameless', 'nameless-1', array[null, 'x']),
        ('t', 'none', 'none-1', null);
    insert into posthaste.outbox (topic, key, payload) values (null, 'nowhere', 'nowhere-1');
    insert into posthaste.outbox (topic, key, payload, occurred_at) values
        ('t', 'before', 'before-1', '-infinity'),
        ('t', null, 'never', 'infinity'),
        ('t', 'timeless', 'timeless-1', null);
    insert into posthaste.outbox (id, topic, key, payload) values
        (null, 't', 'anonymous', 'anonymous-1'), (null, 't', null, 'anonymous too');
    insert into posthaste.outbox (topic, key, payload, inserted_at) values
        ('t', 'good', 'old', '-infinity');
    insert into posthaste.outbox (topic, key, payload) values ('t', 'square', 'square-2');
    insert into posthaste.outbox (topic, key, payload, headers) values
        ('t', 'square', 'square-3', '{odd}');
    insert into posthaste.outbox (topic, key, payload) values
        ('t', 'odd', 'odd-2'), ('t', 'square', 'square-4'), ('t', 'good', 'last')";

const COLUMNS: [&str; 10] = [
    "headers",
    "headers",
    "headers",
    "headers",
    "topic",
    "occurred_at",
    "occurred_at",
    "occurred_at",
    "id",
    "id",
];

#[tokio::test]
async fn events_that_cannot_be_decoded_are_parked_and_all_others_go_on() {
    let world = World::new(OnDead::Block).await;
    world.database.psql(UNCHECKED);
    world.database.psql(BROKEN);
    world.drain().await;
    assert_eq!(world.delivered(), ["first", "old", "last"]);
    let dead = world.dead().await;
    assert_eq!(dead.len(), COLUMNS.len(), "{dead:?}");
    for (parked, column) in dead.iter().zip(COLUMNS) {
        assert_eq!((&*parked.kind, parked.attempts), ("undecodable", 1));
        assert!(
            parked.reason.contains(&format!("`{column}`")),
            "{}",
            parked.reason
        );
    }
    let copied = "select count(*) from posthaste.parked p join posthaste.outbox o using (seq)
        where (o.topic, o.key, o.payload, o.headers, o.occurred_at, o.inserted_at)
            is not distinct from
            (p.topic, p.key, p.payload, p.headers, p.occurred_at, p.inserted_at)";
    assert_eq!(world.database.psql(copied), "10", "every byte is kept");
    let audited = "select count(*) from posthaste.audit where action = 'dead' and detail like '%: \
                   undecodable'";
    assert_eq!(world.database.psql(audited), "10");
    let status = world.store.status().await.unwrap();
    assert_eq!(status.destinations[0].dead, 10);
    assert_eq!(status.destinations[0].blocked_keys, 8);

    // No attempt reads more of them: dead again, and no loop.
    let all = ParkedFilter::default();
    assert_eq!(world.store.act(&all, DeadAction::Retry).await.unwrap(), 10);
    world.drain().await;
    let dead = world.dead().await;
    assert!(dead.iter().all(|parked| parked.attempts == 1), "{dead:?}");
    let attempts = "select count(*) from posthaste.attempts";
    assert_eq!(
        (dead.len(), world.database.psql(attempts)),
        (10, "20".to_owned())
    );
    assert_eq!(world.delivered(), ["first", "old", "last"]);

    // A copy can be mended; a side read meets the next bad one of its key.
    world
        .database
        .psql("update posthaste.parked set headers = '{}' where key = 'odd'");
    let of_key = |key: &str| ParkedFilter {
        key: Some(key.to_owned()),
        ..ParkedFilter::default()
    };
    let (odd, square) = (of_key("odd"), of_key("square"));
    assert_eq!(world.store.act(&odd, DeadAction::Retry).await.unwrap(), 1);
    assert_eq!(world.store.act(&square, DeadAction::Skip).await.unwrap(), 1);
    world.drain().await;
    let mut since = world.delivered().split_off(3);
    since.sort();
    assert_eq!(since, ["odd-1", "odd-2", "square-2"]);
    assert_eq!(world.dead().await.len(), 9);
    assert_eq!(world.store.act(&square, DeadAction::Skip).await.unwrap(), 1);
    world.drain().await;
    assert_eq!(world.delivered().last().unwrap(), "square-4");
}

/// Nothing waits for anybody where the destination goes on without what it cannot have.
#[tokio::test]
async fn an_event_that_cannot_be_decoded_is_skipped_where_the_policy_says_so() {
    let world = World::new(OnDead::Skip).await;
    world.database.psql(UNCHECKED);
    world.database.psql(BROKEN);
    world.drain().await;
    let expected = ["first", "old", "square-2", "odd-2", "square-4", "last"];
    let mut delivered = world.delivered();
    delivered.sort();
    let mut all = expected.map(str::to_owned);
    all.sort();
    assert_eq!(delivered, all);
    assert_eq!(world.count(ParkedState::Skipped).await, 11);
}
