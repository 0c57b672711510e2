//! The test kit's own tests, in one binary.

mod kafka;
mod pgbouncer;
mod postgres;
mod process;
mod proxy;
mod rabbitmq;
mod victim;
