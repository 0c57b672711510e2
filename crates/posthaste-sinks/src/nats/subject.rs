//! Subjects: a topic within the pattern of the address.

use crate::topic_template::{TOPIC, TopicTemplate};

/// The server's limit is four kibibytes for a line that holds the subject and more.
const SUBJECT_BYTES_MAX: usize = 1_024;

/// The pattern of an address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SubjectPattern(TopicTemplate);

impl SubjectPattern {
    /// The pattern of an option's value.
    ///
    /// # Errors
    /// The mistake, in words.
    pub(super) fn new(text: &str) -> Result<Self, String> {
        let template = TopicTemplate::parse(text).ok_or_else(|| {
            format!(
                "`subject` knows `{TOPIC}` alone in braces; a route gives an event another topic"
            )
        })?;
        let pattern = Self(template);
        // Any valid topic will do.
        match pattern.subject("topic") {
            Ok(_) => Ok(pattern),
            Err(fault) => Err(format!("`subject` is no subject to publish to: {fault}")),
        }
    }

    /// The subject of a topic.
    ///
    /// # Errors
    /// Why nobody can publish to it.
    pub(super) fn subject(&self, topic: &str) -> Result<String, &'static str> {
        let subject = self.0.fill(topic);
        // Commands to the server begin so. An operator may mean one; a topic may not make one.
        if subject.starts_with('$') && !self.0.begin().starts_with('$') {
            return Err("it begins with `$`, as the server's own do");
        }
        if subject.len() > SUBJECT_BYTES_MAX {
            return Err("it has more than 1024 bytes");
        }
        if subject.contains(|c: char| c.is_ascii_whitespace() || c.is_control()) {
            return Err("it has white space or control characters");
        }
        for token in subject.split('.') {
            match token {
                "" => return Err("a dot stands at an end of it, or beside another dot"),
                "*" | ">" => return Err("it has a wildcard"),
                _ => {}
            }
        }
        Ok(subject)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_topic_stands_in_its_pattern() {
        for (pattern, topic, subject) in [
            ("{topic}", "orders.eu", Ok("orders.eu")),
            ("events.{topic}.v1", "orders", Ok("events.orders.v1")),
            ("events", "orders", Ok("events")),
            ("$KV.bucket.{topic}", "a", Ok("$KV.bucket.a")),
            ("{topic}", "ü", Ok("ü")),
            ("{topic}", "$JS.API.STREAM.PURGE.x", Err("`$`")),
            ("{topic}", "", Err("dot")),
            ("{topic}", "a..b", Err("dot")),
            ("a.{topic}", ".b", Err("dot")),
            ("{topic}", "a b", Err("white space")),
            ("{topic}", "a\r\nPUB x", Err("white space")),
            ("{topic}", "a.*", Err("wildcard")),
            ("{topic}", ">", Err("wildcard")),
            ("{topic}", &"t".repeat(1_025), Err("1024")),
        ] {
            let found = SubjectPattern::new(pattern).unwrap().subject(topic);
            match subject {
                Ok(subject) => assert_eq!(found.as_deref(), Ok(subject)),
                Err(words) => assert!(found.unwrap_err().contains(words), "{topic}"),
            }
        }
    }

    #[test]
    fn a_wrong_pattern_names_the_mistake() {
        for (pattern, words) in [
            ("{key}", "`{topic}` alone"),
            ("a{{topic}}", "`{topic}` alone"),
            ("", "dot"),
            ("a.>", "wildcard"),
            ("a b", "white space"),
        ] {
            let error = SubjectPattern::new(pattern).unwrap_err();
            assert!(error.contains(words), "{error}");
        }
    }
}
