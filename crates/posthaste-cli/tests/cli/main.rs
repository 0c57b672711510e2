//! The binary as its users meet it: commands, exit statuses, and what both streams say. A failure
//! shows the command, its status and both streams.

#![allow(clippy::unwrap_used, clippy::expect_used)] // Clippy's own exception ends at helpers.

mod check;
mod config;
mod dead;
mod demo;
mod destination;
mod harness;
mod http;
mod init;
mod payloads;
mod purge;
mod relay;
mod relays;
mod release;
mod service_manager;
mod shell;
mod start;
mod status;
mod write_ahead_log;
