//! Payloads in JSON that a JSON Schema describes.

use std::{collections::HashMap, error::Error};

use boon::{Compiler, Draft, ErrorKind, SchemaIndex, Schemas, UrlLoader, ValidationError};
use serde_json::Value;

use super::source::{Source, not_json};

/// The address of a schema that has none of its own.
const ADDRESS: &str = "schema:///subject.json";

/// A schema that was made ready.
pub(super) struct JsonSchema {
    schemas: Schemas,
    index: SchemaIndex,
}

impl std::fmt::Debug for JsonSchema {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("JsonSchema").finish_non_exhaustive()
    }
}

/// The references of a schema, and nothing else: a schema may name any address, and any file.
struct References(HashMap<String, Value>);

impl UrlLoader for References {
    fn load(&self, url: &str) -> Result<Value, Box<dyn Error>> {
        let is_it = |name: &str| {
            let rest = url.strip_suffix(name);
            rest.is_some_and(|rest| rest.is_empty() || rest.ends_with('/'))
        };
        let all = self.0.iter().filter(|(name, _)| is_it(name));
        // The whole name before its end.
        let found = all.max_by_key(|(name, _)| name.len());
        let (_, value) = found.ok_or("it is none of the references of the schema")?;
        Ok(value.clone())
    }
}

impl JsonSchema {
    pub(super) fn compile(source: &Source) -> Result<Self, String> {
        let read = |text: &str| -> Result<Value, String> {
            serde_json::from_str(text).map_err(|error| not_json(&error))
        };
        let references = source.references.iter();
        let references = references.map(|(name, text)| Ok((name.clone(), read(text)?)));
        let references = References(references.collect::<Result<_, String>>()?);
        let mut compiler = Compiler::new();
        // As the registry's own clients have it.
        compiler.set_default_draft(Draft::V7);
        compiler.use_loader(Box::new(references));
        let told = |error: &dyn Error| {
            let cause = error.source().map(|cause| format!(": {cause}"));
            format!("{error}{}", cause.unwrap_or_default())
        };
        compiler
            .add_resource(ADDRESS, read(&source.text)?)
            .map_err(|error| told(&error))?;
        let mut schemas = Schemas::new();
        let index = compiler.compile(ADDRESS, &mut schemas);
        let index = index.map_err(|error| told(&error))?;
        Ok(Self { schemas, index })
    }

    pub(super) fn verify(&self, payload: &[u8]) -> Result<(), String> {
        let json = serde_json::from_slice(payload).map_err(|error| not_json(&error))?;
        let checked = self.schemas.validate(&json, self.index);
        checked.map_err(|misfit| {
            let misfit = innermost(&misfit);
            let fault = without_value(&misfit.kind);
            match misfit.instance_location.to_string().as_str() {
                "" => fault,
                place => format!("`{place}`: {fault}"),
            }
        })
    }
}

fn innermost<'e, 's, 'v>(misfit: &'e ValidationError<'s, 'v>) -> &'e ValidationError<'s, 'v> {
    match misfit.causes.first() {
        Some(cause) => innermost(cause),
        None => misfit,
    }
}

/// The fault without the value, which may be secret, or large.
fn without_value(kind: &ErrorKind<'_, '_>) -> String {
    match kind {
        ErrorKind::Format { want, .. } => format!("it is no {want}"),
        ErrorKind::Pattern { want, .. } => format!("it does not match `{want}`"),
        ErrorKind::Minimum { want, .. } => format!("it is less than {want}"),
        ErrorKind::Maximum { want, .. } => format!("it is more than {want}"),
        ErrorKind::ExclusiveMinimum { want, .. } => format!("it is not more than {want}"),
        ErrorKind::ExclusiveMaximum { want, .. } => format!("it is not less than {want}"),
        ErrorKind::MultipleOf { want, .. } => format!("it is no multiple of {want}"),
        ErrorKind::ContentEncoding { want, .. } | ErrorKind::ContentMediaType { want, .. } => {
            format!("its content is no {want}")
        }
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn of(schema: &Value) -> JsonSchema {
        let source = Source {
            text: schema.to_string(),
            references: Vec::new(),
        };
        JsonSchema::compile(&source).unwrap()
    }

    #[test]
    fn faults_name_their_place_and_no_value() {
        let schema = of(&json!({"properties": {
            "a": {"items": {"type": "integer", "minimum": 3}},
            "b": {"pattern": "^x+$"},
            "c": {"format": "date-time"},
            "d": {"anyOf": [{"const": 1}, {"required": ["e"]}]},
        }, "additionalProperties": false}));
        assert_eq!(schema.verify(br#"{"a": [3], "b": "xx"}"#), Ok(()));
        for (payload, said) in [
            (
                json!({"a": [3, "secret"]}),
                "`/a/1`: want integer, but got string",
            ),
            (json!({"a": [2]}), "`/a/0`: it is less than 3"),
            (json!({"b": "secret"}), "`/b`: it does not match `^x+$`"),
            (json!({"c": "secret"}), "`/c`: it is no date-time"),
            (json!({"d": {}}), "`/d`: value must be 1"),
            (json!({"z": 1}), "additionalProperties 'z' not allowed"),
        ] {
            let words = schema.verify(payload.to_string().as_bytes());
            assert_eq!(words, Err(said.to_owned()), "{payload}");
        }
    }

    #[test]
    fn nothing_but_references_is_read() {
        for address in ["file:///etc/hostname", "http://127.0.0.1:1/x", "other.json"] {
            let source = Source {
                text: json!({"$ref": address}).to_string(),
                references: vec![("an.json".to_owned(), "{}".to_owned())],
            };
            let words = JsonSchema::compile(&source).unwrap_err();
            assert!(words.contains("none of the references"), "{words}");
        }
    }
}
