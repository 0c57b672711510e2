//! Emitting on a real PostgreSQL, through both clients, as a role that may only insert.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests too")]

use crate::support::{Outboxes, edge_events, full_event, ids, numbered};
use posthaste::testing::{self, Expected, assert_emitted};
use posthaste::{Dialect, EmitError, Event, Limits, Outbox, Param, slot};
use sqlx::Connection;

const COUNT: &str = "select count(*) from posthaste.outbox";
const IDS: &str = "select id from posthaste.outbox order by seq";

#[tokio::test]
async fn every_field_comes_back_unchanged_through_sqlx() {
    let outboxes = Outboxes::new();
    let mut connection = outboxes.sqlx(&outboxes.admin_url()).await;
    let events = edge_events();

    let mut tx = connection.begin().await.unwrap();
    for event in &events {
        let emitted = Outbox::new().emit(&mut *tx, event.clone()).await.unwrap();
        assert_eq!(emitted.id, event.id());
    }
    Outbox::new().emit_all(&mut *tx, &events).await.unwrap();
    let stored = testing::emitted(&mut *tx).await.unwrap();
    assert_eq!(stored, [events.clone(), events].concat());
}

#[tokio::test]
async fn every_field_comes_back_unchanged_through_tokio_postgres() {
    let outboxes = Outboxes::new();
    let mut client = outboxes.tokio_postgres(&outboxes.admin_url()).await;
    let events = edge_events();

    let mut tx = client.transaction().await.unwrap();
    for event in &events {
        Outbox::new().emit(&mut tx, event.clone()).await.unwrap();
    }
    let mark = testing::mark(&mut tx).await.unwrap();
    Outbox::new().emit_all(&mut tx, &events).await.unwrap();
    assert_eq!(
        testing::emitted(&mut tx).await.unwrap(),
        [events.clone(), events.clone()].concat()
    );
    assert_eq!(testing::emitted_since(&mut tx, mark).await.unwrap(), events);
}

#[tokio::test]
async fn a_role_with_insert_on_the_event_columns_is_enough() {
    let outboxes = Outboxes::new();
    let events = numbered(10);
    let outbox = Outbox::new().lock_key(true);

    let mut connection = outboxes.sqlx(&outboxes.writer_url()).await;
    let mut tx = connection.begin().await.unwrap();
    outbox.emit(&mut *tx, full_event()).await.unwrap();
    outbox.emit_all(&mut *tx, &events).await.unwrap();
    tx.commit().await.unwrap();

    let mut client = outboxes.tokio_postgres(&outboxes.writer_url()).await;
    let mut tx = client.transaction().await.unwrap();
    outbox.emit(&mut tx, full_event()).await.unwrap();
    outbox.emit_all(&mut tx, &events).await.unwrap();
    tx.commit().await.unwrap();

    assert_eq!(outboxes.rows(COUNT), "22");
}

#[tokio::test]
async fn what_is_rolled_back_leaves_nothing() {
    let outboxes = Outboxes::new();
    let outbox = Outbox::new();
    let events = numbered(5);

    let mut connection = outboxes.sqlx(&outboxes.writer_url()).await;
    let mut tx = connection.begin().await.unwrap();
    outbox.emit_all(&mut *tx, &events).await.unwrap();
    tx.rollback().await.unwrap();
    assert_eq!(outboxes.rows(COUNT), "0");

    let mut tx = connection.begin().await.unwrap();
    outbox.emit(&mut *tx, events[0].clone()).await.unwrap();
    let mut savepoint = tx.begin().await.unwrap();
    outbox
        .emit(&mut *savepoint, events[1].clone())
        .await
        .unwrap();
    savepoint.rollback().await.unwrap();
    let mut savepoint = tx.begin().await.unwrap();
    outbox
        .emit(&mut *savepoint, events[2].clone())
        .await
        .unwrap();
    savepoint.commit().await.unwrap();
    tx.commit().await.unwrap();

    let mut client = outboxes.tokio_postgres(&outboxes.writer_url()).await;
    let mut tx = client.transaction().await.unwrap();
    let mut savepoint = tx.savepoint("s").await.unwrap();
    outbox
        .emit(&mut savepoint, events[3].clone())
        .await
        .unwrap();
    savepoint.rollback().await.unwrap();
    outbox.emit(&mut tx, events[4].clone()).await.unwrap();
    tx.commit().await.unwrap();
    let mut tx = client.transaction().await.unwrap();
    outbox.emit(&mut tx, events[3].clone()).await.unwrap();
    drop(tx);
    // The rollback of a dropped transaction is sent with the next statement.
    client.simple_query("select 1").await.unwrap();

    let kept = [events[0].clone(), events[2].clone(), events[4].clone()];
    assert_eq!(outboxes.rows(IDS), ids(&kept));
}

