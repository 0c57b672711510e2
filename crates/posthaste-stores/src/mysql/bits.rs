//! Partitions as a row of cursors has them: a bit for each, the first one highest.

use posthaste_engine::{Partitions, StoreError};

use super::error::unexpected;

pub(super) fn encode(partitions: impl IntoIterator<Item = u16>, count: u16) -> Vec<u8> {
    let mut bytes = vec![0; usize::from(count).div_ceil(8)];
    for partition in partitions {
        if let Some(byte) = bytes.get_mut(usize::from(partition / 8)) {
            *byte |= 0x80 >> (partition % 8);
        }
    }
    bytes
}

pub(super) fn decode(bytes: &[u8]) -> Vec<u16> {
    let bits = bytes
        .iter()
        .flat_map(|byte| (0..8).map(move |bit| byte & (0x80 >> bit) != 0));
    (0..)
        .zip(bits)
        .filter_map(|(partition, set)| set.then_some(partition))
        .collect()
}

/// Those of `count`.
pub(super) fn partitions(
    operation: &'static str,
    bytes: &[u8],
    count: u16,
) -> Result<Partitions, StoreError> {
    let mut set = Partitions::none_of(count).map_err(|reason| unexpected(operation, reason))?;
    for partition in decode(bytes) {
        if !set.insert(partition) {
            return Err(unexpected(
                operation,
                format!("there is no partition {partition}"),
            ));
        }
    }
    Ok(set)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_are_partitions() {
        let some = [0, 1, 7, 8, 63];
        assert_eq!(encode(some, 64), [0b1100_0001, 0x80, 0, 0, 0, 0, 0, 1]);
        assert_eq!(decode(&encode(some, 64)), some);
        assert_eq!(encode([0], 1), [0x80]);
        assert!(partitions("test", &[0xff], 4).is_err());
        assert!(partitions("test", &[0xf0], 4).unwrap().is_all());
    }
}
