//! Lives of a server: numbers are given again to other events.

use mysql_async::prelude::Queryable;
use posthaste_testkit::servers::mysql::{MysqlServer, Version};
use tokio::task::block_in_place;

use super::support::{Outbox, Relay};

super::on_all! {
    a_number_that_is_given_again_after_a_fail_over_is_read
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_number_that_is_given_again_after_a_crash_is_read_on_mariadb_10() {
    a_number_that_is_given_again_after_a_crash_is_read(Version::MariaDb10).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_number_that_is_given_again_after_a_crash_is_read_on_mariadb_11() {
    a_number_that_is_given_again_after_a_crash_is_read(Version::MariaDb11).await;
}

/// T17: the server shows what it has not written yet, and a crash takes it along. MySQL 8 hands its
/// log to the operating system at once, whatever it is told: a killed process loses nothing.
async fn a_number_that_is_given_again_after_a_crash_is_read(version: Version) {
    let builder = MysqlServer::builder(version).shows_locks();
    // Written once a second at the most, by its own clock.
    let builder = builder.setting("innodb-flush-log-at-trx-commit", "0");
    let server = block_in_place(|| builder.start());
    let outbox = Outbox::on(&server).await;
    for round in 0..20 {
        let mut a = outbox.writer().await;
        a.insert(&format!("before {round}")).await;
        let mut relay = Relay::new(&outbox).await;
        relay.read_all().await;
        // Durable, up to here.
        a.run("set global innodb_flush_log_at_trx_commit = 1").await;
        a.run("create table if not exists t (n int); insert into t values (1)")
            .await;
        relay.read_all().await;
        a.run("insert into t values (2)").await;
        a.run("set global innodb_flush_log_at_trx_commit = 0").await;
        let high = a.insert("ghost").await;
        let read = relay.read_all().await;
        assert_eq!(read, ["ghost"]);
        block_in_place(|| {
            server.kill9();
            server.start_again();
        });
        assert!(
            relay
                .try_read()
                .await
                .is_err_and(|error| error.is_retryable())
        );
        relay = relay.again().await;
        let mut b = outbox.writer().await;
        let sql = "select count(*) from posthaste_outbox where payload = 'ghost'";
        let ghosts: Option<u64> = b.0.query_first(sql).await.unwrap();
        let again = b.insert("real").await;
        if ghosts == Some(0) {
            assert!(again <= high, "{again} {high}");
            assert_eq!(
                b.behind(high).await,
                Vec::<String>::new(),
                "the simple reader loses it"
            );
            assert_eq!(relay.read_all().await, ["real"]);
            return;
        }
        // The event survived. Whether its delivery was stored may be lost.
        assert_eq!(relay.read_all().await.last().unwrap(), "real");
        b.run("delete from posthaste_outbox where payload = 'ghost'")
            .await;
        posthaste_engine::Leases::leave(&*relay.store, relay.relay, std::time::Duration::ZERO)
            .await
            .unwrap();
    }
    panic!("the server has written everything at once, 20 times");
}

/// T18: a replica is promoted that has not everything that was delivered.
async fn a_number_that_is_given_again_after_a_fail_over_is_read(version: Version) {
    let start = |id: &'static str| {
        let builder = MysqlServer::builder(version).shows_locks();
        let builder = builder.setting("server-id", id).setting("log-bin", "log");
        let builder = builder.setting("log-slave-updates", "ON");
        block_in_place(|| builder.start())
    };
    let (primary, replica) = (start("1"), start("2"));
    let outbox = Outbox::on(&primary).await;
    // MariaDB makes its administrator for this address; replicas come from there too.
    let status = block_in_place(|| primary.sql("", "show master status"));
    let mut status = status.split('\t');
    let (file, position) = (status.next().unwrap(), status.next().unwrap());
    let name = outbox.database.name();
    let follow = format!(
        "create database {name}; \
         change master to master_host = '127.0.0.1', master_port = {}, master_user = 'root', \
         master_ssl = 0, master_ssl_verify_server_cert = 0, \
         master_log_file = '{file}', master_log_pos = {position}; start slave",
        primary.port()
    );
    // The schema was made before the position.
    let schema = posthaste_stores::InitOptions::default();
    block_in_place(|| replica.sql("", &format!("create database {name}")));
    let url = replica.admin_url(name);
    posthaste_stores::mysql::init(&url, &schema).await.unwrap();
    let identity = block_in_place(|| primary.sql(name, "select store_id from posthaste_identity"));
    block_in_place(|| {
        replica.sql(
            name,
            &format!("update posthaste_identity set store_id = '{identity}'"),
        );
        replica.sql(
            "",
            &follow.replace(&format!("create database {name}; "), ""),
        );
    });

    let relay = Relay::new(&outbox).await;
    let mut a = outbox.writer().await;
    for number in 1..=3 {
        a.insert(&format!("{number}")).await;
    }
    assert_eq!(relay.read_all().await, ["1", "2", "3"]);
    // The replica has all of it, the cursor too.
    let wanted = block_in_place(|| primary.sql(name, "select high, ver from posthaste_cursors"));
    let has = || block_in_place(|| replica.sql(name, "select high, ver from posthaste_cursors"));
    for tries in 0.. {
        if has() == wanted {
            break;
        }
        assert!(tries < 500, "the replica does not follow");
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    // T19: it is refused as long as it is one.
    let refused = {
        let store = posthaste_stores::mysql::MysqlStore::new(&url).unwrap();
        posthaste_engine::Store::check(&store).await
    };
    let said = refused.expect_err("a replica").to_string();
    assert!(
        said.contains("applies the changes of another one"),
        "{said}"
    );
    block_in_place(|| replica.sql("", "stop slave"));
    a.insert("4, lost").await;
    let high = a.insert("5, lost").await;
    assert_eq!(relay.read_all().await, ["4, lost", "5, lost"]);
    block_in_place(|| {
        primary.kill9();
        replica.sql("", "reset slave all");
    });

    let mut b = super::support::Writer(super::support::connect(&url).await);
    for name in ["A", "B", "C"] {
        b.insert(name).await;
    }
    assert_eq!(b.behind(high).await, ["C"], "the simple reader loses two");
    let promoted = Relay::at(&url, relay.relay).await;
    assert_eq!(promoted.read_all().await, ["A", "B", "C"]);
}
