//! Torture: the built binary between real databases, brokers and files, while everything that can
//! fail does, and a checker compares what was delivered with what the business tables say.
//!
//! The tests of `posthaste-cli` use the parts one by one. [`torture`](mod@torture) plays them all,
//! lap by lap, for as long as the command `posthaste-torture` is told to.
//!
//! As in the test kit, a helper panics with everything a reader needs when it cannot do its work,
//! and when the binary under test does not do what was waited for.

// The whole crate is test code, where a failed expectation is a failed test.
#![allow(clippy::unwrap_used, clippy::expect_used)]

pub mod brokers;
pub mod clocks;
pub mod crash;
pub mod database;
pub mod faults;
pub mod fixture;
pub mod fleet;
pub mod judge;
pub mod lap;
pub mod load;
pub mod mysql;
pub mod options;
pub mod postgres;
pub mod relay;
pub mod report;
pub mod setting;
pub mod source;
pub mod sqlite;
mod sqlx_writer;
pub mod torture;