#[tokio::test]
async fn seq_follows_the_slice_for_a_hundred_thousand_events() {
    let outboxes = Outboxes::new();
    let events = numbered(100_000);

    let mut connection = outboxes.sqlx(&outboxes.writer_url()).await;
    let mut tx = connection.begin().await.unwrap();
    let emitted = Outbox::new().emit_all(&mut *tx, &events).await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(emitted.len(), events.len());
    assert!(outboxes.rows(IDS) == ids(&events), "sqlx: another order");

    outboxes.rows("truncate posthaste.outbox");
    let mut client = outboxes.tokio_postgres(&outboxes.writer_url()).await;
    let mut tx = client.transaction().await.unwrap();
    Outbox::new()
        .lock_key(true)
        .emit_all(&mut tx, &events)
        .await
        .unwrap();
    tx.commit().await.unwrap();
    assert!(
        outboxes.rows(IDS) == ids(&events),
        "tokio-postgres: another order"
    );
    let headers = outboxes.rows("select sum(cardinality(headers)) from posthaste.outbox");
    assert_eq!(
        headers,
        (2 * (0..100_000).map(|n| n % 3).sum::<i32>()).to_string()
    );
}

// Several threads: looking at the locks blocks one.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn the_lock_on_a_key_is_held_before_seq_is_drawn() {
    let outboxes = Outboxes::new();
    let outbox = Outbox::new().lock_key(true);
    let event = |payload: &'static str| {
        Event::builder("t")
            .key("order-1")
            .payload(payload)
            .build()
            .unwrap()
    };

    let mut first = outboxes.sqlx(&outboxes.writer_url()).await;
    let mut first = first.begin().await.unwrap();
    outbox.emit(&mut *first, event("1")).await.unwrap();

    // One follower by each way to emit: single, batch, and the SQL function.
    let mut waiting = tokio::task::JoinSet::new();
    let mut client = outboxes.tokio_postgres(&outboxes.writer_url()).await;
    let single = outbox.clone();
    waiting.spawn(async move {
        let mut tx = client.transaction().await.unwrap();
        single.emit(&mut tx, event("3")).await.unwrap();
        tx.commit().await.unwrap();
    });
    let mut connection = outboxes.sqlx(&outboxes.writer_url()).await;
    let batch = outbox.clone();
    waiting.spawn(async move {
        let mut tx = connection.begin().await.unwrap();
        batch
            .emit_all(&mut *tx, &[event("3"), event("3")])
            .await
            .unwrap();
        tx.commit().await.unwrap();
    });
    let mut connection = outboxes.sqlx(&outboxes.writer_url()).await;
    waiting.spawn(async move {
        let sql = "select posthaste.emit('t', '3', key => 'order-1', lock_key => true)";
        sqlx::query(sql).execute(&mut connection).await.unwrap();
    });
    let waiters = "select count(*) from pg_locks where locktype = 'advisory' and not granted \
                   and database = (select oid from pg_database where datname = current_database())";
    while outboxes.rows(waiters) != "3" {
        assert!(
            waiting.try_join_next().is_none(),
            "somebody did not wait for the lock"
        );
    }

    outbox.emit(&mut *first, event("2")).await.unwrap();
    first.commit().await.unwrap();
    waiting.join_all().await;
    let order =
        "select string_agg(convert_from(payload, 'UTF8'), '' order by seq) from posthaste.outbox";
    assert_eq!(outboxes.rows(order), "123333");
}

#[tokio::test]
async fn the_slot_is_what_the_server_computes() {
    let outboxes = Outboxes::new();
    let long = "k".repeat(1024);
    let keys = ["", "order-1", r"a\b", r"\x41", "Größe", "🚚", &long];
    let mut events: Vec<Event> = keys
        .iter()
        .map(|key| Event::builder("t").key(*key).build().unwrap())
        .collect();
    events.push(Event::builder("t").build().unwrap());

    let mut connection = outboxes.sqlx(&outboxes.writer_url()).await;
    Outbox::new()
        .emit_all(&mut connection, &events)
        .await
        .unwrap();
    let expected: Vec<String> = events
        .iter()
        .map(|event| slot(&event.key().map_or(event.id().to_string(), str::to_owned)).to_string())
        .collect();
    assert_eq!(
        outboxes.rows("select slot from posthaste.outbox order by seq"),
        expected.join("\n")
    );
}

