//! A name for a text that is none that a service takes.

/// The SHA-256 in 64 hexadecimal digits.
pub(crate) fn sha256(bytes: &[u8]) -> String {
    let hash = ring::digest::digest(&ring::digest::SHA256, bytes);
    let hex = hash.as_ref().iter().map(|byte| format!("{byte:02x}"));
    hex.collect()
}
