//! The statements of a relay while nobody writes. At its default intervals a destination is read
//! each 700 ms, the lease renewed and due events looked for each 5 s, and retention looks each
//! 9 s: with one statement for each that is less than two a second.

use std::time::Duration;

use mysql_async::prelude::Queryable;
use posthaste_engine::{
    Admin, ClaimRequest, DestinationState, Leases, Ownership, RelayReport, Renewal, Retention,
};
use posthaste_testkit::servers::mysql::{MysqlServer, Version};
use tokio::task::block_in_place;

use super::support::{LONG, Outbox, Relay, Writer, registration};

super::on_all! {
    an_idle_relay_asks_for_little
    a_renewal_tells_of_every_change
    a_renewal_waits_for_no_claim
    a_read_after_a_quiet_one_sees_what_came
}

/// The statements that others have sent since the last call.
async fn statements(observer: &mut Writer) -> Vec<String> {
    let sql = "select convert(argument using utf8mb4) from mysql.general_log \
               where command_type in ('Query', 'Execute') and thread_id <> connection_id() \
               order by event_time";
    let found = observer.0.query(sql).await.unwrap();
    observer.run("truncate table mysql.general_log").await;
    found
}

async fn an_idle_relay_asks_for_little(version: Version) {
    let server = block_in_place(|| MysqlServer::builder(version).shows_locks().start());
    let outbox = Outbox::on(&server).await;
    let relay = Relay::new(&outbox).await;
    let mut writer = outbox.writer().await;
    for name in ["1", "2", "3"] {
        writer.insert(name).await;
    }
    assert_eq!(relay.read_all().await, ["1", "2", "3"]);
    relay.store.housekeep(None).await.unwrap();
    writer
        .run("set global log_output = 'TABLE', global general_log = 1")
        .await;
    statements(&mut writer).await;

    let report = RelayReport::new();
    for round in 0..3 {
        assert_eq!(relay.read().await, Vec::<String>::new());
        let asked = statements(&mut writer).await;
        assert_eq!(asked.len(), 1, "a read: {asked:#?}");
        let renewed = relay.store.renew(relay.relay, LONG, &report);
        assert_eq!(renewed.await.unwrap().destinations.len(), 1);
        let asked = statements(&mut writer).await;
        // The first one sees what it is alone with.
        let bound = if round == 0 { 2 } else { 1 };
        assert_eq!(asked.len(), bound, "a renewal: {asked:#?}");
        relay.claimed.due(100).await.unwrap();
        let asked = statements(&mut writer).await;
        // The first one connects.
        if round > 0 {
            assert_eq!(asked.len(), 1, "a look for due events: {asked:#?}");
        }
        relay.store.housekeep(None).await.unwrap();
        let asked = statements(&mut writer).await;
        assert_eq!(asked.len(), 1, "a look of retention: {asked:#?}");
    }
}

/// A renewal that looks at nothing but its own row notices all the same what others do.
async fn a_renewal_tells_of_every_change(version: Version) {
    let outbox = Outbox::shared(version).await;
    let relay = Relay::new(&outbox).await;
    let report = RelayReport::new();
    let renewed = async || relay.store.renew(relay.relay, LONG, &report).await.unwrap();
    let alone = renewed().await;
    assert_eq!(renewed().await.destinations, alone.destinations);
    let admin = outbox.store();
    let paused = admin.set_destination("default", DestinationState::Paused);
    paused.await.unwrap();
    let told = renewed().await;
    assert_eq!(told.destinations[0].1.state, DestinationState::Paused);
    let resumed = admin.set_destination("default", DestinationState::Active);
    resumed.await.unwrap();
    assert_eq!(renewed().await.destinations[0].1, alone.destinations[0].1);

    // A second relay that serves the destination, and goes without a word.
    let other = admin.register(&registration()).await.unwrap();
    admin
        .claim(other, &ClaimRequest::all("default", "null:"))
        .await
        .unwrap();
    let members = |renewal: &Renewal| renewal.destinations[0].2.members.len();
    assert_eq!(members(&renewed().await), 2);
    let over = Duration::from_millis(1);
    admin.renew(other, over, &report).await.unwrap();
    tokio::time::sleep(over * 20).await;
    assert_eq!(members(&renewed().await), 1);
}

/// It reads what a claim has locked, and waits for nobody.
async fn a_renewal_waits_for_no_claim(version: Version) {
    let outbox = Outbox::shared(version).await;
    let relay = Relay::new(&outbox).await;
    let mut other = outbox.writer().await;
    other.begin().await;
    for table in [
        "destinations",
        "cursors",
        "members",
        "settings",
        "destination_locks",
    ] {
        other
            .run(&format!("select * from posthaste_{table} for update"))
            .await;
    }
    let report = RelayReport::new();
    let renewed = relay.store.renew(relay.relay, LONG, &report).await;
    assert_eq!(renewed.unwrap().destinations.len(), 1);
    other.rollback().await;
}

/// A quiet read is one statement, which looks for late commits as well.
async fn a_read_after_a_quiet_one_sees_what_came(version: Version) {
    let outbox = Outbox::shared(version).await;
    let relay = Relay::new(&outbox).await;
    let (mut a, mut b) = (outbox.writer().await, outbox.writer().await);
    for round in 0..3 {
        a.begin().await;
        a.insert(&format!("late {round}")).await;
        b.insert(&format!("early {round}")).await;
        let mut read = relay.read_all().await;
        read.extend(relay.read().await);
        assert_eq!(read, [format!("early {round}")]);
        a.commit().await;
        assert_eq!(relay.read().await, [format!("late {round}")]);
        assert_eq!(relay.read().await, Vec::<String>::new());
        let name = format!("next {round}");
        b.insert(&name).await;
        assert_eq!(relay.read().await, [name]);
    }
}
