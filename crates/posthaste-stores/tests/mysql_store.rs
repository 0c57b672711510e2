//! The store for MySQL and MariaDB on real servers: the histories in which a wrong proof, a cursor
//! in memory, or a wrong order loses events. Each shows first how a simpler reader loses them.

#![cfg(feature = "mysql")]
// A failed expectation is a failed test, in helpers too.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod blind;
mod commits;
mod crash;
mod fail_over;
mod hammer;
mod idle;
mod refusals;
mod restore;
mod retention;
mod support;
mod tls;
mod xa;

/// Each history as a test for each server.
macro_rules! on_all {
    ($($name:ident)*) => { $(
        mod $name {
            use posthaste_testkit::servers::mysql::Version;

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn mysql_8() {
                super::$name(Version::MySql8).await;
            }

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn mariadb_10() {
                super::$name(Version::MariaDb10).await;
            }

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn mariadb_11() {
                super::$name(Version::MariaDb11).await;
            }
        }
    )* };
}
use on_all;
