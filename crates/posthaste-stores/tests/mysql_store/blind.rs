//! Instruments that see less than everything: nothing is closed, and the check says so.

use posthaste_engine::{Store, StoreError};
use posthaste_testkit::servers::mysql::{MysqlServer, Version};
use tokio::task::block_in_place;

use super::support::{Outbox, Relay, Writer, connect};

super::on_all! {
    without_instruments_nothing_is_closed
    an_instrument_that_was_off_for_a_time_is_not_trusted
    a_lock_that_is_granted_closes_holes_without_instruments
    a_lock_that_waits_holds_up_no_writer
    more_locks_than_the_instrument_holds_are_no_proof
    more_threads_than_the_instrument_holds_are_no_proof
    settings_of_the_server_reach_no_statement_of_ours
}

async fn refused(outbox: &Outbox) -> String {
    match outbox.store().check().await {
        Err(StoreError::Misconfigured { reason, .. }) => reason,
        other => panic!("expected a refusal, got {other:?}"),
    }
}

fn without_instruments(version: Version) -> MysqlServer {
    let builder = MysqlServer::builder(version).setting("performance-schema", "OFF");
    block_in_place(|| builder.start())
}

/// A writer that has drawn a number and is open, and a relay that has read a higher one.
async fn with_a_hole(outbox: &Outbox) -> (Writer, Relay) {
    let (mut a, mut b) = (outbox.writer().await, outbox.writer().await);
    let relay = Relay::new(outbox).await;
    a.begin().await;
    a.insert("late").await;
    b.insert("early").await;
    assert_eq!(relay.read_all().await, ["early"]);
    (a, relay)
}

/// T8
async fn without_instruments_nothing_is_closed(version: Version) {
    let server = without_instruments(version);
    let outbox = Outbox::on(&server).await;
    assert!(refused(&outbox).await.contains("performance_schema is off"));
    let (mut a, relay) = with_a_hole(&outbox).await;
    relay.must_stay_open(&outbox).await;
    a.commit().await;
    // Numbers without a proof are looked for again and again.
    assert_eq!(relay.read_for(1).await, ["late"]);
    let outbox = outbox.with("hole-proof=none");
    outbox.store().check().await.unwrap();
}

/// T9: off as the transaction begins, on again when samples are taken. The canary is there, and the
/// transaction's lock is not.
async fn an_instrument_that_was_off_for_a_time_is_not_trusted(version: Version) {
    let server = block_in_place(|| MysqlServer::builder(version).shows_locks().start());
    let outbox = Outbox::on(&server).await;
    let mut root = connect(&outbox.database.url()).await;
    let set = |enabled: &str| {
        format!(
            "update performance_schema.setup_instruments set enabled = '{enabled}' \
             where name = 'wait/lock/metadata/sql/mdl'"
        )
    };
    use mysql_async::prelude::Queryable;
    // The relay has a hole to prove all the time.
    let (mut first, relay) = with_a_hole(&outbox).await;
    relay.must_stay_open(&outbox).await;
    root.query_drop(set("NO")).await.unwrap();
    let mut a = outbox.writer().await;
    a.begin().await;
    a.insert("unseen").await;
    let mut b = outbox.writer().await;
    b.insert("between").await;
    assert_eq!(relay.read_all().await, ["between"]);
    assert!(refused(&outbox).await.contains("mdl is off"));
    // A sample of this time.
    relay.must_stay_open(&outbox).await;
    root.query_drop(set("YES")).await.unwrap();
    first.commit().await;
    assert_eq!(relay.read_for(8).await, ["late"]);
    assert!(
        outbox.stored().await.0,
        "the hole of the unseen transaction stays"
    );
    a.commit().await;
    assert_eq!(relay.read_for(1).await, ["unseen"]);
}

/// Opens so many transactions that write.
async fn crowd(outbox: &Outbox, writers: usize) -> Vec<Writer> {
    let mut crowd = Vec::new();
    for number in 0..writers {
        let mut writer = outbox.writer().await;
        writer.begin().await;
        writer.insert(&format!("{number}")).await;
        crowd.push(writer);
    }
    crowd
}

