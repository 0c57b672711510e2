//! Events as SQL: what an adapter, or any other database client, runs.

use std::borrow::Cow;
use std::fmt::Write as _;

use crate::event::Event;

/// The value of one parameter.
///
/// Every parameter of a PostgreSQL statement is cast in its text, so the types never depend on what
/// a client guesses.
#[derive(Clone, PartialEq, Eq)]
pub enum Param<'a> {
    /// Text or null.
    Text(Option<Cow<'a, str>>),
    /// Bytes or null.
    Bytes(Option<&'a [u8]>),
    /// A 64-bit number.
    BigInt(i64),
    /// PostgreSQL's `text[]`.
    TextArray(Vec<Option<Cow<'a, str>>>),
    /// PostgreSQL's `bytea[]`.
    BytesArray(Vec<Option<&'a [u8]>>),
    /// PostgreSQL's `bigint[]`.
    BigIntArray(Vec<i64>),
}

/// SQL that writes events, with its parameters, for one round trip.
#[derive(Clone)]
pub struct Statement<'a> {
    pub(crate) sql: Cow<'static, str>,
    pub(crate) params: Vec<Param<'a>>,
}

impl std::fmt::Debug for Statement<'_> {
    // The parameters hold payloads.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Statement")
            .field("sql", &self.sql)
            .finish_non_exhaustive()
    }
}

impl<'a> Statement<'a> {
    /// The SQL text.
    #[must_use]
    pub fn sql(&self) -> &str {
        &self.sql
    }

    /// The parameters, in the order of their numbers.
    #[must_use]
    pub fn params(&self) -> &[Param<'a>] {
        &self.params
    }

    /// The bytes of the values, without the SQL text, which an adapter's session prepares once.
    #[cfg(feature = "sqlx-mysql")]
    pub(crate) fn bytes(&self) -> usize {
        let size = |param: &Param<'_>| match param {
            Param::Text(text) => text.as_ref().map_or(0, |text| text.len()),
            Param::Bytes(bytes) => bytes.map_or(0, <[u8]>::len),
            Param::BigInt(_) => 8,
            Param::TextArray(_) | Param::BytesArray(_) | Param::BigIntArray(_) => 0,
        };
        self.params.iter().map(size).sum()
    }
}

/// The columns of an event that a client sets.
pub(crate) const COLUMNS: usize = 13;

/// Events that go to the database together, in this order, and the locks to take before them.
#[derive(Debug, Clone, Copy)]
pub struct Batch<'a> {
    pub(crate) events: &'a [Event],
    pub(crate) locks: &'a [i64],
}

pub(crate) type Headers = [(String, Option<String>)];

pub(crate) fn text(value: Option<&String>) -> Option<Cow<'_, str>> {
    value.map(|text| Cow::Borrowed(text.as_str()))
}

pub(crate) fn row(
    event: &Event,
    headers: fn(&Headers) -> Cow<'static, str>,
) -> [Param<'_>; COLUMNS] {
    [
        Param::Text(Some(event.id.to_string().into())),
        Param::Text(text(Some(&event.topic))),
        Param::Text(text(event.key.as_ref())),
        Param::Text(text(event.event_type.as_ref())),
        Param::Text(text(event.content_type.as_ref())),
        Param::Bytes(event.payload.as_deref()),
        Param::Text(Some(headers(&event.headers))),
        Param::BigInt(event.occurred_at.as_micros()),
        Param::Text(text(event.correlation_id.as_ref())),
        Param::Text(text(event.causation_id.as_ref())),
        Param::Text(text(event.tenant_id.as_ref())),
        Param::Text(text(event.traceparent.as_ref())),
        Param::Text(text(event.tracestate.as_ref())),
    ]
}

pub(crate) fn elements(headers: &Headers) -> impl Iterator<Item = Option<&str>> {
    headers
        .iter()
        .flat_map(|(name, value)| [Some(name.as_str()), value.as_deref()])
}

/// Rows of one statement of our own adapters. Batches are cut into powers of two up to this, so
/// that a client's statement cache meets eight texts and no more.
pub(crate) const ADAPTER_ROWS_MAX: usize = 128;

/// Cuts a slice into pieces of `most`, and the rest into powers of two.
pub(crate) fn chunks<T>(mut rest: &[T], most: usize) -> impl Iterator<Item = &[T]> {
    std::iter::from_fn(move || {
        let power = rest.len().checked_ilog2()?;
        let (now, later) = rest.split_at((1 << power).min(most));
        rest = later;
        Some(now)
    })
}

/// An `insert` of this many rows.
pub(crate) fn values(insert: &str, row: &str, rows: usize) -> String {
    let mut sql = String::from(insert);
    for index in 0..rows {
        sql.push_str(if index == 0 { "" } else { "," });
        sql.push_str(row);
    }
    sql
}

/// Why a client without arrays cannot run a statement.
#[cfg(any(
    feature = "sqlx-mysql",
    feature = "mysql_async",
    feature = "sqlx-sqlite"
))]
pub(crate) fn no_arrays() -> crate::error::EmitError {
    crate::error::EmitError::Configuration {
        problem: "this database has no arrays: the statement is PostgreSQL's",
        source: None,
    }
}

/// Headers as a JSON array, the form of databases without arrays.
pub(crate) fn json_array(headers: &Headers) -> Cow<'static, str> {
    if headers.is_empty() {
        return Cow::Borrowed("[]");
    }
    let mut array = String::from("[");
    for element in elements(headers) {
        array.push_str(if array.len() > 1 { "," } else { "" });
        match element {
            None => array.push_str("null"),
            Some(text) => {
                array.push('"');
                for character in text.chars() {
                    match character {
                        '"' | '\\' => array.extend(['\\', character]),
                        '\0'..='\x1f' => {
                            // Writing to a String cannot fail.
                            let _ = write!(array, "\\u{:04x}", u32::from(character));
                        }
                        _ => array.push(character),
                    }
                }
                array.push('"');
            }
        }
    }
    array.push(']');
    Cow::Owned(array)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_quoted() {
        let headers = [
            ("a\"\\,{}".to_owned(), None),
            ("NULL".to_owned(), Some("\n".to_owned())),
        ];
        assert_eq!(
            json_array(&headers),
            "[\"a\\\"\\\\,{}\",null,\"NULL\",\"\\u000a\"]"
        );
    }
}
