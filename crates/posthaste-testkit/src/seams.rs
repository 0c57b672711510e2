//! The traces that features for proofs alone leave in a binary, which no binary that delivers may
//! have.

use std::path::Path;
use std::process::{Command, Stdio};

/// A rule that a test can leave out: the engine's feature `leave-out-rules`.
pub const RULES_LEFT_OUT: &str = "posthaste_engine4rule6switch";
/// The PostgreSQL in memory: the stores' feature `simulation`.
pub const SIMULATED_POSTGRES: &str = "posthaste_stores::postgres::simulated";
/// The model checker's view of the engine: its feature `model`.
pub const MODEL_OF_THE_ENGINE: &str = "posthaste_engine::pipeline::model";
/// The model checker's view of the PostgreSQL store: the stores' feature `model`.
pub const MODEL_OF_THE_STORE: &str = "posthaste_stores::postgres::model";

/// Whether a binary, built with symbols, has this trace.
///
/// # Panics
///
/// When the file cannot be searched.
#[must_use]
pub fn has(binary: &Path, trace: &str) -> bool {
    let status = Command::new("grep")
        .args(["-q", "-a", "-F", "-e", trace])
        .arg(binary)
        .stdin(Stdio::null())
        .status()
        .expect("run grep");
    match status.code() {
        Some(0) => true,
        Some(1) => false,
        _ => panic!("grep could not search {}: {status}", binary.display()),
    }
}
