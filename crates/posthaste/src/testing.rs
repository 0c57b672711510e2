//! Helpers for the tests of an application: what has this transaction emitted, and is it what it
//! should have?
//!
//! ```
//! # #[cfg(feature = "sqlx-postgres")]
//! # mod example {
//! use posthaste::testing::{self, Expected, assert_emitted};
//!
//! # async fn place_order(_: &mut sqlx::PgConnection) {}
//! async fn placing_an_order_tells_the_warehouse(pool: &sqlx::PgPool) {
//!     let mut tx = pool.begin().await.unwrap();
//!     place_order(&mut tx).await;
//!     let events = testing::emitted(&mut *tx).await.unwrap();
//!     let placed = Expected::topic("orders").key("order-1").event_type("order.placed");
//!     assert_emitted(&events, &[placed]);
//!     // Dropped, not committed: nothing is left behind.
//! }
//! # }
//! ```

use async_trait::async_trait;
use bytes::Bytes;

use crate::error::EmitError;
use crate::event::Event;

/// A place in the outbox, as one transaction sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mark(i64);

/// A transaction whose events can be read back. The role needs the right to read the outbox, which
/// a writer in production does not have.
#[async_trait]
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a transaction whose events can be read back",
    note = "enable the feature of your client: `sqlx-postgres`, `sqlx-mysql`, `sqlx-sqlite`, \
            `tokio-postgres` or `mysql_async`",
    note = "with sqlx hand over the connection inside the transaction: `&mut *tx`"
)]
pub trait Inspect: Send {
    /// The events with a greater `seq`, in order; in PostgreSQL of this transaction only.
    async fn events_after(&mut self, seq: i64) -> Result<Vec<(i64, Event)>, EmitError>;
}

/// The events that this transaction has emitted so far, in order.
///
/// SQLite and MySQL do not tell which transaction wrote a row: there the answer is every event in
/// the outbox that the transaction sees. Take a [`mark`] first and ask for [`emitted_since`],
/// unless the test's database is empty.
///
/// # Errors
///
/// As for an emit, see [`EmitError`].
pub async fn emitted<T: Inspect + ?Sized>(tx: &mut T) -> Result<Vec<Event>, EmitError> {
    emitted_since(tx, Mark(i64::MIN)).await
}

/// Where the outbox stands now, for [`emitted_since`]; take it inside the transaction.
///
/// # Errors
///
/// As for an emit, see [`EmitError`].
pub async fn mark<T: Inspect + ?Sized>(tx: &mut T) -> Result<Mark, EmitError> {
    let events = tx.events_after(i64::MIN).await?;
    Ok(Mark(events.last().map_or(i64::MIN, |(seq, _)| *seq)))
}

/// The events that this transaction has emitted since the mark, in order.
///
/// # Errors
///
/// As for an emit, see [`EmitError`].
pub async fn emitted_since<T: Inspect + ?Sized>(
    tx: &mut T,
    mark: Mark,
) -> Result<Vec<Event>, EmitError> {
    Ok(tx
        .events_after(mark.0)
        .await?
        .into_iter()
        .map(|(_, event)| event)
        .collect())
}

/// The expected fields of an emitted event; a field that is not set may have any value.
#[derive(Clone, Default)]
pub struct Expected {
    topic: String,
    key: Option<String>,
    event_type: Option<String>,
    payload: Option<Option<Bytes>>,
    headers: Vec<(String, Option<String>)>,
}

impl Expected {
    /// An event for this topic.
    #[must_use]
    pub fn topic(topic: impl Into<String>) -> Self {
        Self {
            topic: topic.into(),
            ..Self::default()
        }
    }

    /// With this key.
    #[must_use]
    pub fn key(mut self, key: impl Into<String>) -> Self {
        self.key = Some(key.into());
        self
    }

    /// With this type.
    #[must_use]
    pub fn event_type(mut self, event_type: impl Into<String>) -> Self {
        self.event_type = Some(event_type.into());
        self
    }

    /// With exactly this payload.
    #[must_use]
    pub fn payload(mut self, payload: impl Into<Bytes>) -> Self {
        self.payload = Some(Some(payload.into()));
        self
    }

    /// Without a payload.
    #[must_use]
    pub fn tombstone(mut self) -> Self {
        self.payload = Some(None);
        self
    }

