//! Everything that people install: what is in `packaging/`, before the tools that take it, and the
//! artefacts of a release, made of the binary under test and used where nothing else is. With
//! `POSTHASTE_TEST_RELEASE` a folder that `./release` has filled is tested instead.

#![allow(clippy::unwrap_used, clippy::expect_used)] // Clippy's own exception ends at helpers.

mod artefacts;
mod crates;
mod debian;
mod image;
mod installed;
mod kubernetes;
mod made;
mod node;
mod workflow;
