//! The parts of the schema of this build.

/// The newest migration that this build knows, which is its level as a relay.
pub(super) const LEVEL: i32 = 9;

/// The leaves of the ring, by number.
pub(super) const LEAVES: u8 = 16;

/// Their names.
pub(super) fn leaves() -> impl Iterator<Item = String> {
    (0..LEAVES).map(|leaf| format!("outbox_{leaf:02}"))
}
