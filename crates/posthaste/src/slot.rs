//! The slot of a key: 14 bits of a hash that every language and database can compute.

use sha2::{Digest, Sha256};

/// How many slots there are.
pub const SLOTS: u16 = 1 << 14;

/// The slot of an event: of its key, or of its id (lower-case, with hyphens) when it has no key.
///
/// The first two bytes, big endian, of the SHA-256 of the UTF-8 bytes, masked to 14 bits.
#[must_use]
pub fn slot(key_or_id: &str) -> u16 {
    let digest = Sha256::digest(key_or_id.as_bytes());
    u16::from_be_bytes([digest[0], digest[1]]) & (SLOTS - 1)
}

/// The number of the advisory lock that stands for a key: the first eight bytes, big endian, of the
/// same hash. `posthaste.lock_key` computes the same, so that all writers meet at one lock.
pub(crate) fn lock_number(key: &str) -> i64 {
    let digest = Sha256::digest(key.as_bytes());
    let mut bytes = [0; 8];
    bytes.copy_from_slice(&digest[..8]);
    i64::from_be_bytes(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vectors_of_the_contract() {
        // The same values stand in docs/sql-contract.md, where a server is asked for them.
        assert_eq!(slot(""), 9136);
        assert_eq!(slot("order-1"), 2991);
        assert_eq!(slot(r"a\b"), 1568);
        assert_eq!(slot("Größe"), 11996);
        assert_eq!(slot("🚚"), 375);
        assert_eq!(slot(&"k".repeat(1024)), 15139);
    }
}
