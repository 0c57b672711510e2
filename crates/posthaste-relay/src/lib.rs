//! The relay: moves every committed event from a [`Store`](posthaste_engine::Store) to its
//! destinations. Embeddable in any tokio service:
//!
//! ```no_run
//! # async fn run(
//! #     store: std::sync::Arc<dyn posthaste_engine::Store>,
//! #     sink: std::sync::Arc<dyn posthaste_engine::Sink>,
//! # ) -> Result<(), posthaste_relay::RelayError> {
//! use posthaste_relay::{Destination, Relay};
//!
//! let relay = Relay::builder(store).destination(Destination::new("default", sink)).build()?;
//! relay.run(async { drop(tokio::signal::ctrl_c().await) }).await?;
//! # Ok(())
//! # }
//! ```
//!
//! All decisions are the engine's ([`posthaste_engine::Pipeline`]); this crate owns the tasks, the
//! timers and the clock.

mod across_claims;
mod builder;
mod call;
mod clock;
mod counters;
mod deadline;
mod delivering;
mod destination;
mod error;
mod health;
mod host;
mod housekeeping;
mod jitter;
mod lease;
pub mod memory;
mod order;
mod refused_events;
mod relay;
mod runner;
mod said_once;
mod settings;
mod share;
mod shared_moment;
mod task;
mod watch;

pub use builder::RelayBuilder;
pub use clock::{BootClock, Clock};
pub use counters::{Counters, CountersSnapshot, LATENCY_BUCKETS_MICROS};
pub use deadline::BoundedStore;
pub use destination::Destination;
pub use error::RelayError;
pub use health::{DestinationHealth, Health, STANDSTILL};
pub use relay::{Relay, Summary};

#[cfg(doctest)]
#[doc = include_str!("../../../docs/embedding.md")]
mod embedding {}
