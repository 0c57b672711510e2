//! The stores of Posthaste: one folder per kind of database, one feature each.

#[cfg(any(feature = "postgres", feature = "sqlite"))]
mod percent;
#[cfg(feature = "postgres")]
pub mod postgres;
#[cfg(feature = "sqlite")]
pub mod sqlite;
