//! The text of a schema, as each of the formats reads it.

/// The text of a schema, and of those that it refers to by these names, each behind those that it
/// refers to itself.
#[derive(Debug, Default)]
pub(super) struct Source {
    pub(super) text: String,
    pub(super) references: Vec<(String, String)>,
}

/// A payload, or a schema, that is no JSON.
pub(super) fn not_json(error: &serde_json::Error) -> String {
    format!("it is no JSON: {error}")
}
