//! Paths of endpoints: a topic within the pattern of the address.

use crate::topic_template::TopicTemplate;

/// Servers take longer request lines, proxies before them often do not.
const PATH_BYTES_MAX: usize = 2_048;

/// The path of an address, which is written as it goes over the wire.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PathPattern(TopicTemplate);

impl PathPattern {
    /// The pattern of the text behind the host's `/`.
    ///
    /// # Errors
    /// The mistake, in words.
    pub(super) fn new(path: &str) -> Result<Self, &'static str> {
        let template = TopicTemplate::parse(&format!("/{path}"))
            .ok_or("the path knows `{topic}` alone in braces; write others as %7B and %7D")?;
        if !template.fill("").bytes().all(may_stand) {
            return Err("the path has a character that no path has; write it as a percent escape");
        }
        let pattern = Self(template);
        match pattern.path("topic") {
            Ok(_) => Ok(pattern),
            Err(_) => Err("the path has a part `.` or `..`, or more than 2048 bytes"),
        }
    }

    /// The path of a topic. Any topic stays within its part of the path.
    ///
    /// # Errors
    /// Why nothing is sent there.
    pub(super) fn path(&self, topic: &str) -> Result<String, &'static str> {
        if topic.is_empty() && self.has_topic() {
            return Err("it is empty");
        }
        let mut encoded = String::new();
        for byte in topic.bytes() {
            match byte {
                b'-' | b'.' | b'_' | b'~' => encoded.push(byte.into()),
                _ if byte.is_ascii_alphanumeric() => encoded.push(byte.into()),
                _ => encoded += &format!("%{byte:02X}"),
            }
        }
        let path = self.0.fill(&encoded);
        if path.split('/').any(|part| matches!(part, "." | "..")) {
            return Err("it makes a part `.` or `..` of the path");
        }
        match path.len() > PATH_BYTES_MAX {
            true => Err("it makes a path of more than 2048 bytes"),
            false => Ok(path),
        }
    }

    /// Whether each topic has an endpoint of its own.
    pub(super) fn has_topic(&self) -> bool {
        self.0.only().is_none()
    }
}

/// Whether a byte may stand in a path or in a query (RFC 3986).
pub(super) fn may_stand(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._~!$&'()*+,;=:@/%".contains(&byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_topic_stays_within_its_part() {
        for (pattern, topic, path) in [
            ("hooks", "orders", Ok("/hooks")),
            ("hooks", "", Ok("/hooks")),
            ("", "orders", Ok("/")),
            (
                "hooks/{topic}/in",
                "orders.eu-1_~",
                Ok("/hooks/orders.eu-1_~/in"),
            ),
            ("{topic}", "a/../b?c#d%2F", Ok("/a%2F..%2Fb%3Fc%23d%252F")),
            ("a%2Fb/{topic}", "ü \r\n", Ok("/a%2Fb/%C3%BC%20%0D%0A")),
            ("v1.{topic}", "..", Ok("/v1...")),
            ("{topic}", "..", Err("`..`")),
            ("a/{topic}/b", ".", Err("`..`")),
            (".{topic}", ".", Err("`..`")),
            ("{topic}", "", Err("empty")),
            ("{topic}", &"t".repeat(2_048), Err("2048")),
        ] {
            let found = PathPattern::new(pattern).unwrap().path(topic);
            match path {
                Ok(path) => assert_eq!(found.as_deref(), Ok(path)),
                Err(words) => assert!(found.unwrap_err().contains(words), "{topic}"),
            }
        }
    }

    #[test]
    fn a_wrong_pattern_names_the_mistake() {
        for (pattern, words) in [
            ("{key}", "`{topic}` alone"),
            ("a{{topic}}", "`{topic}` alone"),
            ("a b", "percent escape"),
            ("a#b", "percent escape"),
            ("ü", "percent escape"),
            ("a/../b", "`..`"),
        ] {
            let error = PathPattern::new(pattern).unwrap_err();
            assert!(error.contains(words), "{pattern}: {error}");
        }
    }
}
