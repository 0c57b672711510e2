//! Names of topics, and the words about them.

/// The words for the operator when a topic is denied.
pub(super) fn denial(name: &str) -> String {
    format!("topic `{name}`: we may not write to it; allow the user WRITE and DESCRIBE on it")
}

/// Topics that brokers keep for themselves (`org.apache.kafka.common.internals.Topic`). A
/// transaction is told of a missing right there, which nobody can give.
const OF_BROKERS: [&str; 3] = [
    "__consumer_offsets",
    "__transaction_state",
    "__share_group_state",
];

/// Why no client can write to a topic of this name.
pub(super) fn refuse_name(name: &str) -> Option<String> {
    const LEN_MAX: usize = 249;
    let is_good = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    if name.is_empty() {
        Some("the event has an empty topic".to_owned())
    } else if name.len() > LEN_MAX {
        Some(format!(
            "the topic's name has {} bytes, Kafka takes {LEN_MAX}",
            name.len()
        ))
    } else if matches!(name, "." | "..") || !name.bytes().all(is_good) {
        Some(format!(
            "topic `{name}`: Kafka takes letters, digits, `.`, `_` and `-` only"
        ))
    } else if OF_BROKERS.contains(&name) {
        Some(format!(
            "topic `{name}` is the brokers' own; no client may write to it"
        ))
    } else {
        None
    }
}

/// The topic that the client's log names as refused to a transaction.
pub(super) fn named_in_refusal<'a>(facility: &str, message: &'a str) -> Option<&'a str> {
    if facility != "ADDPARTS" {
        return None;
    }
    if !message.ends_with("Topic authorization failed") {
        return None;
    }
    let (_, rest) = message.split_once("Failed to add partition \"")?;
    Some(rest.split_once('"')?.0)
}
