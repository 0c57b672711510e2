//! The PostgreSQL store on real servers. One binary: its tests share one server.

#![cfg(feature = "postgres")]
// A failed expectation is a failed test, in helpers too.
#![allow(clippy::unwrap_used, clippy::expect_used)]

#[path = "postgres_store/check.rs"]
mod check;
#[path = "postgres_store/connections.rs"]
mod connections;
#[path = "postgres_store/crash.rs"]
mod crash;
#[path = "postgres_store/eras.rs"]
mod eras;
#[path = "postgres_store/hijack.rs"]
mod hijack;
#[path = "postgres_store/hints.rs"]
mod hints;
#[path = "postgres_store/locks.rs"]
mod locks;
#[path = "postgres_store/migration.rs"]
mod migration;
#[path = "postgres_store/numbers.rs"]
mod numbers;
#[path = "postgres_store/ownership.rs"]
mod ownership;
#[path = "postgres_store/parking.rs"]
mod parking;
#[path = "postgres_store/pinned.rs"]
mod pinned;
#[path = "postgres_store/pooler.rs"]
mod pooler;
#[path = "postgres_store/publication.rs"]
mod publication;
#[path = "postgres_store/retention.rs"]
mod retention;
#[path = "postgres_store/retention_mode.rs"]
mod retention_mode;
#[path = "postgres_store/rewriting.rs"]
mod rewriting;
#[path = "postgres_store/rules.rs"]
mod rules;
#[path = "postgres_store/sharing.rs"]
mod sharing;
#[path = "postgres_store/support.rs"]
mod support;
#[path = "postgres_store/walk.rs"]
mod walk;
