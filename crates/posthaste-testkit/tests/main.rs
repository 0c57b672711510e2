//! The test kit's own tests, in one binary.

#![allow(clippy::unwrap_used, clippy::expect_used)] // Clippy's own exception ends at helpers.

mod kafka;
mod mysql;
mod pgbouncer;
mod postgres;
mod process;
mod proxy;
mod rabbitmq;
mod victim;
