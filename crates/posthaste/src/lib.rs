//! Writes events inside your own database transaction: the library half of Posthaste, a
//! transactional outbox. The relay (`posthaste relay`) then moves every committed event to a
//! message broker, in order, at least once, and none that rolled back.
//!
//! ```
//! # #[cfg(feature = "sqlx-postgres")]
//! # mod example {
//! use posthaste::{Event, Outbox};
//!
//! async fn place_order(pool: &sqlx::PgPool, order: &str) -> Result<(), Box<dyn std::error::Error>>
//! {
//!     let mut tx = pool.begin().await?;
//!     sqlx::query("insert into orders (id) values ($1)").bind(order).execute(&mut *tx).await?;
//!     let event = Event::builder("orders")
//!         .key(order)
//!         .event_type("order.placed")
//!         .payload(format!(r#"{{"order":"{order}"}}"#))
//!         .build()?;
//!     Outbox::new().emit(&mut *tx, event).await?;
//!     tx.commit().await?;
//!     Ok(())
//! }
//! # }
//! ```
//!
//! Choose the client that your application uses by feature: `sqlx-postgres`, `sqlx-mysql`,
//! `sqlx-sqlite`, `tokio-postgres` or `mysql_async`; `testing` adds helpers for your own tests. The
//! table is made by `posthaste init`, or from [`schema`] by a migration tool of your own, and is
//! open to writers in every language.

mod dialect;
mod error;
mod event;
mod limits;
mod outbox;
pub mod schema;
mod slot;
mod statement;
#[cfg(feature = "testing")]
pub mod testing;
mod tx;

pub use dialect::Dialect;
pub use error::EmitError;
pub use event::{Event, EventBuilder, Timestamp};
pub use limits::Limits;
pub use outbox::{Emitted, Outbox};
pub use slot::{SLOTS, slot};
pub use statement::{Batch, Param, Statement};
pub use tx::Tx;

#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
mod readme {}
