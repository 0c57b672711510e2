//! A database with an outbox, its writers, and a relay that reads it.

use std::{sync::Arc, time::Duration};

use mysql_async::{Conn, Opts, prelude::Queryable};
use posthaste_engine::{
    Budget, ClaimOutcome, ClaimRequest, Claimed, HostIdentity, Leases, Ownership, Registered,
    Registration, Store, StoreError, StoredEvent,
};
use posthaste_stores::{
    InitOptions,
    mysql::{MysqlStore, init},
};
use posthaste_testkit::servers::mysql::{Database, MysqlServer, Version};
use tokio::task::block_in_place;

/// A lease that no test outlives.
pub(crate) const LONG: Duration = Duration::from_secs(600);
/// Longer than the distance of two samples.
const NEXT_SAMPLE: Duration = Duration::from_millis(60);
/// Reads until something has to have happened.
const READS_MAX: usize = 300;

pub(crate) const PLENTY: Budget = Budget {
    events: 10_000,
    bytes: 64 << 20,
};

pub(crate) struct Outbox {
    pub(crate) database: Database,
    /// More of the address, behind `?`.
    pub(crate) options: &'static str,
    user: &'static str,
}

impl Outbox {
    pub(crate) async fn shared(version: Version) -> Self {
        Self::on(block_in_place(|| MysqlServer::shared(version))).await
    }

    pub(crate) async fn on(server: &MysqlServer) -> Self {
        let database = block_in_place(|| server.create_database());
        let options = InitOptions::default();
        init(&database.url(), &options).await.unwrap();
        Self {
            database,
            options: "",
            user: "root",
        }
    }

    pub(crate) fn with(mut self, options: &'static str) -> Self {
        self.options = options;
        self
    }

    pub(crate) fn by_user(mut self, user: &'static str) -> Self {
        self.user = user;
        self
    }

    pub(crate) fn store(&self) -> Arc<MysqlStore> {
        let url = format!("{}?{}", self.database.url_for(self.user), self.options);
        Arc::new(MysqlStore::new(&url).unwrap())
    }

    pub(crate) async fn writer(&self) -> Writer {
        Writer(connect(&self.database.url()).await)
    }

    /// The holes that are stored, and the greatest number that was seen.
    pub(crate) async fn stored(&self) -> (bool, u64) {
        let mut conn = connect(&self.database.url()).await;
        let sql = "select length(holes) > 0, high from posthaste_cursors";
        conn.query_first(sql).await.unwrap().unwrap()
    }

    /// Everything up to this number is stored as seen.
    pub(crate) async fn floor(&self) -> u64 {
        let mut conn = connect(&self.database.url()).await;
        let sql = "select floor from posthaste_cursors";
        conn.query_first(sql).await.unwrap().unwrap()
    }
}

pub(crate) async fn connect(url: &str) -> Conn {
    Conn::new(Opts::from_url(url).unwrap()).await.unwrap()
}

/// An application's connection.
pub(crate) struct Writer(pub(crate) Conn);

impl Writer {
    pub(crate) async fn run(&mut self, sql: &str) {
        self.0.query_drop(sql).await.unwrap();
    }

    /// Inserts an event whose payload is its name; answers the number that it drew.
    pub(crate) async fn insert(&mut self, name: &str) -> u64 {
        self.insert_keyed(name, "k").await
    }

    pub(crate) async fn insert_keyed(&mut self, name: &str, key: &str) -> u64 {
        self.run(&format!(
            "insert into posthaste_outbox (topic, `key`, payload) values ('t', '{key}', '{name}')"
        ))
        .await;
        self.0.last_insert_id().unwrap()
    }

    pub(crate) async fn insert_a_thousand(&mut self) {
        self.run(
            "insert into posthaste_outbox (topic, payload)
             with recursive n (i) as (select 1 union all select i + 1 from n where i < 1000)
             select 't', '' from n",
        )
        .await;
    }

    pub(crate) async fn begin(&mut self) {
        self.run("start transaction").await;
    }

    pub(crate) async fn commit(&mut self) {
        self.run("commit").await;
    }

    pub(crate) async fn rollback(&mut self) {
        self.run("rollback").await;
    }

