//! Emitting on SQLite.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests too")]

use crate::support::{SqliteFile, edge_events, full_event};
use posthaste::testing;
use posthaste::{Dialect, EmitError, Event, Outbox, Param};
use sqlx::{Connection, SqliteConnection};

async fn count(connection: &mut SqliteConnection) -> i64 {
    sqlx::query_scalar("select count(*) from posthaste_outbox")
        .fetch_one(connection)
        .await
        .unwrap()
}

#[tokio::test]
async fn every_field_comes_back_unchanged() {
    let file = SqliteFile::new().await;
    let mut connection = file.connect().await;
    let events = edge_events();

    let mut tx = connection.begin_with("BEGIN IMMEDIATE").await.unwrap();
    for event in &events {
        assert_eq!(
            Outbox::new()
                .emit(&mut *tx, event.clone())
                .await
                .unwrap()
                .id,
            event.id()
        );
    }
    let mark = testing::mark(&mut *tx).await.unwrap();
    Outbox::new()
        .lock_key(true)
        .emit_all(&mut *tx, &events)
        .await
        .unwrap();
    tx.commit().await.unwrap();
    assert_eq!(
        testing::emitted_since(&mut connection, mark).await.unwrap(),
        events
    );
    let all = [events.clone(), events].concat();
    assert_eq!(testing::emitted(&mut connection).await.unwrap(), all);
}

#[tokio::test]
async fn what_is_rolled_back_leaves_nothing() {
    let file = SqliteFile::new().await;
    let mut connection = file.connect().await;
    let outbox = Outbox::new();

    let mut tx = connection.begin().await.unwrap();
    outbox.emit(&mut *tx, full_event()).await.unwrap();
    tx.rollback().await.unwrap();
    assert_eq!(count(&mut connection).await, 0);

    let mut tx = connection.begin().await.unwrap();
    outbox.emit(&mut *tx, full_event()).await.unwrap();
    let mut savepoint = tx.begin().await.unwrap();
    outbox.emit(&mut *savepoint, full_event()).await.unwrap();
    savepoint.rollback().await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(count(&mut connection).await, 1);
}

#[tokio::test]
async fn seq_follows_the_slice_for_a_hundred_thousand_events() {
    let file = SqliteFile::new().await;
    let mut connection = file.connect().await;
    let events: Vec<Event> = (0..100_000)
        .map(|n| {
            Event::builder("numbers")
                .payload(n.to_string())
                .build()
                .unwrap()
        })
        .collect();
    let mut tx = connection.begin().await.unwrap();
    Outbox::new().emit_all(&mut *tx, &events).await.unwrap();
    tx.commit().await.unwrap();
    let stored: Vec<String> = sqlx::query_scalar("select id from posthaste_outbox order by seq")
        .fetch_all(&mut connection)
        .await
        .unwrap();
    let emitted: Vec<String> = events.iter().map(|event| event.id().to_string()).collect();
    assert!(stored == emitted, "another order");
}

#[tokio::test]
async fn numbers_of_deleted_rows_do_not_come_again() {
    let file = SqliteFile::new().await;
    let mut connection = file.connect().await;
    Outbox::new()
        .emit(&mut connection, full_event())
        .await
        .unwrap();
    sqlx::query("delete from posthaste_outbox")
        .execute(&mut connection)
        .await
        .unwrap();
    Outbox::new()
        .emit(&mut connection, full_event())
        .await
        .unwrap();
    let seq: i64 = sqlx::query_scalar("select seq from posthaste_outbox")
        .fetch_one(&mut connection)
        .await
        .unwrap();
    assert_eq!(seq, 2);
}

#[tokio::test]
async fn a_statement_serves_any_other_client_within_its_bound() {
    let file = SqliteFile::new().await;
    let mut connection = file.connect().await;
    let event = Event::builder("t").build().unwrap();
    let events = vec![event; 2521];

    let refused = Outbox::new()
        .statement(Dialect::Sqlite, &events)
        .unwrap_err();
    assert_eq!(
        refused.to_string(),
        "events has 2521 events, the limit is 2520"
    );
    let statement = Outbox::new()
        .statement(Dialect::Sqlite, &events[1..])
        .unwrap();
    let mut query = sqlx::query(sqlx::AssertSqlSafe(statement.sql()));
    for param in statement.params() {
        query = match param {
            Param::Text(text) => query.bind(text.as_deref()),
            Param::Bytes(bytes) => query.bind(*bytes),
            Param::BigInt(number) => query.bind(*number),
            other => panic!(
                "SQLite has no arrays: {}",
                matches!(other, Param::TextArray(_))
            ),
        };
    }
    query.execute(&mut connection).await.unwrap();
    assert_eq!(count(&mut connection).await, 2520);
}

#[tokio::test]
async fn errors_tell_what_to_do() {
    let file = SqliteFile::new().await;
    let (mut one, mut two) = (file.connect().await, file.connect().await);
    sqlx::query("pragma busy_timeout = 0")
        .execute(&mut two)
        .await
        .unwrap();
    let mut tx = one.begin_with("BEGIN IMMEDIATE").await.unwrap();
    Outbox::new().emit(&mut *tx, full_event()).await.unwrap();
    let error = Outbox::new()
        .emit(&mut two, full_event())
        .await
        .unwrap_err();
    assert!(error.is_retryable(), "{error:?}");
    tx.rollback().await.unwrap();

    sqlx::query("drop table posthaste_outbox")
        .execute(&mut one)
        .await
        .unwrap();
    let error = Outbox::new()
        .emit(&mut one, full_event())
        .await
        .unwrap_err();
    assert!(
        matches!(
            &error,
            EmitError::Configuration {
                source: Some(_),
                ..
            }
        ),
        "{error:?}"
    );
}
