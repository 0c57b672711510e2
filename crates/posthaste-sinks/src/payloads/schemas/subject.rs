//! The subject of an event: the name under which the registry has its schema.

use posthaste_engine::{Field, Record};

/// The header in which a writer names a version of the subject instead of the latest.
pub(super) const VERSION_HEADER: &str = "schema-version";

const TOPIC: &str = "{topic}";
const TYPE: &str = "{type}";

/// Subjects as texts with `{topic}` and `{type}`.
#[derive(Debug, Clone)]
pub(super) struct Subjects {
    template: String,
    parts: Vec<Part>,
}

#[derive(Debug, Clone)]
enum Part {
    Text(String),
    Topic,
    Type,
}

/// A subject, and a version of it or the latest.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Asked {
    pub(super) subject: String,
    pub(super) version: Option<u32>,
}

fn kind(record: &Record) -> Option<&str> {
    record
        .event()
        .text(Field::Type)
        .filter(|kind| !kind.is_empty())
}

impl Subjects {
    /// None where there are other braces, or nothing.
    pub(super) fn parse(template: &str) -> Option<Self> {
        let mut parts = Vec::new();
        let mut rest = template;
        while !rest.is_empty() {
            let end = rest.find('{').unwrap_or(rest.len());
            let (text, behind) = rest.split_at(end);
            if text.contains('}') {
                return None;
            }
            if !text.is_empty() {
                parts.push(Part::Text(text.to_owned()));
            }
            rest = behind;
            if let Some(behind) = rest.strip_prefix(TOPIC) {
                parts.push(Part::Topic);
                rest = behind;
            } else if let Some(behind) = rest.strip_prefix(TYPE) {
                parts.push(Part::Type);
                rest = behind;
            } else if !rest.is_empty() {
                return None;
            }
        }
        (!parts.is_empty()).then(|| Self {
            template: template.to_owned(),
            parts,
        })
    }

    pub(super) fn template(&self) -> &str {
        &self.template
    }

    /// The schema that a record asks for.
    ///
    /// # Errors
    /// Why it asks for none.
    pub(super) fn of(&self, record: &Record) -> Result<Asked, String> {
        let mut subject = String::new();
        for part in &self.parts {
            subject += match part {
                Part::Text(text) => text,
                Part::Topic => record.topic(),
                Part::Type => kind(record).ok_or_else(|| {
                    format!(
                        "the subject `{}` needs a type, and the event has none; give it one",
                        self.template
                    )
                })?,
            };
        }
        let mut headers = record.own_headers();
        let version = headers.find(|(name, _)| name.eq_ignore_ascii_case(VERSION_HEADER));
        let version = version.map(|(_, value)| {
            let number = value.and_then(|text| text.parse().ok());
            number.filter(|number| *number > 0).ok_or_else(|| {
                format!("its header `{VERSION_HEADER}` is no number of a version; write 1, 2, …")
            })
        });
        Ok(Asked {
            subject,
            version: version.transpose()?,
        })
    }
}
