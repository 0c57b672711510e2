//! Lives of a server: numbers are given again to other events.

use mysql_async::prelude::Queryable;
use posthaste_testkit::servers::mysql::{MysqlServer, Version};
use tokio::task::block_in_place;

use super::support::{Outbox, Relay};

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
