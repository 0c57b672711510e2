//! The payload of an event: its number, and how often the broker is to refuse it.

/// The payload of an event.
pub(crate) fn of(n: u64, poison: u64) -> Vec<u8> {
    format!("{n} {poison}").into_bytes()
}

fn field(value: Option<&[u8]>, index: usize) -> Option<u64> {
    let text = std::str::from_utf8(value?).ok()?;
    text.split(' ').nth(index)?.parse().ok()
}

/// The number; the largest one for a payload that is none of ours.
pub(crate) fn number(value: Option<&[u8]>) -> u64 {
    field(value, 0).unwrap_or(u64::MAX)
}

/// How often it is to be refused.
pub(crate) fn poison(value: Option<&[u8]>) -> u64 {
    field(value, 1).unwrap_or_default()
}
