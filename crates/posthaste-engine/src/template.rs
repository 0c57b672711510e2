//! Templates: a topic or a key made from an event's attributes.
//!
//! `{topic} {key} {type} {tenant_id} {header.NAME}` stand for the event's values, `{{` and `}}` for
//! literal braces. A template is parsed once, at start; nothing but a missing value can go wrong
//! later.

use std::{fmt, str::FromStr};

use crate::{Field, StoredEvent, shown};

/// The names that may stand in braces, as error messages show them.
const ALLOWED: &str = "{topic}, {key}, {type}, {tenant_id} or {header.NAME}";

/// A parsed template.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Template {
    parts: Vec<Part>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    Text(String),
    Field(Field, &'static str),
    Header(String),
}

/// Why a template cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("character {position}: {reason}")]
pub struct TemplateError {
    /// Where: the number of the character, counted from 1.
    pub position: usize,
    /// The mistake there, with the names that are allowed.
    pub reason: String,
}

/// An event lacks what a template needs. This is the event's fault, so it is parked like any other
/// event that its destination refuses.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the template needs {{{field}}}, and the event has none")]
pub struct MissingField {
    /// The name in braces.
    pub field: String,
}

impl Template {
    /// The text for this event.
    ///
    /// Of a repeated header the first one counts; a header without a value is a missing one.
    ///
    /// # Errors
    /// [`MissingField`] when the event has no value for a name in the template. An empty value is a
    /// value.
    pub fn render(&self, event: &StoredEvent) -> Result<String, MissingField> {
        let mut text = String::new();
        for part in &self.parts {
            match part {
                Part::Text(literal) => text.push_str(literal),
                Part::Field(field, name) => {
                    text.push_str(event.text(*field).ok_or_else(|| missing(name))?);
                }
                Part::Header(name) => {
                    let value = event.headers().find(|(own, _)| own == name);
                    let value = value.and_then(|(_, value)| value);
                    text.push_str(value.ok_or_else(|| missing(&format!("header.{name}")))?);
                }
            }
        }
        Ok(text)
    }
}

fn missing(field: &str) -> MissingField {
    MissingField {
        field: field.to_owned(),
    }
}

impl FromStr for Template {
    type Err = TemplateError;

    fn from_str(source: &str) -> Result<Self, TemplateError> {
        let mut parts = Vec::new();
        let mut literal = String::new();
        let mut characters = (1..).zip(source.chars()).peekable();
        while let Some((position, character)) = characters.next() {
            let doubled = matches!(character, '{' | '}')
                && characters.next_if(|&(_, next)| next == character).is_some();
            match character {
                '{' if !doubled => {
                    let name = name_up_to_brace(&mut characters).ok_or_else(|| TemplateError {
                        position,
                        reason: "`{` is never closed; write `{{` for a literal brace".to_owned(),
                    })?;
                    let part = field(&name).ok_or_else(|| TemplateError {
                        position,
                        reason: format!("unknown `{{{}}}`; allowed are {ALLOWED}", shown(&name)),
                    })?;
                    if !literal.is_empty() {
                        parts.push(Part::Text(std::mem::take(&mut literal)));
                    }
                    parts.push(part);
                }
                '}' if !doubled => {
                    return Err(TemplateError {
                        position,
                        reason: "`}` closes nothing; write `}}` for a literal brace".to_owned(),
                    });
                }
                _ => literal.push(character),
            }
        }
        if !literal.is_empty() {
            parts.push(Part::Text(literal));
        }
        if parts.is_empty() {
            return Err(TemplateError {
                position: 1,
                reason: format!("empty; write a text, {ALLOWED}"),
            });
        }
        Ok(Self { parts })
    }
}

/// The text up to the closing brace, which is consumed; none when there is no such brace.
fn name_up_to_brace(characters: &mut impl Iterator<Item = (usize, char)>) -> Option<String> {
    let mut name = String::new();
    for (_, character) in characters {
        if character == '}' {
            return Some(name);
        }
        name.push(character);
    }
    None
}

fn field(name: &str) -> Option<Part> {
    Some(match name {
        "topic" => Part::Field(Field::Topic, "topic"),
        "key" => Part::Field(Field::Key, "key"),
        "type" => Part::Field(Field::Type, "type"),
        "tenant_id" => Part::Field(Field::TenantId, "tenant_id"),
        _ => match name.strip_prefix("header.") {
            Some(header) if !header.is_empty() => Part::Header(header.to_owned()),
            _ => return None,
        },
    })
}

impl fmt::Display for Template {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for part in &self.parts {
            match part {
                Part::Text(text) => f.write_str(&text.replace('{', "{{").replace('}', "}}"))?,
                Part::Field(_, name) => write!(f, "{{{name}}}")?,
                Part::Header(name) => write!(f, "{{header.{name}}}")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{PageBuilder, StoredFields};
    use uuid::Uuid;

    fn event(key: Option<&str>, headers: &[(&str, Option<&str>)]) -> StoredEvent {
        let mut page = PageBuilder::default();
        let mut texts = [None; 9];
        texts[Field::Topic as usize] = Some("orders");
        texts[Field::Key as usize] = key;
        texts[Field::Type as usize] = Some("placed");
        let fields = StoredFields {
            seq: 1,
            id: Uuid::nil(),
            occurred_at: 0,
            inserted_at: 0,
            slot: 0,
            texts,
            payload: None,
        };
        page.push(&fields, headers.iter().copied()).unwrap();
        page.finish().remove(0)
    }

    fn render(template: &str, event: &StoredEvent) -> Result<String, String> {
        let template: Template = template.parse().unwrap();
        template.render(event).map_err(|error| error.to_string())
    }

    #[test]
    fn values_literals_and_doubled_braces() {
        let event = event(Some("k"), &[("region", Some("eu")), ("region", Some("us"))]);
        let text = render("{{{topic}}}.{type}-{key}/{header.region}", &event);
        assert_eq!(text.unwrap(), "{orders}.placed-k/eu");
        assert_eq!(render("plain", &event).unwrap(), "plain");
    }

    #[test]
    fn a_missing_value_is_an_error_and_an_empty_one_is_not() {
        let bare = event(None, &[("region", None)]);
        for (template, field) in [
            ("{key}", "key"),
            ("{tenant_id}", "tenant_id"),
            ("{header.region}", "header.region"),
            ("{header.absent}", "header.absent"),
        ] {
            let error = render(template, &bare).unwrap_err();
            assert_eq!(
                error,
                format!("the template needs {{{field}}}, and the event has none")
            );
        }
        assert_eq!(render("<{key}>", &event(Some(""), &[])).unwrap(), "<>");
    }

    #[test]
    fn errors_name_the_position_and_what_is_allowed() {
        for (template, position, part) in [
            (
                "ü.{tpoic}",
                3,
                "unknown `{tpoic}`; allowed are {topic}, {key}",
            ),
            ("{header.}", 1, "unknown `{header.}`"),
            ("a{topic", 2, "never closed"),
            ("topic}", 6, "closes nothing"),
            ("", 1, "empty"),
        ] {
            let error = template.parse::<Template>().unwrap_err();
            assert_eq!(error.position, position, "{template}: {error}");
            assert!(error.reason.contains(part), "{template}: {error}");
        }
    }

    #[test]
    fn display_is_the_source() {
        for source in ["{topic}.{{x}}.{header.a b}", "{key}", "{type}{tenant_id}"] {
            assert_eq!(source.parse::<Template>().unwrap().to_string(), source);
        }
    }
}
