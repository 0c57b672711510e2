//! The name of a queue, a topic or a stream, with the topic of an event in it.

use crate::topic_template::TopicTemplate;

/// How the name of a FIFO queue or topic ends.
const FIFO: &str = ".fifo";

/// The characters that a service takes in a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NameRule {
    /// Dots only in `.fifo` at its end.
    WithFifo,
    WithDots,
    /// Those of Google Pub/Sub, where a name has three at least and begins with a letter.
    PubSub,
}

impl NameRule {
    fn may_stand(self, byte: u8) -> bool {
        match byte {
            b'.' => self != Self::WithFifo,
            b'~' | b'+' | b'%' => self == Self::PubSub,
            _ => byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'),
        }
    }

    /// A name's characters, in words.
    fn words(self) -> &'static str {
        match self {
            Self::WithFifo => {
                "its name has letters, digits, `-` and `_` of ASCII, and may end in `.fifo`"
            }
            Self::WithDots => "its name has letters, digits, `-`, `_` and `.` of ASCII",
            Self::PubSub => {
                "its name has three or more letters, digits, `-`, `_`, `.`, `~`, `+` and `%` of \
                 ASCII, and begins with a letter, but not with `goog`"
            }
        }
    }

    /// Why a text of these characters is no name.
    fn fault(self, stem: &str) -> Option<&'static str> {
        if !stem.bytes().all(|byte| self.may_stand(byte)) {
            return Some(match self {
                Self::WithFifo => {
                    "it has other characters than letters, digits, `-` and `_` of ASCII"
                }
                Self::WithDots => {
                    "it has other characters than letters, digits, `-`, `_` and `.` of ASCII"
                }
                Self::PubSub => {
                    "it has other characters than letters, digits, `-`, `_`, `.`, `~`, `+` and \
                     `%` of ASCII"
                }
            });
        }
        if self != Self::PubSub {
            return None;
        }
        match stem.len() < 3 {
            true => Some("it is too short"),
            false if !stem.starts_with(|c: char| c.is_ascii_alphabetic()) => {
                Some("it begins with no letter")
            }
            false if stem.starts_with("goog") => Some("it begins with `goog`"),
            false => None,
        }
    }
}

/// The name in an address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NamePattern {
    template: TopicTemplate,
    bytes_max: usize,
    rule: NameRule,
}

impl NamePattern {
    /// The pattern of this text, whose names have so many bytes at the most.
    ///
    /// # Errors
    /// The mistake, in words.
    pub(crate) fn new(text: &str, bytes_max: usize, rule: NameRule) -> Result<Self, &'static str> {
        let template =
            TopicTemplate::parse(text).ok_or("its name knows `{topic}` alone in braces")?;
        let pattern = Self {
            template,
            bytes_max,
            rule,
        };
        match pattern.name("topic") {
            Ok(_) => Ok(pattern),
            Err(_) => Err(rule.words()),
        }
    }

    /// Whether the queue or topic is FIFO. Its name says so, and the address alone decides: what a
    /// topic says is not known before an event has it.
    pub(crate) fn is_fifo(&self) -> bool {
        self.rule == NameRule::WithFifo && self.template.end().ends_with(FIFO)
    }

    /// Whether each topic has a queue, topic or stream of its own.
    pub(crate) fn has_topic(&self) -> bool {
        self.only_name().is_none()
    }

    /// The name, where all topics have the same one.
    pub(crate) fn only_name(&self) -> Option<&str> {
        self.template.only()
    }

    /// The name for a topic.
    ///
    /// # Errors
    /// Why there is none.
    pub(crate) fn name(&self, topic: &str) -> Result<String, &'static str> {
        let name = self.template.fill(topic);
        let stem = match self.is_fifo() {
            true => &name[..name.len() - FIFO.len()],
            false => &name,
        };
        if stem.is_empty() {
            return Err("it is empty");
        }
        if let Some(fault) = self.rule.fault(stem) {
            return Err(fault);
        }
        match name.len() > self.bytes_max {
            true => Err("it is too long"),
            false => Ok(name),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn new(text: &str) -> Result<NamePattern, &'static str> {
        NamePattern::new(text, 80, NameRule::WithFifo)
    }

    #[test]
    fn a_topic_stands_in_its_pattern() {
        for (pattern, topic, name) in [
            ("orders", "any", Ok("orders")),
            ("orders", "", Ok("orders")),
            ("{topic}", "orders", Ok("orders")),
            ("shop-{topic}.fifo", "orders_1", Ok("shop-orders_1.fifo")),
            ("{topic}", "", Err("empty")),
            ("{topic}.fifo", "", Err("empty")),
            ("{topic}", "orders.fifo", Err("other characters")),
            ("{topic}.fifo", "orders.fifo", Err("other characters")),
            ("{topic}", "orders.eu", Err("other characters")),
            ("{topic}", "a/b", Err("other characters")),
            ("{topic}", &"t".repeat(81), Err("too long")),
            ("{topic}.fifo", &"t".repeat(76), Err("too long")),
        ] {
            let found = new(pattern).unwrap().name(topic);
            match name {
                Ok(name) => assert_eq!(found.as_deref(), Ok(name)),
                Err(words) => assert!(found.unwrap_err().contains(words), "{pattern}: {topic}"),
            }
        }
        assert!(new("{topic}.fifo").unwrap().is_fifo());
        assert!(!new("{topic}").unwrap().is_fifo());
    }

    #[test]
    fn pubsub_has_names_of_its_own() {
        let new = |text| NamePattern::new(text, 255, NameRule::PubSub);
        for (topic, fault) in [
            ("orders.eu~1+%", None),
            ("a-", Some("too short")),
            ("1orders", Some("no letter")),
            ("google", Some("`goog`")),
            ("a/b", Some("other characters")),
            (&"t".repeat(256), Some("too long")),
        ] {
            let found = new("{topic}").unwrap().name(topic);
            match fault {
                None => assert_eq!(found.as_deref(), Ok(topic)),
                Some(words) => assert!(found.unwrap_err().contains(words), "{topic}"),
            }
        }
        assert!(new("goog-{topic}").unwrap_err().contains("not with `goog`"));
    }

    #[test]
    fn a_wrong_pattern_names_the_mistake() {
        for (pattern, words) in [
            ("{key}", "`{topic}` alone"),
            ("a}", "`{topic}` alone"),
            ("", "letters, digits"),
            (".fifo", "letters, digits"),
            ("a.b", "letters, digits"),
            ("a/b", "letters, digits"),
        ] {
            let error = new(pattern).unwrap_err();
            assert!(error.contains(words), "{pattern}: {error}");
        }
    }
}
