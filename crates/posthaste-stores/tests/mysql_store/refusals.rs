//! Outboxes and servers that hide events, and accounts that see too little.

use posthaste_engine::{Ownership, Store, StoreError};
use posthaste_stores::{InitOptions, mysql::init};
use posthaste_testkit::servers::mysql::{MysqlServer, Version};
use tokio::task::block_in_place;

use super::support::{Outbox, Relay, names};

super::on_all! {
    an_outbox_that_was_emptied_is_refused
    a_server_that_is_read_only_is_refused
    a_table_of_another_engine_is_refused
    an_account_with_the_rights_of_a_relay_delivers
    a_row_that_the_server_cannot_send_stops_no_other
}

fn said<T: std::fmt::Debug>(answer: Result<T, StoreError>) -> String {
    match answer {
        Err(StoreError::Misconfigured { reason, .. }) => reason,
        other => panic!("expected a refusal, got {other:?}"),
    }
}

/// T22
async fn an_outbox_that_was_emptied_is_refused(version: Version) {
    let outbox = Outbox::shared(version).await;
    let relay = Relay::new(&outbox).await;
    let mut a = outbox.writer().await;
    for number in 0..3 {
        a.insert(&format!("{number}")).await;
    }
    relay.read_all().await;
    a.run("truncate table posthaste_outbox").await;
    a.insert("hidden").await;
    assert_eq!(
        a.behind(3).await,
        Vec::<String>::new(),
        "the simple reader loses it"
    );
    assert!(said(outbox.store().check().await).contains("draws the number 2 next"));
    let request = posthaste_engine::ClaimRequest::all("default", "null:");
    let claim = match relay.store.claim(relay.relay, &request).await.unwrap() {
        posthaste_engine::ClaimOutcome::Owned(claim) => claim,
        other => panic!("{other:?}"),
    };
    assert!(said(relay.store.open(&claim).await.map(drop)).contains("set back"));
    // Also where the counter has passed the cursor again.
    for number in 0..4 {
        a.insert(&format!("again {number}")).await;
    }
    assert!(said(outbox.store().check().await).contains("has another event under the number 3"));
}

/// The server makes its payload itself, and it fits into no packet.
async fn a_row_that_the_server_cannot_send_stops_no_other(version: Version) {
    let builder = MysqlServer::builder(version).shows_locks();
    let builder = builder.setting("max-allowed-packet", "2M");
    let server = block_in_place(|| builder.start());
    let outbox = Outbox::on(&server).await;
    let mut writer = outbox.writer().await;
    writer.insert("before").await;
    writer
        .run(
            "insert into posthaste_outbox (topic, `key`, payload)
             values ('t', 'large', repeat('x', 2 * 1024 * 1024 - 100))",
        )
        .await;
    writer.insert("behind").await;
    let relay = Relay::new(&outbox).await;
    let events = relay.try_read().await.unwrap();
    assert_eq!(names(&events), ["before", "", "behind"]);
    let fault = events[1].fault().unwrap();
    assert!(fault.contains("max_allowed_packet"), "{fault}");
    assert_eq!(events[1].key(), Some("large"));
}

async fn a_server_that_is_read_only_is_refused(version: Version) {
    let server = block_in_place(|| MysqlServer::builder(version).shows_locks().start());
    let outbox = Outbox::on(&server).await;
    outbox.store().check().await.unwrap();
    block_in_place(|| server.sql("", "set global read_only = 1"));
    assert!(said(outbox.store().check().await).contains("read-only"));
}

async fn a_table_of_another_engine_is_refused(version: Version) {
    let outbox = Outbox::shared(version).await;
    let mut a = outbox.writer().await;
    a.run("alter table posthaste_attempts engine = MyISAM")
        .await;
    assert!(said(outbox.store().check().await).contains("MyISAM"));
}

/// T12, and least privilege: what `init` gives is enough, and less is no proof.
async fn an_account_with_the_rights_of_a_relay_delivers(version: Version) {
    let server = block_in_place(|| MysqlServer::builder(version).shows_locks().start());
    block_in_place(|| server.sql("", "create user relay@'127.0.0.1', writer@'127.0.0.1'"));
    let outbox = Outbox::on(&server).await;
    let options = InitOptions {
        relay: Some("relay@127.0.0.1".to_owned()),
        writer: Some("writer@127.0.0.1".to_owned()),
        ..InitOptions::default()
    };
    init(&outbox.database.url(), &options).await.unwrap();
    let outbox = outbox.by_user("relay");
    outbox.store().check().await.unwrap();
    let relay = Relay::new(&outbox).await;
    let (mut a, mut b) = (outbox.writer().await, outbox.writer().await);
    a.begin().await;
    a.insert("never").await;
    b.insert("early").await;
    assert_eq!(relay.read_all().await, ["early"]);
    a.rollback().await;
    assert_eq!(relay.until_closed(&outbox).await, Vec::<String>::new());
    let url = outbox.database.url_for("writer");
    let mut writer = super::support::Writer(super::support::connect(&url).await);
    writer.insert("of the writer").await;
    assert_eq!(relay.read_all().await, ["of the writer"]);
    if !version.is_mariadb() {
        block_in_place(|| server.sql("", "revoke xa_recover_admin on *.* from relay@'127.0.0.1'"));
        let refused = said(outbox.store().check().await);
        assert!(refused.contains("XA_RECOVER_ADMIN"), "{refused}");
        let relay = relay.again().await;
        a.begin().await;
        a.insert("never").await;
        b.insert("later").await;
        assert_eq!(relay.read_all().await, ["later"]);
        a.rollback().await;
        relay.must_stay_open(&outbox).await;
    }
}
