//! Everything in `packaging/`, before the tools that people install it with.

#![allow(clippy::unwrap_used, clippy::expect_used)] // Clippy's own exception ends at helpers.

mod kubernetes;
