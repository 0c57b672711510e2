//! Placeholder.

pub mod schema;
