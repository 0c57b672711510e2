//! Events as SQL: what an adapter, or any other database client, runs.

use std::borrow::Cow;

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
