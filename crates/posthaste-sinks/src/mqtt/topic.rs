//! Topics of MQTT: a topic of ours within the pattern of the address.

use crate::topic_template::{TOPIC, TopicTemplate};

/// The protocol's limit.
const TOPIC_BYTES_MAX: usize = 65_535;

/// The pattern of an address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct TopicPattern(TopicTemplate);

impl TopicPattern {
    /// The pattern of an option's value.
    ///
    /// # Errors
    /// The mistake, in words.
    pub(super) fn new(text: &str) -> Result<Self, String> {
        let template = TopicTemplate::parse(text).ok_or_else(|| {
            format!("`topic` knows `{TOPIC}` alone in braces; a route gives an event another topic")
        })?;
        let pattern = Self(template);
        // Any valid topic will do.
        match pattern.name("topic") {
            Ok(_) => Ok(pattern),
            Err(fault) => Err(format!("`topic` is no topic to publish to: {fault}")),
        }
    }

    /// The topic of MQTT for a topic of ours.
    ///
    /// # Errors
    /// Why nobody can publish to it.
    pub(super) fn name(&self, topic: &str) -> Result<String, &'static str> {
        let name = self.0.fill(topic);
        // The broker's own begin so. An operator may mean one; a topic may not make one.
        if name.starts_with('$') && !self.0.begin().starts_with('$') {
            return Err("it begins with `$`, as the broker's own do");
        }
        if name.len() > TOPIC_BYTES_MAX {
            return Err("it has more than 65535 bytes");
        }
        if name.contains(['+', '#']) {
            return Err("it has a wildcard, `+` or `#`");
        }
        if name.contains(is_refused) {
            return Err("it has control characters, or others that MQTT refuses");
        }
        if name.split('/').any(str::is_empty) {
            return Err("a `/` stands at an end of it, or beside another `/`");
        }
        Ok(name)
    }
}

/// Whether a broker may take the character for a broken packet, and end the connection.
pub(super) fn is_refused(c: char) -> bool {
    let is_no_character = matches!(u32::from(c) & 0xFFFF, 0xFFFE | 0xFFFF);
    c.is_control() || is_no_character || ('\u{FDD0}'..='\u{FDEF}').contains(&c)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_topic_stands_in_its_pattern() {
        for (pattern, topic, name) in [
            ("{topic}", "orders/eu", Ok("orders/eu")),
            ("shop/{topic}/v1", "orders", Ok("shop/orders/v1")),
            ("events", "orders", Ok("events")),
            ("$aws/rules/{topic}", "a", Ok("$aws/rules/a")),
            ("{topic}", "ü b", Ok("ü b")),
            ("{topic}", "$SYS/x", Err("`$`")),
            ("{topic}", "", Err("at an end")),
            ("{topic}", "a//b", Err("at an end")),
            ("a/{topic}", "/b", Err("at an end")),
            ("{topic}", "a/+/b", Err("wildcard")),
            ("{topic}", "#", Err("wildcard")),
            ("{topic}", "a\0b", Err("control")),
            ("{topic}", "a\u{FFFE}", Err("refuses")),
            ("{topic}", &"t".repeat(65_536), Err("65535")),
        ] {
            let found = TopicPattern::new(pattern).unwrap().name(topic);
            match name {
                Ok(name) => assert_eq!(found.as_deref(), Ok(name)),
                Err(words) => assert!(found.unwrap_err().contains(words), "{topic}"),
            }
        }
    }

    #[test]
    fn a_wrong_pattern_names_the_mistake() {
        for (pattern, words) in [
            ("{key}", "`{topic}` alone"),
            ("a{{topic}}", "`{topic}` alone"),
            ("", "at an end"),
            ("a/#", "wildcard"),
            ("/a", "at an end"),
        ] {
            let error = TopicPattern::new(pattern).unwrap_err();
            assert!(error.contains(words), "{error}");
        }
    }
}