    /// The names that a reader sees that knows nothing but the greatest number of its last read.
    pub(crate) async fn behind(&mut self, high: u64) -> Vec<String> {
        let sql = format!("select payload from posthaste_outbox where seq > {high} order by seq");
        self.0.query(sql).await.unwrap()
    }
}

/// A relay that owns the whole destination.
pub(crate) struct Relay {
    pub(crate) store: Arc<MysqlStore>,
    pub(crate) relay: Registered,
    pub(crate) claimed: Arc<dyn Claimed>,
}

impl Relay {
    pub(crate) async fn new(outbox: &Outbox) -> Self {
        let store = outbox.store();
        let relay = store.register(&registration()).await.unwrap();
        let claimed = claim(&store, relay).await.unwrap();
        Self {
            store,
            relay,
            claimed,
        }
    }

    /// The same relay, which goes on at another address.
    pub(crate) async fn at(url: &str, relay: Registered) -> Self {
        let store = Arc::new(MysqlStore::new(url).unwrap());
        let claimed = claim(&store, relay).await.unwrap();
        Self {
            store,
            relay,
            claimed,
        }
    }

    /// Claims anew, as after a failed call.
    pub(crate) async fn again(self) -> Self {
        let mut tries = 0;
        let claimed = loop {
            match claim(&self.store, self.relay).await {
                Ok(claimed) => break claimed,
                Err(error) => {
                    tries += 1;
                    assert!(error.is_retryable() && tries < READS_MAX, "{error}");
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
            }
        };
        Self { claimed, ..self }
    }

    pub(crate) async fn try_read(&self) -> Result<Vec<StoredEvent>, StoreError> {
        let page = self.claimed.next(PLENTY).await?;
        if page.store_end || !page.events.is_empty() {
            self.claimed.advance(&page.end, &[]).await?;
        }
        Ok(page.events)
    }

    /// One read, all of it delivered and stored.
    pub(crate) async fn read(&self) -> Vec<String> {
        names(&self.try_read().await.unwrap())
    }

    /// All that is there.
    pub(crate) async fn read_all(&self) -> Vec<String> {
        let mut all = Vec::new();
        loop {
            let events = self.read().await;
            if events.is_empty() {
                return all;
            }
            all.extend(events);
        }
    }

    /// Reads for so many samples; answers what came.
    pub(crate) async fn read_for(&self, samples: usize) -> Vec<String> {
        let mut all = Vec::new();
        for _ in 0..samples {
            tokio::time::sleep(NEXT_SAMPLE).await;
            all.extend(self.read().await);
        }
        all
    }

    /// Reads until no hole is open; answers what came.
    pub(crate) async fn until_closed(&self, outbox: &Outbox) -> Vec<String> {
        let mut all = Vec::new();
        for _ in 0..READS_MAX {
            all.extend(self.read().await);
            if !outbox.stored().await.0 {
                return all;
            }
            tokio::time::sleep(NEXT_SAMPLE).await;
        }
        panic!("holes are still open after {READS_MAX} reads");
    }

    /// Reads through some samples, none of which may close the hole.
    pub(crate) async fn must_stay_open(&self, outbox: &Outbox) {
        assert_eq!(self.read_for(6).await, Vec::<String>::new());
        assert!(outbox.stored().await.0, "a hole was closed");
    }
}

pub(crate) fn registration() -> Registration {
    Registration {
        name: "relay".to_owned(),
        version: "1.2.3".to_owned(),
        host: HostIdentity::default(),
        lease: LONG,
    }
}

async fn claim(store: &MysqlStore, relay: Registered) -> Result<Arc<dyn Claimed>, StoreError> {
    let request = ClaimRequest::all("default", "null:");
    match store.claim(relay, &request).await? {
        ClaimOutcome::Owned(claim) => store.open(&claim).await,
        other => panic!("{other:?}"),
    }
}

pub(crate) fn names(events: &[StoredEvent]) -> Vec<String> {
    let payloads = events
        .iter()
        .map(|event| event.payload().unwrap_or_default());
    payloads
        .map(|payload| String::from_utf8_lossy(payload).into_owned())
        .collect()
}
