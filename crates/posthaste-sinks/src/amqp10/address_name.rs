//! The address of a queue or topic at the broker, with the topic of an event in it.

/// Stands for the topic in an address.
const TOPIC: &str = "{topic}";

/// The address that the sink sends to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct AddressPattern {
    /// Each but the last has a topic behind it.
    texts: Vec<String>,
}

impl AddressPattern {
    /// The pattern of this text.
    ///
    /// # Errors
    /// The mistake, in words.
    pub(super) fn new(text: &str) -> Result<Self, &'static str> {
        let texts: Vec<_> = text.split(TOPIC).map(str::to_owned).collect();
        if texts.iter().any(|text| text.contains(['{', '}'])) {
            return Err("the address at the broker knows `{topic}` alone in braces");
        }
        match text.is_empty() {
            true => Err("behind the servers' `/` stands the address at the broker: \
                         `amqp10://HOST/ADDRESS`"),
            false => Ok(Self { texts }),
        }
    }

    /// The address, where all topics have the same one.
    pub(super) fn only_address(&self) -> Option<&str> {
        match &*self.texts {
            [only] => Some(only),
            _ => None,
        }
    }

    /// The address for a topic; none where it would be empty.
    pub(super) fn address(&self, topic: &str) -> Option<String> {
        let address = self.texts.join(topic);
        (!address.is_empty()).then_some(address)
    }

    /// The pattern as it is given.
    pub(super) fn text(&self) -> String {
        self.texts.join(TOPIC)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_topic_stands_in_its_pattern() {
        for (pattern, topic, address) in [
            ("orders", "any", Some("orders")),
            ("{topic}", "orders", Some("orders")),
            ("shop.{topic}::q", "a/b", Some("shop.a/b::q")),
            ("{topic}", "", None),
        ] {
            let found = AddressPattern::new(pattern).unwrap().address(topic);
            assert_eq!(found.as_deref(), address);
        }
        for (pattern, words) in [("{key}", "`{topic}` alone"), ("", "amqp10://HOST/ADDRESS")] {
            let error = AddressPattern::new(pattern).unwrap_err();
            assert!(error.contains(words), "{error}");
        }
    }
}
