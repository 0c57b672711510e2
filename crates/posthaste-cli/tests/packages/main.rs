//! What people install: everything in `packaging/`, before the tools that they use for it.

#![allow(clippy::unwrap_used, clippy::expect_used)] // Clippy's own exception ends at helpers.

mod kubernetes;