/// One of them would cut off the list of those who write, and another one would begin transactions
/// that nobody ends.
async fn settings_of_the_server_reach_no_statement_of_ours(version: Version) {
    let server = block_in_place(|| MysqlServer::builder(version).shows_locks().start());
    let outbox = Outbox::on(&server).await;
    let mut open = crowd(&outbox, 5).await;
    outbox.writer().await.insert("early").await;
    let mut root = connect(&outbox.database.url()).await;
    use mysql_async::prelude::Queryable;
    let odd = "set global completion_type = 1, global sql_select_limit = 2, \
               global max_join_size = 100, global sql_safe_updates = 1";
    root.query_drop(odd).await.unwrap();
    let relay = Relay::new(&outbox).await;
    assert_eq!(relay.read_all().await, ["early"]);
    relay.must_stay_open(&outbox).await;
    for writer in &mut open {
        writer.commit().await;
    }
    assert_eq!(relay.read_for(5).await.len(), 5);
}

/// T10
async fn more_locks_than_the_instrument_holds_are_no_proof(version: Version) {
    let builder = MysqlServer::builder(version).shows_locks();
    let builder = builder.setting("performance-schema-max-metadata-locks", "256");
    let server = block_in_place(|| builder.setting("max-connections", "500").start());
    let outbox = Outbox::on(&server).await;
    let (a, relay) = with_a_hole(&outbox).await;
    let crowd = crowd(&outbox, 400).await;
    assert!(refused(&outbox).await.contains("metadata_lock_lost"));
    relay.must_stay_open(&outbox).await;
    drop((a, crowd));
}

/// T11
async fn more_threads_than_the_instrument_holds_are_no_proof(version: Version) {
    let builder = MysqlServer::builder(version).shows_locks();
    let builder = builder.setting("performance-schema-max-thread-instances", "60");
    let server = block_in_place(|| builder.setting("max-connections", "500").start());
    let outbox = Outbox::on(&server).await;
    let crowd = crowd(&outbox, 100).await;
    let said = refused(&outbox).await;
    // Its own thread is unknown, or the counter tells of others.
    assert!(said.contains("thread_instances_lost"), "{said}");
    drop(crowd);
}

/// The way without instruments.
async fn a_lock_that_is_granted_closes_holes_without_instruments(version: Version) {
    let server = without_instruments(version);
    let outbox = Outbox::on(&server).await.with("hole-proof=lock");
    outbox.store().check().await.unwrap();
    let (mut a, relay) = with_a_hole(&outbox).await;
    relay.must_stay_open(&outbox).await;
    a.rollback().await;
    assert_eq!(relay.until_closed(&outbox).await, Vec::<String>::new());
}

/// T26
async fn a_lock_that_waits_holds_up_no_writer(version: Version) {
    let server = without_instruments(version);
    let outbox = Outbox::on(&server).await.with("hole-proof=lock");
    let (mut a, relay) = with_a_hole(&outbox).await;
    let mut b = outbox.writer().await;
    let mut longest = std::time::Duration::ZERO;
    let mut probes = 0;
    let reading = async {
        for _ in 0..3 {
            relay.read_for(1).await;
            probes += 1;
        }
    };
    let writing = async {
        for number in 0..300 {
            let begun = std::time::Instant::now();
            b.insert(&format!("{number}")).await;
            longest = longest.max(begun.elapsed());
        }
    };
    tokio::join!(reading, writing);
    assert_eq!(probes, 3);
    // A lock for writing would hold them up for its whole second.
    assert!(longest.as_millis() < 900, "{longest:?}");
    a.rollback().await;
}

/// T27: the plugin tells no more than the thread, which a pool uses for one transaction after the
/// other.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_plugin_closes_holes_beside_busy_connections() {
    let server = block_in_place(|| MysqlServer::builder(Version::MariaDb10).start());
    block_in_place(|| server.sql("", "install soname 'metadata_lock_info'"));
    let outbox = Outbox::on(&server).await;
    outbox.store().check().await.unwrap();
    let (mut a, relay) = with_a_hole(&outbox).await;
    relay.must_stay_open(&outbox).await;
    let url = outbox.database.url();
    let busy = tokio::spawn(async move {
        let mut writer = Writer(connect(&url).await);
        for number in 0..2_000 {
            writer.begin().await;
            writer.insert(&format!("{number}")).await;
            writer.commit().await;
        }
    });
    a.rollback().await;
    // The first hole, with the writer at work all the time.
    while outbox.floor().await < 2 {
        assert!(!busy.is_finished(), "closed only once nobody wrote");
        relay.read_for(1).await;
    }
    busy.await.unwrap();
}
