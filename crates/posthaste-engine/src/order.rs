//! The order of a destination's events, and the keys that it binds.

use std::borrow::Cow;

/// Of which events the order is kept at a destination. Events without a key have none.
///
/// A destination keeps it for good: the markers of what waits are written in its terms. It stands
/// before the scheme of the destination's target (`key-and-topic+https://…`), so that a relay that
/// would keep another order is refused as one for another kind of broker is, whatever its version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum OrderBy {
    /// Of those of one key: a key that waits at one topic waits at all.
    #[default]
    Key,
    /// Of those of one key and one topic of the outbox: a key that waits at one topic goes on at
    /// the others.
    KeyAndTopic,
}

/// Between topic and key in the key of order. A pair that is written alike with another one waits
/// for it, which is harmless.
pub const ORDER_KEY_SEPARATOR: &str = "\u{1f}";

/// The targets of destinations of [`OrderBy::KeyAndTopic`] begin so.
pub const KEY_AND_TOPIC_TARGETS: &str = "key-and-topic+";

impl OrderBy {
    /// How a destination's target tells it, and the address that it is about.
    #[must_use]
    pub fn of_target(target: &str) -> (Self, &str) {
        match target.strip_prefix(KEY_AND_TOPIC_TARGETS) {
            Some(address) => (Self::KeyAndTopic, address),
            None => (Self::Key, target),
        }
    }

    /// The target of a destination that keeps this order at the address.
    #[must_use]
    pub fn target(self, address: &str) -> String {
        match self {
            Self::Key => address.to_owned(),
            Self::KeyAndTopic => format!("{KEY_AND_TOPIC_TARGETS}{address}"),
        }
    }

    /// The key of order of an event of this topic and key.
    #[must_use]
    pub fn order_key<'a>(self, topic: &str, key: &'a str) -> Cow<'a, str> {
        match self {
            Self::Key => key.into(),
            Self::KeyAndTopic => format!("{topic}{ORDER_KEY_SEPARATOR}{key}").into(),
        }
    }

    /// The key in this key of order, for people.
    #[must_use]
    pub fn key_of(self, order_key: &str) -> &str {
        let behind_topic = order_key.split_once(ORDER_KEY_SEPARATOR);
        match self {
            Self::Key => order_key,
            Self::KeyAndTopic => behind_topic.map_or(order_key, |(_, key)| key),
        }
    }

    /// As it is written in settings.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Key => "key",
            Self::KeyAndTopic => "key-and-topic",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_tells_the_order() {
        for order in [OrderBy::Key, OrderBy::KeyAndTopic] {
            let target = order.target("kafka://a");
            assert_eq!(OrderBy::of_target(&target), (order, "kafka://a"));
        }
    }
}
