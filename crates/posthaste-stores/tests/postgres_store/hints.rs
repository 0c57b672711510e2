//! Hints of writers to idle relays.

use std::{future::poll_fn, sync::Arc, time::Duration};

use posthaste_engine::{Claimed, Start};
use posthaste_stores::postgres::{InitOptions, init};
use posthaste_testkit::servers::postgres::{Database, PostgresServer};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio_postgres::{AsyncMessage, Client, NoTls};

use super::support::{ALL, drain, fresh, initialise, open, register, reopen, store, writer};

/// Nobody waits so long for what comes.
const LONG: Duration = Duration::from_secs(60);
const EMIT: &str = "select posthaste.emit('t', 'x')";
const EMIT_AND_STAY_OPEN: &str = "begin; select posthaste.emit('t', 'x')";
/// Takes the lock that an idle relay holds.
const ARM: &str = "select pg_advisory_lock_shared(8101821198467952244)";
const DISARM: &str = "select pg_advisory_unlock_shared(8101821198467952244)";
/// Counts its holders in this database.
const ARMED: &str = "select count(*) from pg_locks
    where locktype = 'advisory' and granted and mode = 'ShareLock' and objsubid = 1
        and (classid::bigint << 32) | objid::bigint = 8101821198467952244
        and database = (select oid from pg_database where datname = current_database())";

async fn switch(url: &str, on: bool) {
    let options = InitOptions {
        notify: Some(on),
        ..InitOptions::default()
    };
    init(url, &options).await.expect("init");
}

async fn hinted(claimed: &Arc<dyn Claimed>) {
    tokio::time::timeout(LONG, claimed.hinted())
        .await
        .expect("a hint");
}

async fn number(client: &Client, sql: &str) -> i64 {
    client.query_one(sql, &[]).await.expect(sql).get(0)
}

