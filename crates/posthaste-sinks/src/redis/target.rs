//! Where records go.

use super::stream_name::StreamPattern;

/// The options of an address that lanes need.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Target {
    pub(super) stream: StreamPattern,
    /// How `XADD` trims (nothing: not at all), and to what length.
    pub(super) maxlen: (&'static str, u64),
    pub(super) known_ids: u64,
    pub(super) event_bytes_max: Option<u64>,
    /// Replicas that must have an event.
    pub(super) wait: Option<u64>,
}

/// Reads a value of `maxlen`.
///
/// # Errors
/// The form that it must have.
pub(super) fn maxlen(text: &str) -> Result<(&'static str, u64), String> {
    let (trim, length) = match text.strip_prefix('~') {
        Some(length) => ("~", length),
        None => ("=", text),
    };
    match length.parse() {
        Ok(length) if length > 0 => Ok((trim, length)),
        _ => {
            Err("`maxlen` is a number of entries, at least 1, or `~` and such a number".to_owned())
        }
    }
}
