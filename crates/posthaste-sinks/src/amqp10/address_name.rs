//! The address of a queue or topic at the broker, with the topic of an event in it.

use crate::topic_template::{TOPIC, TopicTemplate};

/// Addresses that begin like this are the broker's own: messages to `activemq.management` and
/// `$management` are orders to it. Topics and headers are chosen by each writer of events.
const OF_THE_BROKER: [&str; 2] = ["$", "activemq."];

/// The address that the sink sends to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct AddressPattern(TopicTemplate);

impl AddressPattern {
    /// The pattern of this text.
    ///
    /// # Errors
    /// The mistake, in words.
    pub(super) fn new(text: &str) -> Result<Self, &'static str> {
        let template = TopicTemplate::parse(text)
            .ok_or("the address at the broker knows `{topic}` alone in braces")?;
        match text.is_empty() {
            true => Err("behind the servers' `/` stands the address at the broker: \
                         `amqp10://HOST/ADDRESS`"),
            false => Ok(Self(template)),
        }
    }

    /// The address, where all topics have the same one.
    pub(super) fn only_address(&self) -> Option<&str> {
        self.0.only()
    }

    /// The address for a topic.
    ///
    /// # Errors
    /// Why the topic makes none, in words.
    pub(super) fn address(&self, topic: &str) -> Result<String, &'static str> {
        let address = self.0.fill(topic);
        let begins = |text: &str| OF_THE_BROKER.iter().any(|own| text.starts_with(own));
        if address.is_empty() {
            return Err("its topic is empty, and makes no address");
        }
        match begins(&address) && !begins(self.0.begin()) {
            true => Err(
                "its topic makes an address of the broker's own, which begins with `$` or \
                         `activemq.`: messages there may be orders to the broker",
            ),
            false => Ok(address),
        }
    }

    /// The pattern as it is given.
    pub(super) fn text(&self) -> String {
        self.0.fill(TOPIC)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// It would carry out what the event says.
    #[test]
    fn an_event_gives_the_broker_no_orders() {
        for (pattern, topic) in [
            ("{topic}", "activemq.management"),
            ("{topic}", "$management"),
            ("activemq{topic}", ".management"),
        ] {
            let refused = AddressPattern::new(pattern).unwrap().address(topic);
            assert!(refused.unwrap_err().contains("orders to the broker"));
        }
    }

    #[test]
    fn a_topic_stands_in_its_pattern() {
        for (pattern, topic, address) in [
            ("orders", "any", Some("orders")),
            ("{topic}", "orders", Some("orders")),
            ("shop.{topic}::q", "a/b", Some("shop.a/b::q")),
            (
                "shop.{topic}",
                "activemq.management",
                Some("shop.activemq.management"),
            ),
            ("$own/{topic}", "a", Some("$own/a")),
            ("{topic}", "", None),
        ] {
            let found = AddressPattern::new(pattern).unwrap().address(topic);
            assert_eq!(found.ok().as_deref(), address);
        }
        for (pattern, words) in [("{key}", "`{topic}` alone"), ("", "amqp10://HOST/ADDRESS")] {
            let error = AddressPattern::new(pattern).unwrap_err();
            assert!(error.contains(words), "{error}");
        }
    }
}
