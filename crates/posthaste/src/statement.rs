//! Events as SQL: what an adapter, or any other database client, runs.

use std::borrow::Cow;
use std::fmt::Write as _;

use crate::event::Event;

/// Whose SQL a statement is written in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Dialect {
    /// PostgreSQL 14 and later; parameters are `$1`, `$2`, ….
    Postgres,
    /// SQLite; parameters are `?`, in order.
    Sqlite,
}

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
    sql: Cow<'static, str>,
    params: Vec<Param<'a>>,
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

/// Rows of one statement in SQLite: its parameters are numbered up to 32 766.
pub(crate) const SQLITE_ROWS_MAX: usize = 32_766 / COLUMNS;

/// Rows of one statement of our own adapter. Batches are cut into powers of two up to this, so that
/// a client's statement cache meets eight texts and no more.
const SQLITE_ADAPTER_ROWS_MAX: usize = 128;

const COLUMNS: usize = 13;

/// Events that go to the database together, in this order, and the locks to take before them.
#[derive(Debug, Clone, Copy)]
pub struct Batch<'a> {
    pub(crate) events: &'a [Event],
    pub(crate) locks: &'a [i64],
}

impl<'a> Batch<'a> {
    /// The statement that writes the batch to PostgreSQL.
    #[must_use]
    pub fn postgres(&self) -> Statement<'a> {
        postgres_statement(self.events, self.locks)
    }

    /// The statements that write the batch to SQLite, to be run in this order. There is one writer
    /// at a time, so commit order is free and no lock is taken.
    pub fn sqlite(&self) -> impl Iterator<Item = Statement<'a>> + use<'a> {
        let mut rest = self.events;
        std::iter::from_fn(move || {
            let power = rest.len().checked_ilog2()?;
            let (now, later) = rest.split_at((1 << power).min(SQLITE_ADAPTER_ROWS_MAX));
            rest = later;
            Some(sqlite_statement(now))
        })
    }
}

pub(crate) fn postgres_statement<'a>(events: &'a [Event], locks: &[i64]) -> Statement<'a> {
    if let ([event], []) = (events, locks) {
        return Statement {
            sql: Cow::Borrowed(include_str!("sql/emit_one.sql")),
            params: row(event, postgres_array).into(),
        };
    }
    let mut params = columns(events);
    params.push(Param::BigIntArray(locks.to_vec()));
    Statement {
        sql: Cow::Borrowed(include_str!("sql/emit_many.sql")),
        params,
    }
}

pub(crate) fn sqlite_statement(events: &[Event]) -> Statement<'_> {
    let mut sql = String::from(
        "insert into posthaste_outbox (id, topic, key, type, content_type, payload, headers, \
         occurred_at, correlation_id, causation_id, tenant_id, traceparent, tracestate) values ",
    );
    for index in 0..events.len() {
        sql.push_str(if index == 0 { "" } else { "," });
        sql.push_str("(?,?,?,?,?,?,?,?,?,?,?,?,?)");
    }
    let params = events
        .iter()
        .flat_map(|event| row(event, json_array))
        .collect();
    Statement {
        sql: Cow::Owned(sql),
        params,
    }
}

type Headers = [(String, Option<String>)];

fn text(value: Option<&String>) -> Option<Cow<'_, str>> {
    value.map(|text| Cow::Borrowed(text.as_str()))
}

fn row(event: &Event, headers: fn(&Headers) -> Cow<'static, str>) -> [Param<'_>; COLUMNS] {
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

fn columns(events: &[Event]) -> Vec<Param<'_>> {
    fn texts<'a>(
        events: &'a [Event],
        field: impl Fn(&'a Event) -> Option<&'a String>,
    ) -> Param<'a> {
        Param::TextArray(events.iter().map(|event| text(field(event))).collect())
    }
    vec![
        Param::TextArray(
            events
                .iter()
                .map(|e| Some(e.id.to_string().into()))
                .collect(),
        ),
        texts(events, |e| Some(&e.topic)),
        texts(events, |e| e.key.as_ref()),
        texts(events, |e| e.event_type.as_ref()),
        texts(events, |e| e.content_type.as_ref()),
        Param::BytesArray(events.iter().map(|e| e.payload.as_deref()).collect()),
        Param::TextArray(
            events
                .iter()
                .map(|e| Some(postgres_array(&e.headers)))
                .collect(),
        ),
        Param::BigIntArray(events.iter().map(|e| e.occurred_at.as_micros()).collect()),
        texts(events, |e| e.correlation_id.as_ref()),
        texts(events, |e| e.causation_id.as_ref()),
        texts(events, |e| e.tenant_id.as_ref()),
        texts(events, |e| e.traceparent.as_ref()),
        texts(events, |e| e.tracestate.as_ref()),
    ]
}

/// Headers as the text of an array, cast in the statement: the rows of a batch have different
/// numbers of headers, and PostgreSQL has no ragged arrays.
fn postgres_array(headers: &Headers) -> Cow<'static, str> {
    if headers.is_empty() {
        return Cow::Borrowed("{}");
    }
    let mut array = String::from("{");
    for element in elements(headers) {
        array.push_str(if array.len() > 1 { "," } else { "" });
        match element {
            None => array.push_str("NULL"),
            Some(text) => {
                array.push('"');
                for character in text.chars() {
                    if matches!(character, '"' | '\\') {
                        array.push('\\');
                    }
                    array.push(character);
                }
                array.push('"');
            }
        }
    }
    array.push('}');
    Cow::Owned(array)
}

/// Headers as a JSON array, SQLite's form.
fn json_array(headers: &Headers) -> Cow<'static, str> {
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

fn elements(headers: &Headers) -> impl Iterator<Item = Option<&str>> {
    headers
        .iter()
        .flat_map(|(name, value)| [Some(name.as_str()), value.as_deref()])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sqlite_batches_are_cut_into_powers_of_two() {
        let event = Event::builder("t").build().unwrap();
        let events = vec![event; 300];
        let rows: Vec<usize> = Batch {
            events: &events,
            locks: &[],
        }
        .sqlite()
        .map(|statement| statement.params().len() / COLUMNS)
        .collect();
        assert_eq!(rows, [128, 128, 32, 8, 4]);
    }

    #[test]
    fn headers_are_quoted() {
        let headers = [
            ("a\"\\,{}".to_owned(), None),
            ("NULL".to_owned(), Some("\n".to_owned())),
        ];
        assert_eq!(
            postgres_array(&headers),
            "{\"a\\\"\\\\,{}\",NULL,\"NULL\",\"\n\"}"
        );
        assert_eq!(
            json_array(&headers),
            "[\"a\\\"\\\\,{}\",null,\"NULL\",\"\\u000a\"]"
        );
    }
}
