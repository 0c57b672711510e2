//! Torture: the built binary between real databases and real files, killed, starved and cut off,
//! while a checker compares what was delivered with what the business tables say (I1 to I4, I6, I7,
//! I11, I12). The short form runs with every check; `POSTHASTE_TEST_LONG=1` asks for the full one.

#![allow(clippy::unwrap_used, clippy::expect_used)] // Clippy's own exception ends at helpers.

#[cfg(any(feature = "kafka", feature = "rabbitmq"))]
mod beside;
mod blocked;
#[cfg(any(feature = "kafka", feature = "rabbitmq"))]
mod brokers;
mod connections;
mod copies;
#[cfg(feature = "kafka")]
mod handover;
mod harmless;
mod kills;
mod large;
#[cfg(feature = "kafka")]
mod offline;
mod outage;
mod poison;
mod pooler;
#[cfg(feature = "rabbitmq")]
mod refusals;
mod relays;
mod retention;
#[cfg(feature = "kafka")]
mod rolling;
mod server_crash;
mod short;
#[cfg(feature = "nats")]
mod silent;
mod standby;
mod troubled;
mod verdict;
