//! A backup is put in the place of the tables, beside a relay or before it starts.

use mysql_async::prelude::Queryable;
use posthaste_engine::StoreError;
use posthaste_testkit::servers::mysql::Version;

use super::support::{Outbox, Relay, Writer};

super::on_all! {
    a_backup_that_is_restored_under_a_claim_is_noticed
    a_backup_that_is_restored_before_the_start_is_read_on
}

/// All that changes, as a dump in one snapshot has it.
struct Backup {
    columns: String,
}

impl Backup {
    async fn take(writer: &mut Writer) -> Self {
        // As a dump does: the default of the times is one that MySQL 8.0.15 refuses otherwise.
        writer.run("set session sql_mode = ''").await;
        // And without what the server computes.
        let sql = "select group_concat(concat('`', column_name, '`')) \
                   from information_schema.columns where table_schema = database() \
                   and table_name = 'posthaste_outbox' and column_name <> 'slot'";
        let columns: Option<String> = writer.0.query_first(sql).await.unwrap();
        let columns = columns.unwrap();
        let outbox = format!("create table saved_outbox as select {columns} from posthaste_outbox");
        writer.run(&outbox).await;
        writer
            .run("create table saved_cursors as select * from posthaste_cursors")
            .await;
        Self { columns }
    }

    /// Loads it as a dump is loaded: into tables that are made anew.
    async fn restore(&self, writer: &mut Writer) {
        let columns = &self.columns;
        writer.run("truncate table posthaste_outbox").await;
        writer
            .run(&format!(
                "insert into posthaste_outbox ({columns}) select {columns} from saved_outbox"
            ))
            .await;
        writer
            .run(
                "start transaction; delete from posthaste_cursors; \
                 insert into posthaste_cursors select * from saved_cursors; commit",
            )
            .await;
    }
}

async fn delivered_three(outbox: &Outbox) -> (Relay, Writer) {
    let relay = Relay::new(outbox).await;
    let mut writer = outbox.writer().await;
    for name in ["1", "2", "3"] {
        writer.insert(name).await;
    }
    assert_eq!(relay.read_all().await, ["1", "2", "3"]);
    (relay, writer)
}

/// The claim is as it was when the backup was taken, and nobody has anything to store.
async fn a_backup_that_is_restored_under_a_claim_is_noticed(version: Version) {
    let outbox = Outbox::shared(version).await;
    let (relay, mut writer) = delivered_three(&outbox).await;
    let backup = Backup::take(&mut writer).await;
    writer.insert("4, lost").await;
    let high = writer.insert("5, lost").await;
    assert_eq!(relay.read_all().await, ["4, lost", "5, lost"]);

    backup.restore(&mut writer).await;
    for name in ["A", "B"] {
        writer.insert(name).await;
    }
    let behind = writer.behind(high).await;
    assert_eq!(behind, Vec::<String>::new(), "the simple reader loses both");
    let noticed = relay.try_read().await;
    assert!(
        matches!(noticed, Err(StoreError::IncarnationChanged { .. })),
        "{noticed:?}"
    );
    assert_eq!(relay.again().await.read_all().await, ["A", "B"]);
}

/// Events of the time between come again, as far as the backup has them.
async fn a_backup_that_is_restored_before_the_start_is_read_on(version: Version) {
    let outbox = Outbox::shared(version).await;
    let (relay, mut writer) = delivered_three(&outbox).await;
    writer.insert("4, in the backup").await;
    let backup = Backup::take(&mut writer).await;
    writer.insert("5, lost").await;
    assert_eq!(relay.read_all().await, ["4, in the backup", "5, lost"]);

    backup.restore(&mut writer).await;
    writer.insert("A").await;
    let relay = relay.again().await;
    assert_eq!(relay.read_all().await, ["4, in the backup", "A"]);
}
