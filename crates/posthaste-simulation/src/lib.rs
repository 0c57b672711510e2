//! The deterministic simulation: the production relay, unchanged and several at once, against a
//! simulated database and simulated brokers, in virtual time, everything from one seed.
//!
//! A run ([`run`]) is one history: writers emit, relays deliver, and faults happen to all of them
//! as the seed draws it; then everything heals, and what is owed must come. Checkers ([`checkers`])
//! watch each step, one for each promise. Two runs of one [`Seed`] do the same, step by step: their
//! traces have the same hash.
//!
//! Real threads, real sockets and real disks are the torture's business.

pub mod broker;
pub mod checkers;
pub mod database;
mod faults;
mod listed;
mod observed;
mod payload;
mod process;
mod seed;
pub mod seen;
pub mod totals;
mod trace;
mod world;
mod writers;

pub use faults::{Injection, Reached};
pub use seed::{Emphasis, Seed, Time};
pub use world::{Outcome, run};
