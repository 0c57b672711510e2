//! The PostgreSQL store on real servers. Its tests share one server.

#![cfg(feature = "postgres")]
// A failed expectation is a failed test, in helpers too.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod check;
mod connections;
mod crash;
mod eras;
mod hijack;
mod hints;
mod locks;
mod migration;
mod numbers;
mod ownership;
mod parking;
mod pinned;
mod pooler;
mod publication;
mod retention;
mod retention_mode;
mod rewriting;
mod rules;
mod sharing;
mod support;
mod walk;
