//! A text of an address in which `{topic}` stands for the topic of an event.

/// Stands for the topic.
pub(crate) const TOPIC: &str = "{topic}";

/// The text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TopicTemplate {
    /// Each but the last has a topic behind it.
    texts: Vec<String>,
}

impl TopicTemplate {
    /// The template of this text; none where it has other braces.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let texts: Vec<_> = text.split(TOPIC).map(str::to_owned).collect();
        let has_others = texts.iter().any(|text| text.contains(['{', '}']));
        (!has_others).then(|| Self::of(texts))
    }

    /// A topic stands between each two of these texts.
    pub(crate) fn of(texts: Vec<String>) -> Self {
        Self { texts }
    }

    /// The text for a topic.
    pub(crate) fn fill(&self, topic: &str) -> String {
        self.texts.join(topic)
    }

    /// The text, where it is the same for all topics.
    pub(crate) fn only(&self) -> Option<&str> {
        match &*self.texts {
            [only] => Some(only),
            _ => None,
        }
    }

    /// The text that stands before the first topic.
    pub(crate) fn begin(&self) -> &str {
        self.texts.first().map_or("", String::as_str)
    }

    /// The text that stands behind the last topic.
    pub(crate) fn end(&self) -> &str {
        self.texts.last().map_or("", String::as_str)
    }
}