/// Reads nothing until the relay waits for a hint.
pub(crate) async fn idle(claimed: &Arc<dyn Claimed>, observer: &Client) {
    let armed = async {
        while number(observer, ARMED).await == 0 {
            assert!(claimed.next(ALL).await.unwrap().events.is_empty());
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(LONG, armed)
        .await
        .expect("an idle relay waits for a hint");
}

async fn until_disarmed(observer: &Client) {
    let disarmed = async {
        while number(observer, ARMED).await > 0 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(LONG, disarmed)
        .await
        .expect("nobody waits for a hint any longer");
}

/// Listens as a relay does, but holds the lock only when told to.
struct Listener {
    client: Client,
    told: UnboundedReceiver<String>,
}

impl Listener {
    async fn connect(database: &Database) -> Self {
        let (client, mut connection) = tokio_postgres::connect(&database.url(), NoTls)
            .await
            .unwrap();
        let (tell, told) = tokio::sync::mpsc::unbounded_channel();
        tokio::spawn(async move {
            while let Some(Ok(message)) = poll_fn(|context| connection.poll_message(context)).await
            {
                if let AsyncMessage::Notification(of) = message {
                    drop(tell.send(of.payload().to_owned()));
                }
            }
        });
        client.batch_execute("listen posthaste").await.unwrap();
        Self { client, told }
    }

    async fn run(&self, sql: &str) {
        self.client.batch_execute(sql).await.unwrap();
    }

    /// How many hints came until now.
    async fn hints(&mut self) -> usize {
        self.run("notify posthaste, 'end'").await;
        let mut count = 0;
        while self.told.recv().await.expect("the connection lives") != "end" {
            count += 1;
        }
        count
    }
}

#[tokio::test]
async fn a_commit_hints_to_whoever_waits() {
    // As everybody gets it: nothing was switched on.
    let database = fresh().await;
    let claimed = open(&store(&database.url()), Start::Oldest).await;
    // The listener's own notification, which says that it listens.
    hinted(&claimed).await;
    let writes = writer(&database.url()).await;
    for _ in 0..3 {
        idle(&claimed, &writes).await;
        writes.batch_execute(EMIT).await.unwrap();
        hinted(&claimed).await;
        until_disarmed(&writes).await;
        assert_eq!(drain(&claimed, ALL).await, ["x"]);
    }
}

#[tokio::test]
async fn what_an_idle_relay_read_before_a_hint_does_not_arm_it_again() {
    let database = fresh().await;
    let claimed = open(&store(&database.url()), Start::Oldest).await;
    hinted(&claimed).await;
    let writes = writer(&database.url()).await;
    idle(&claimed, &writes).await;
    for _ in 0..3 {
        assert!(claimed.next(ALL).await.unwrap().events.is_empty());
    }
    writes.batch_execute(EMIT).await.unwrap();
    hinted(&claimed).await;
    until_disarmed(&writes).await;
    // Longer than a relay needs to arm itself.
    for _ in 0..100 {
        assert_eq!(number(&writes, ARMED).await, 0);
    }
}

#[tokio::test]
async fn whatever_writes_hints_at_its_commit_and_only_to_a_relay_that_waits() {
    let database = fresh().await;
    let mut listener = Listener::connect(&database).await;
    let writes = writer(&database.url()).await;
    let plain = "insert into posthaste.outbox (topic) values ('t')";
    let several = "insert into posthaste.outbox (topic) select 't' from generate_series(1, 100)";
    let nested = "begin; savepoint s; select posthaste.emit('t', 'x'); release s; commit";
    let copied = "copy posthaste.outbox (topic) from program 'echo t'";
    for write in [plain, several, nested, copied, EMIT] {
        writes.batch_execute(write).await.unwrap();
        assert_eq!(listener.hints().await, 0, "{write}");
        listener.run(ARM).await;
        writes.batch_execute(write).await.unwrap();
        assert_eq!(listener.hints().await, 1, "{write}");
        listener.run(DISARM).await;
    }
    listener.run(ARM).await;
    let replica = "set session_replication_role = replica; select posthaste.emit('t', 'x')";
    for silent in [
        "begin; select posthaste.emit('t', 'x'); rollback",
        "begin; savepoint s; select posthaste.emit('t', 'x'); rollback to s; commit",
        replica,
    ] {
        writes.batch_execute(silent).await.unwrap();
        assert_eq!(listener.hints().await, 0, "{silent}");
    }
}

/// The commit of a transaction that notifies waits for those of all others that do.
#[tokio::test]
async fn one_of_the_transactions_that_write_at_once_hints() {
    let database = fresh().await;
    let mut listener = Listener::connect(&database).await;
    listener.run(ARM).await;
    let hinting = writer(&database.url()).await;
    // The locks of a transaction that hints, whenever it began.
    hinting
        .batch_execute(
            "begin; select pg_advisory_xact_lock(1885890665, n) from generate_series(0, 600) n",
        )
        .await
        .unwrap();
    let other = writer(&database.url()).await;
    other.batch_execute(EMIT).await.unwrap();
    assert_eq!(listener.hints().await, 0);
    hinting.batch_execute("commit").await.unwrap();
    other.batch_execute(EMIT).await.unwrap();
    assert_eq!(listener.hints().await, 1);
}

#[tokio::test]
async fn a_transaction_that_stays_open_does_not_silence_the_others() {
    let database = fresh().await;
    let mut listener = Listener::connect(&database).await;
    listener.run(ARM).await;
    let open = writer(&database.url()).await;
    open.batch_execute(EMIT_AND_STAY_OPEN).await.unwrap();
    let other = writer(&database.url()).await;
    let heard = async {
        while listener.hints().await == 0 {
            other.batch_execute(EMIT).await.unwrap();
        }
    };
    tokio::time::timeout(LONG, heard).await.expect("a hint");
    open.batch_execute("commit").await.unwrap();
    assert_eq!(listener.hints().await, 1);
}

/// The setting decides whether relays listen. Writers find out by themselves, without any DDL
/// beside them.
#[tokio::test]
async fn hints_are_switched_beside_an_open_writer() {
    let database = fresh().await;
    let trigger = "select oid from pg_trigger where tgrelid = 'posthaste.outbox'::regclass";
    let before = database.psql(trigger);
    let writes = writer(&database.url()).await;
    writes.batch_execute(EMIT_AND_STAY_OPEN).await.unwrap();
    for (on, setting) in [(false, "off"), (true, "on")] {
        tokio::time::timeout(LONG, switch(&database.url(), on))
            .await
            .expect("no wait for the writer");
        let kept = "select value from posthaste.settings where name = 'notify'";
        assert_eq!(database.psql(kept), setting);
    }
    assert_eq!(database.psql(trigger), before);
    assert!(!before.is_empty());
    writes.batch_execute("commit").await.unwrap();
}

/// A transaction that has notified cannot be prepared.
#[tokio::test]
async fn transactions_are_prepared_while_a_relay_waits_for_hints() {
    let server = PostgresServer::builder()
        .setting("fsync", "off")
        .setting("max_prepared_transactions", "2")
        .start();
    let url = server.admin_url("postgres");
    initialise(&url).await;
    let observer = writer(&url).await;
    let first = store(&url);
    let relay = register(&first, "one").await;
    let claimed = reopen(&first, relay, Start::Oldest).await;
    hinted(&claimed).await;
    idle(&claimed, &observer).await;
    let prepare =
        |name| format!("begin; select posthaste.emit('t', '{name}'); prepare transaction '{name}'");
    for name in ["kept", "undone"] {
        observer.batch_execute(&prepare(name)).await.unwrap();
    }
    observer.batch_execute(EMIT).await.unwrap();
    assert_eq!(drain(&claimed, ALL).await, ["x"]);
    // The relay is another process by the time of the decision.
    drop(claimed);
    let claimed = reopen(&store(&url), relay, Start::Oldest).await;
    assert!(drain(&claimed, ALL).await.is_empty());
    observer
        .batch_execute("commit prepared 'kept'")
        .await
        .unwrap();
    assert_eq!(drain(&claimed, ALL).await, ["kept"]);
    observer
        .batch_execute("rollback prepared 'undone'")
        .await
        .unwrap();
    assert!(drain(&claimed, ALL).await.is_empty());
}
