//! The keys of streams: a topic within the pattern of the address.

use crate::topic_template::TopicTemplate;

/// Keys of our own begin so.
pub(super) const OURS: &str = "posthaste:";

/// Stands for the topic.
const TOPIC: &str = "topic";

/// The pattern of an address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct StreamPattern(TopicTemplate);

impl StreamPattern {
    /// The pattern of an option's value.
    ///
    /// # Errors
    /// The mistake, in words.
    pub(super) fn new(pattern: &str) -> Result<Self, &'static str> {
        const BRACES: &str = "`stream` knows `{topic}` alone in braces; write braces themselves \
                              as `{{` and `}}`";
        let (mut texts, mut text) = (Vec::new(), String::new());
        let mut rest = pattern;
        while let Some(at) = rest.find(['{', '}']) {
            text += &rest[..at];
            rest = &rest[at..];
            if let Some(behind) = rest.strip_prefix("{{") {
                text.push('{');
                rest = behind;
            } else if let Some(behind) = rest.strip_prefix("}}") {
                text.push('}');
                rest = behind;
            } else {
                let placeholder = rest.strip_prefix('{').and_then(|rest| rest.split_once('}'));
                let Some((TOPIC, behind)) = placeholder else {
                    return Err(BRACES);
                };
                texts.push(std::mem::take(&mut text));
                rest = behind;
            }
        }
        texts.push(text + rest);
        let pattern = Self(TopicTemplate::of(texts));
        // Any valid topic will do.
        match pattern.stream("t") {
            Ok(_) => Ok(pattern),
            Err(_) => Err(
                "`stream` is no key for a stream: it is empty, or begins with \
                           `posthaste:`, as the sink's own keys do",
            ),
        }
    }

    /// The stream of a topic.
    ///
    /// # Errors
    /// Why nothing is added to it.
    pub(super) fn stream(&self, topic: &str) -> Result<String, &'static str> {
        let stream = self.0.fill(topic);
        if stream.is_empty() {
            return Err("it is empty");
        }
        if stream.starts_with(OURS) {
            return Err("it begins with `posthaste:`, as the sink's own keys do");
        }
        Ok(stream)
    }

    /// The stream, where all topics have the same one.
    pub(super) fn only_stream(&self) -> Option<&str> {
        self.0.only()
    }

    /// The part of all streams' keys by which a cluster chooses their slot, if they have one.
    pub(super) fn hash_tag(&self) -> Option<&str> {
        let Some((_, tag)) = self.0.begin().split_once('{') else {
            // The whole key is hashed.
            return self.only_stream().filter(|stream| !stream.contains('}'));
        };
        let (tag, _) = tag.split_once('}')?;
        (!tag.is_empty()).then_some(tag)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_topic_stands_in_its_pattern() {
        for (pattern, topic, stream) in [
            ("{topic}", "orders", Ok("orders")),
            ("events:{topic}:v1", "orders", Ok("events:orders:v1")),
            ("events", "orders", Ok("events")),
            ("{{outbox}}:{topic}", "a", Ok("{outbox}:a")),
            ("{topic}{topic}", "a", Ok("aa")),
            ("{topic}", "a b\r\n{c}", Ok("a b\r\n{c}")),
            ("{topic}", "", Err("empty")),
            ("{topic}", "posthaste:x", Err("own keys")),
        ] {
            let found = StreamPattern::new(pattern).unwrap().stream(topic);
            match stream {
                Ok(stream) => assert_eq!(found.as_deref(), Ok(stream)),
                Err(words) => assert!(found.unwrap_err().contains(words), "{topic}"),
            }
        }
    }

    #[test]
    fn a_wrong_pattern_names_the_mistake() {
        for (pattern, words) in [
            ("{key}", "`{topic}` alone"),
            ("{topic", "`{topic}` alone"),
            ("a}", "`{topic}` alone"),
            ("{{{topic}", ""),
            ("", "empty"),
            ("posthaste:x", "own keys"),
        ] {
            match StreamPattern::new(pattern) {
                Ok(_) => assert!(words.is_empty(), "{pattern}"),
                Err(said) => assert!(!words.is_empty() && said.contains(words), "{said}"),
            }
        }
    }

    #[test]
    fn streams_of_one_slot_are_known() {
        for (pattern, tag) in [
            ("{topic}", None),
            ("orders", Some("orders")),
            ("{{outbox}}:{topic}", Some("outbox")),
            ("a{{outbox}}:{topic}", Some("outbox")),
            ("a{{outbox}}", Some("outbox")),
            ("{topic}:{{outbox}}", None),
            ("{{{topic}}}", None),
            ("{{}}{topic}", None),
            ("a}}", None),
        ] {
            assert_eq!(
                StreamPattern::new(pattern).unwrap().hash_tag(),
                tag,
                "{pattern}"
            );
        }
    }
}