    /// With this header among its headers.
    #[must_use]
    pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.headers.push((name.into(), Some(value.into())));
        self
    }

    /// The first thing in which the event differs.
    fn difference(&self, event: &Event) -> Option<String> {
        if self.topic != event.topic() {
            return Some(format!(
                "its topic is {:?}, not {:?}",
                event.topic(),
                self.topic
            ));
        }
        if self.key.is_some() && self.key.as_deref() != event.key() {
            return Some(format!("its key is {:?}, not {:?}", event.key(), self.key));
        }
        if self.event_type.is_some() && self.event_type.as_deref() != event.event_type() {
            let (is, wanted) = (event.event_type(), &self.event_type);
            return Some(format!("its type is {is:?}, not {wanted:?}"));
        }
        if let Some(wanted) = &self.payload
            && wanted.as_ref() != event.payload()
        {
            return Some(format!(
                "its payload is {:?}, not {wanted:?}",
                event.payload()
            ));
        }
        let missing = self
            .headers
            .iter()
            .find(|header| !event.headers().contains(header));
        missing.map(|(name, value)| format!("it has no header {name:?} with value {value:?}"))
    }
}

/// Asserts that these events, and no others, were emitted, in this order.
///
/// # Panics
///
/// When they were not; the message names the first difference.
#[track_caller]
pub fn assert_emitted(events: &[Event], expected: &[Expected]) {
    for (index, (event, expected)) in events.iter().zip(expected).enumerate() {
        if let Some(difference) = expected.difference(event) {
            panic!("event {index} is not the one expected: {difference}");
        }
    }
    assert!(
        events.len() == expected.len(),
        "{} events were emitted, not {}: topics {:?}",
        events.len(),
        expected.len(),
        events.iter().map(Event::topic).collect::<Vec<_>>()
    );
}

/// An event put together again from what the database answered; `headers` alternate.
#[allow(dead_code, reason = "a build without any client reads nothing")]
pub(crate) struct Row {
    pub(crate) id: String,
    pub(crate) topic: String,
    /// `key`, `type`, `content_type`, `correlation_id`, `causation_id`, `tenant_id`, `traceparent`,
    /// `tracestate`.
    pub(crate) texts: [Option<String>; 8],
    pub(crate) payload: Option<Vec<u8>>,
    pub(crate) headers: Vec<Option<String>>,
    pub(crate) occurred_at: i64,
}

#[allow(dead_code, reason = "a build without any client reads nothing")]
impl Row {
    pub(crate) fn into_event(self) -> Result<Event, EmitError> {
        let id = self.id.parse().map_err(unreadable)?;
        let [
            key,
            event_type,
            content_type,
            correlation_id,
            causation_id,
            tenant_id,
            traceparent,
            tracestate,
        ] = self.texts;
        let mut headers = self.headers.into_iter();
        let mut pairs = Vec::new();
        while let (Some(Some(name)), Some(value)) = (headers.next(), headers.next()) {
            pairs.push((name, value));
        }
        Ok(Event {
            id,
            topic: self.topic,
            key,
            event_type,
            content_type,
            payload: self.payload.map(Bytes::from),
            headers: pairs,
            occurred_at: crate::event::Timestamp::from_micros(self.occurred_at),
            correlation_id,
            causation_id,
            tenant_id,
            traceparent,
            tracestate,
        })
    }
}

#[allow(dead_code, reason = "a build without any client reads nothing")]
pub(crate) fn unreadable(error: impl std::error::Error + Send + Sync + 'static) -> EmitError {
    EmitError::Database {
        source: error.into(),
        retryable: false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event() -> Event {
        Event::builder("orders")
            .key("1")
            .payload("x")
            .header("a", "b")
            .build()
            .unwrap()
    }

    #[test]
    fn what_was_expected_passes() {
        let expected = [
            Expected::topic("orders")
                .key("1")
                .payload("x")
                .header("a", "b"),
            Expected::topic("orders"),
        ];
        assert_emitted(&[event(), event()], &expected);
    }

    #[test]
    fn each_difference_is_found() {
        let wrong = [
            Expected::topic("order"),
            Expected::topic("orders").key("2"),
            Expected::topic("orders").event_type("t"),
            Expected::topic("orders").payload("y"),
            Expected::topic("orders").tombstone(),
            Expected::topic("orders").header("a", "c"),
        ];
        for expected in wrong {
            assert!(expected.difference(&event()).is_some());
        }
    }

    #[test]
    #[should_panic(expected = "2 events were emitted, not 1")]
    fn one_event_too_many_fails() {
        assert_emitted(&[event(), event()], &[Expected::topic("orders")]);
    }
}