#[tokio::test]
async fn the_payload_limit_can_be_raised_and_has_a_ceiling() {
    let outboxes = Outboxes::new();
    let mut connection = outboxes.sqlx(&outboxes.writer_url()).await;
    let event = Event::builder("t")
        .payload(vec![1; 10 * 1024 * 1024])
        .build()
        .unwrap();

    let refused = Outbox::new()
        .emit(&mut connection, event.clone())
        .await
        .unwrap_err();
    assert_eq!(
        refused.to_string(),
        "payload has 10485760 bytes, the limit is 1048576"
    );
    let raised = |bytes| Outbox::new().with_limits(Limits::default().with_payload_bytes_max(bytes));
    raised(10 * 1024 * 1024)
        .emit(&mut connection, event.clone())
        .await
        .unwrap();
    let refused = raised(64 * 1024 * 1024 + 1)
        .emit(&mut connection, event)
        .await
        .unwrap_err();
    assert!(matches!(refused, EmitError::Configuration { .. }));
    let length = "select octet_length(payload), sha256(payload) = sha256(decode(repeat('01', \
                  10485760), 'hex')) from posthaste.outbox";
    assert_eq!(outboxes.rows(length), "10485760|t");
}

#[tokio::test]
async fn errors_keep_the_clients_own_and_tell_what_to_do() {
    let outboxes = Outboxes::new();
    let mut connection = outboxes.sqlx(&outboxes.admin_url()).await;
    let event = || Event::builder("t").build().unwrap();

    sqlx::query("set statement_timeout = '1ms'")
        .execute(&mut connection)
        .await
        .unwrap();
    let many = numbered(20_000);
    let error = Outbox::new()
        .emit_all(&mut connection, &many)
        .await
        .unwrap_err();
    let EmitError::Database {
        source,
        retryable: false,
    } = &error
    else {
        panic!("{error:?}")
    };
    let code = source
        .downcast_ref::<sqlx::Error>()
        .unwrap()
        .as_database_error()
        .unwrap()
        .code();
    assert_eq!(code.as_deref(), Some("57014"));
    sqlx::query("set statement_timeout = 0")
        .execute(&mut connection)
        .await
        .unwrap();

    let pid: i32 = sqlx::query_scalar("select pg_backend_pid()")
        .fetch_one(&mut connection)
        .await
        .unwrap();
    outboxes.rows(&format!("select pg_terminate_backend({pid}, 10000)"));
    let error = Outbox::new()
        .emit(&mut connection, event())
        .await
        .unwrap_err();
    assert!(error.is_retryable(), "{error:?}");

    outboxes.rows(&format!(
        "revoke usage on schema posthaste from {}",
        outboxes.writer
    ));
    let mut client = outboxes.tokio_postgres(&outboxes.writer_url()).await;
    let mut tx = client.transaction().await.unwrap();
    let error = Outbox::new().emit(&mut tx, event()).await.unwrap_err();
    assert!(
        error.to_string().contains("posthaste init --writer"),
        "{error:?}"
    );
    tx.rollback().await.unwrap();

    outboxes.rows("alter schema posthaste rename to elsewhere");
    let mut tx = client.transaction().await.unwrap();
    let error = Outbox::new().emit(&mut tx, event()).await.unwrap_err();
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

#[tokio::test]
async fn a_statement_serves_any_other_client() {
    let outboxes = Outboxes::new();
    let mut connection = outboxes.sqlx(&outboxes.writer_url()).await;
    let events = numbered(3);
    for events in [&events[..1], &events[1..]] {
        let statement = Outbox::new().statement(Dialect::Postgres, events).unwrap();
        let mut query = sqlx::query(sqlx::AssertSqlSafe(statement.sql()));
        for param in statement.params() {
            query = match param {
                Param::Text(text) => query.bind(text.as_deref()),
                Param::Bytes(bytes) => query.bind(*bytes),
                Param::BigInt(number) => query.bind(*number),
                Param::TextArray(texts) => query.bind(texts),
                Param::BytesArray(values) => query.bind(values),
                Param::BigIntArray(numbers) => query.bind(numbers),
            };
        }
        query.execute(&mut connection).await.unwrap();
    }
    assert_eq!(outboxes.rows(IDS), ids(&events));
}

#[tokio::test]
async fn tests_of_applications_see_their_own_transaction_only() {
    let outboxes = Outboxes::new();
    let mut other = outboxes.sqlx(&outboxes.admin_url()).await;
    Outbox::new().emit(&mut other, full_event()).await.unwrap();

    let mut connection = outboxes.sqlx(&outboxes.admin_url()).await;
    let mut tx = connection.begin().await.unwrap();
    assert_emitted(&testing::emitted(&mut *tx).await.unwrap(), &[]);
    Outbox::new()
        .emit_all(&mut *tx, &numbered(2))
        .await
        .unwrap();
    let expected = [
        Expected::topic("numbers").key("k0").payload("0"),
        Expected::topic("numbers")
            .key("k1")
            .payload("1")
            .header("h0", "v"),
    ];
    assert_emitted(&testing::emitted(&mut *tx).await.unwrap(), &expected);
}
