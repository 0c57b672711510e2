//! The ordering and ownership protocol in a model checker: writers with row locks, snapshots, one
//! sequence and rollbacks; relays that are killed and stopped; a broker whose answers are late,
//! lost or come twice.
//!
//! A relay's decisions are not modelled: its pipeline is the engine's, its sweep is the PostgreSQL
//! store's, the very code of production. Modelled are what they meet: the database ([`database`]),
//! the network and the broker, leases, and the statements that guard progress (`step`).

pub mod action;
mod aside;
mod canonical;
pub mod checker;
pub mod configurations;
pub mod database;
pub mod holes;
pub mod memories;
mod park;
pub mod polling;
pub mod relay;
pub mod retention;
pub mod scenario;
pub mod state;
mod step;
mod write;
