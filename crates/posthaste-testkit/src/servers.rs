//! Real servers for tests: each its own process on a free port of 127.0.0.1, in a temporary
//! folder, under an unprivileged user, gone when its value is dropped or the test process dies.

pub mod artemis;
pub mod azurite;
mod daemon;
pub mod gcs;
pub mod http;
pub mod kafka;
pub mod moto;
pub mod mqtt;
pub mod mysql;
pub mod nats;
pub mod pgbouncer;
pub mod postgres;
pub mod pubsub;
pub mod rabbitmq;
pub mod redis;
pub mod registry;
mod run;
pub mod sqs;
