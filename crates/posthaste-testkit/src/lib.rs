//! The ground of Posthaste's own tests: real servers, a test certificate authority, a TCP proxy
//! that breaks connections, child processes, and the checker of delivered events.
//!
//! A helper here panics, with everything a reader needs to act, when it cannot do its work: its
//! callers are tests, and a set-up that failed is a test that failed. Nothing is ever skipped in
//! silence; a missing server is a failure whose message is the command that installs it.
//!
//! Environment variables:
//!
//! - `POSTHASTE_TEST_POSTGRES_URL`: use this running PostgreSQL 15 for
//!   [`PostgresServer::shared`](servers::postgres::PostgresServer::shared) instead of starting one.
//! - `POSTHASTE_TEST_KAFKA`: `host:port` of a running Apache Kafka, plaintext and without login,
//!   for [`KafkaServer::shared`](servers::kafka::KafkaServer::shared).
//! - `POSTHASTE_TEST_RABBITMQ`: `amqp://user:password@host:port` of an administrator of a running
//!   RabbitMQ, for [`RabbitMqServer::shared`](servers::rabbitmq::RabbitMqServer::shared).
//! - `POSTHASTE_TEST_REDIS_SERVER`: the program of another Redis or Valkey than the system's, for
//!   [`RedisServer`](servers::redis::RedisServer).
//! - `POSTHASTE_TEST_CACHE`: where downloaded servers and cluster templates are kept, by default
//!   `${XDG_CACHE_HOME:-$HOME/.cache}/posthaste`.
//! - `POSTHASTE_TEST_LONG`: see [`long_form`].

// The whole crate is test code, where a failed expectation is a failed test.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod account;
#[cfg(any(feature = "amqp10", feature = "kafka", feature = "rabbitmq"))]
mod blocking;
pub mod cache;
pub mod checker;
pub mod faulty;
pub mod fuzz;
mod guard;
pub mod judges;
pub mod lines;
pub mod packages;
pub mod ports;
pub mod process;
pub mod proxy;
pub mod seams;
pub mod servers;
pub mod sink_suite;
pub mod store_suite;
pub mod suite;
pub mod tls;
pub mod ways;

/// Whether the long forms of the tests are asked for (`./test --long` sets `POSTHASTE_TEST_LONG`).
#[must_use]
pub fn long_form() -> bool {
    std::env::var_os("POSTHASTE_TEST_LONG").is_some_and(|value| !value.is_empty() && value != "0")
}

/// A name that no other test has: for topics, exchanges and queues on a shared server.
#[must_use]
pub fn unique_name(prefix: &str) -> String {
    format!("{prefix}-{}", uuid::Uuid::new_v4().simple())
}
