//! Emitting on real MySQL and MariaDB servers, through both clients, as a user that may only
//! insert.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests too")]

use mysql_async::TxOpts;
use mysql_async::prelude::Queryable;
use posthaste::testing::{self, Expected, assert_emitted};
use posthaste::{Dialect, EmitError, Event, Limits, Outbox, Param, slot};
use posthaste_testkit::servers::mysql::{MysqlServer, Version};
use sqlx::mysql::MySqlDatabaseError;
use sqlx::{Connection, Executor, MySqlConnection};

use crate::support::{MysqlOutboxes, edge_events, full_event, ids, numbered};

const COUNT: &str = "select count(*) from posthaste_outbox";
const IDS: &str = "select insert(insert(insert(insert(lower(hex(id)), 9, 0, '-'), 14, 0, '-'), 19, \
                   0, '-'), 24, 0, '-') from posthaste_outbox order by seq";

#[tokio::test]
async fn every_field_comes_back_unchanged_through_sqlx() {
    for version in Version::ALL {
        let outboxes = MysqlOutboxes::new(version);
        let mut connection = outboxes.sqlx(&outboxes.admin_url()).await;
        let events = edge_events();

        let mut tx = connection.begin().await.unwrap();
        for event in &events {
            let emitted = Outbox::new().emit(&mut *tx, event.clone()).await.unwrap();
            assert_eq!(emitted.id, event.id());
        }
        let mark = testing::mark(&mut *tx).await.unwrap();
        Outbox::new().emit_all(&mut *tx, &events).await.unwrap();
        let stored = testing::emitted(&mut *tx).await.unwrap();
        assert_eq!(stored, [events.clone(), events.clone()].concat());
        assert_eq!(
            testing::emitted_since(&mut *tx, mark).await.unwrap(),
            events
        );
    }
}

#[tokio::test]
async fn every_field_comes_back_unchanged_through_mysql_async() {
    for version in Version::ALL {
        let outboxes = MysqlOutboxes::new(version);
        let mut connection = outboxes.mysql_async(&outboxes.admin_url()).await;
        let events = edge_events();

        let mut tx = connection.start_transaction(TxOpts::new()).await.unwrap();
        for event in &events {
            Outbox::new().emit(&mut tx, event.clone()).await.unwrap();
        }
        let mark = testing::mark(&mut tx).await.unwrap();
        Outbox::new().emit_all(&mut tx, &events).await.unwrap();
        let stored = testing::emitted(&mut tx).await.unwrap();
        assert_eq!(stored, [events.clone(), events.clone()].concat());
        assert_eq!(testing::emitted_since(&mut tx, mark).await.unwrap(), events);
    }
}

#[tokio::test]
async fn a_user_with_insert_on_the_event_columns_is_enough() {
    for version in Version::ALL {
        let outboxes = MysqlOutboxes::new(version);
        let events = numbered(10);
        let outbox = Outbox::new().lock_key(true);

        let mut connection = outboxes.sqlx(&outboxes.writer_url()).await;
        let mut tx = connection.begin().await.unwrap();
        outbox.emit(&mut *tx, full_event()).await.unwrap();
        outbox.emit_all(&mut *tx, &events).await.unwrap();
        tx.commit().await.unwrap();

        let mut connection = outboxes.mysql_async(&outboxes.writer_url()).await;
        let mut tx = connection.start_transaction(TxOpts::new()).await.unwrap();
        outbox.emit(&mut tx, full_event()).await.unwrap();
        outbox.emit_all(&mut tx, &events).await.unwrap();
        tx.commit().await.unwrap();

        assert_eq!(outboxes.rows(COUNT), "22");
    }
}

#[tokio::test]
async fn what_is_rolled_back_leaves_nothing() {
    for version in Version::ALL {
        let outboxes = MysqlOutboxes::new(version);
        let outbox = Outbox::new();
        let events = numbered(6);

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

        let mut connection = outboxes.mysql_async(&outboxes.writer_url()).await;
        let mut tx = connection.start_transaction(TxOpts::new()).await.unwrap();
        tx.query_drop("savepoint attempt").await.unwrap();
        outbox.emit(&mut tx, events[3].clone()).await.unwrap();
        tx.query_drop("rollback to savepoint attempt")
            .await
            .unwrap();
        outbox.emit(&mut tx, events[4].clone()).await.unwrap();
        tx.commit().await.unwrap();
        let mut tx = connection.start_transaction(TxOpts::new()).await.unwrap();
        outbox.emit(&mut tx, events[5].clone()).await.unwrap();
        drop(tx);
        // The rollback of a dropped transaction is sent with the next statement.
        connection.query_drop("select 1").await.unwrap();

        let kept = [events[0].clone(), events[2].clone(), events[4].clone()];
        assert_eq!(outboxes.rows(IDS), ids(&kept));
    }
}

#[tokio::test]
async fn seq_follows_the_slice_for_many_events() {
    for version in Version::ALL {
        let outboxes = MysqlOutboxes::new(version);
        let events = numbered(10_000);

        let mut connection = outboxes.sqlx(&outboxes.writer_url()).await;
        let mut tx = connection.begin().await.unwrap();
        let emitted = Outbox::new().emit_all(&mut *tx, &events).await.unwrap();
        tx.commit().await.unwrap();
        assert_eq!(emitted.len(), events.len());
        assert!(outboxes.rows(IDS) == ids(&events), "sqlx: another order");

        outboxes.rows("truncate posthaste_outbox");
        let mut connection = outboxes.mysql_async(&outboxes.writer_url()).await;
        let mut tx = connection.start_transaction(TxOpts::new()).await.unwrap();
        let outbox = Outbox::new().lock_key(true);
        outbox.emit_all(&mut tx, &events).await.unwrap();
        tx.commit().await.unwrap();
        assert!(
            outboxes.rows(IDS) == ids(&events),
            "mysql_async: another order"
        );
        let headers = outboxes.rows("select sum(json_length(headers)) from posthaste_outbox");
        assert_eq!(
            headers,
            (2 * (0..10_000).map(|n| n % 3).sum::<i32>()).to_string()
        );
    }
}

/// Transactions of this database that wait for a row.
const WAITERS: &str = "select count(*) from information_schema.innodb_trx t \
                       join information_schema.processlist p on p.id = t.trx_mysql_thread_id \
                       where t.trx_state = 'LOCK WAIT' and p.db = database()";

// Several threads: looking at the locks blocks one.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn the_lock_on_a_key_is_held_before_seq_is_drawn() {
    for version in Version::ALL {
        let outboxes = MysqlOutboxes::new(version);
        let outbox = Outbox::new().lock_key(true);
        let event = |payload: &'static str| {
            let event = Event::builder("t").key("order-1").payload(payload);
            event.build().unwrap()
        };

        let mut first = outboxes.sqlx(&outboxes.writer_url()).await;
        let mut first = first.begin().await.unwrap();
        outbox.emit(&mut *first, event("1")).await.unwrap();

        let mut waiting = tokio::task::JoinSet::new();
        let mut connection = outboxes.mysql_async(&outboxes.writer_url()).await;
        let single = outbox.clone();
        waiting.spawn(async move {
            let mut tx = connection.start_transaction(TxOpts::new()).await.unwrap();
            single.emit(&mut tx, event("3")).await.unwrap();
            tx.commit().await.unwrap();
        });
        let mut connection = outboxes.sqlx(&outboxes.writer_url()).await;
        let batch = outbox.clone();
        waiting.spawn(async move {
            let mut tx = connection.begin().await.unwrap();
            let events = [event("3"), event("3")];
            batch.emit_all(&mut *tx, &events).await.unwrap();
            tx.commit().await.unwrap();
        });
        // The server's own picture of its transactions is renewed ten times a second.
        while outboxes.rows(WAITERS) != "2" {
            assert!(
                waiting.try_join_next().is_none(),
                "somebody did not wait for the lock"
            );
        }

        // Keys of other slots, many at once, on a table of which the server knows no statistics.
        let other = |n: i32| Event::builder("t").key(format!("k{n}")).build().unwrap();
        let others: Vec<Event> = (0..200)
            .map(other)
            .filter(|event| slot(event.key().unwrap()) != slot("order-1"))
            .collect();
        let mut connection = outboxes.sqlx(&outboxes.writer_url()).await;
        connection
            .execute("set innodb_lock_wait_timeout = 1")
            .await
            .unwrap();
        let mut tx = connection.begin().await.unwrap();
        outbox.emit_all(&mut *tx, &others).await.unwrap();
        tx.rollback().await.unwrap();

        outbox.emit(&mut *first, event("2")).await.unwrap();
        first.commit().await.unwrap();
        waiting.join_all().await;
        let order = "select group_concat(payload order by seq separator '') from posthaste_outbox";
        assert_eq!(outboxes.rows(order), "12333");
    }
}

#[tokio::test]
async fn the_slot_is_what_the_server_computes() {
    for version in Version::ALL {
        let outboxes = MysqlOutboxes::new(version);
        let long = "k".repeat(1024);
        let keys = [
            "", "order-1", r"a\b", r"\x41", "Größe", "🚚", " ", "a ", "A", "a", &long,
        ];
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
            .map(|event| event.key().map_or(event.id().to_string(), str::to_owned))
            .map(|key_or_id| slot(&key_or_id).to_string())
            .collect();
        let slots = outboxes.rows("select slot from posthaste_outbox order by seq");
        assert_eq!(slots, expected.join("\n"));
    }
}

#[tokio::test]
async fn the_payload_limit_can_be_raised_and_has_a_ceiling() {
    for version in Version::ALL {
        let outboxes = MysqlOutboxes::new(version);
        let mut connection = outboxes.sqlx(&outboxes.writer_url()).await;
        let payload = vec![1; 10 * 1024 * 1024];
        let event = Event::builder("t").payload(payload).build().unwrap();

        let refused = Outbox::new()
            .emit(&mut connection, event.clone())
            .await
            .unwrap_err();
        assert_eq!(
            refused.to_string(),
            "payload has 10485760 bytes, the limit is 1048576"
        );
        let raised =
            |bytes| Outbox::new().with_limits(Limits::default().with_payload_bytes_max(bytes));
        let outbox = raised(10 * 1024 * 1024);
        outbox.emit(&mut connection, event.clone()).await.unwrap();
        let mut connection = outboxes.mysql_async(&outboxes.writer_url()).await;
        let mut tx = connection.start_transaction(TxOpts::new()).await.unwrap();
        outbox.emit(&mut tx, event.clone()).await.unwrap();
        tx.commit().await.unwrap();
        let length = "select length(payload), sha2(payload, 256) = sha2(repeat(unhex('01'), \
                      10485760), 256) from posthaste_outbox";
        assert_eq!(outboxes.rows(length), "10485760\t1\n10485760\t1");
    }
}

#[tokio::test]
async fn an_event_larger_than_a_packet_tells_what_to_do() {
    for version in [Version::MySql8, Version::MariaDb11] {
        let server = MysqlServer::builder(version)
            .setting("max-allowed-packet", "1M")
            .start();
        let database = server.create_database();
        for migration in Dialect::Mysql.migrations() {
            database.sql(&migration.render(posthaste::schema::Placeholders::default()));
        }
        let event = Event::builder("t")
            .payload(vec![1; 1024 * 1024])
            .build()
            .unwrap();
        let told = |error: EmitError| {
            assert!(
                error.to_string().contains("max_allowed_packet"),
                "{version:?}: {error:?}"
            );
        };

        let mut connection = MySqlConnection::connect(&database.url()).await.unwrap();
        told(
            Outbox::new()
                .emit(&mut connection, event.clone())
                .await
                .unwrap_err(),
        );
        let mut connection = mysql_async::Conn::from_url(database.url()).await.unwrap();
        let mut tx = connection.start_transaction(TxOpts::new()).await.unwrap();
        told(Outbox::new().emit(&mut tx, event).await.unwrap_err());
    }
}

#[tokio::test]
async fn errors_keep_the_clients_own_and_tell_what_to_do() {
    for version in Version::ALL {
        let outboxes = MysqlOutboxes::new(version);
        let outbox = Outbox::new().lock_key(true);
        let event = || Event::builder("t").key("order-1").build().unwrap();

        let mut first = outboxes.sqlx(&outboxes.writer_url()).await;
        let mut first = first.begin().await.unwrap();
        outbox.emit(&mut *first, event()).await.unwrap();
        let mut second = outboxes.sqlx(&outboxes.writer_url()).await;
        second
            .execute("set innodb_lock_wait_timeout = 1")
            .await
            .unwrap();
        let mut tx = second.begin().await.unwrap();
        let error = outbox.emit(&mut *tx, event()).await.unwrap_err();
        assert!(error.is_retryable(), "{error:?}");
        let source = std::error::Error::source(&error).unwrap();
        let source = source.downcast_ref::<sqlx::Error>().unwrap();
        let answer = source.as_database_error().unwrap();
        let answer = answer.downcast_ref::<MySqlDatabaseError>();
        assert_eq!(answer.number(), 1205);
        drop(tx);
        let mut connection = outboxes.mysql_async(&outboxes.writer_url()).await;
        let set = "set innodb_lock_wait_timeout = 1";
        connection.query_drop(set).await.unwrap();
        let mut tx = connection.start_transaction(TxOpts::new()).await.unwrap();
        let error = outbox.emit(&mut tx, event()).await.unwrap_err();
        assert!(error.is_retryable(), "{error:?}");
        tx.rollback().await.unwrap();
        first.rollback().await.unwrap();

        let mut tx = connection.start_transaction(TxOpts::new()).await.unwrap();
        let id: u64 = tx
            .query_first("select connection_id()")
            .await
            .unwrap()
            .unwrap();
        outboxes.rows(&format!("kill {id}"));
        let error = outbox.emit(&mut tx, event()).await.unwrap_err();
        assert!(error.is_retryable(), "{error:?}");
        let id: u64 = sqlx::query_scalar("select connection_id()")
            .fetch_one(&mut second)
            .await
            .unwrap();
        outboxes.rows(&format!("kill {id}"));
        let error = outbox.emit(&mut second, event()).await.unwrap_err();
        assert!(error.is_retryable(), "{error:?}");

        let stranger = MysqlOutboxes::without_rights(version);
        stranger.rows(&format!(
            "grant select on posthaste_settings to {}@'127.0.0.1'",
            stranger.writer
        ));
        let mut connection = stranger.sqlx(&stranger.writer_url()).await;
        for outbox in [&outbox, &Outbox::new()] {
            let error = outbox.emit(&mut connection, event()).await.unwrap_err();
            assert!(error.to_string().contains("grant INSERT"), "{error:?}");
        }
        stranger.rows("drop table posthaste_outbox");
        let mut connection = stranger.sqlx(&stranger.admin_url()).await;
        let error = Outbox::new()
            .emit(&mut connection, event())
            .await
            .unwrap_err();
        assert!(error.to_string().contains("posthaste init"), "{error:?}");
        let mut connection = stranger.mysql_async(&stranger.admin_url()).await;
        let mut tx = connection.start_transaction(TxOpts::new()).await.unwrap();
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
}

#[tokio::test]
async fn a_statement_serves_any_other_client_within_its_bound() {
    let event = Event::builder("t").key("k").build().unwrap();
    let events = vec![event; 5042];
    let refused = Outbox::new()
        .statement(Dialect::Mysql, &events)
        .unwrap_err();
    assert_eq!(
        refused.to_string(),
        "events has 5042 events, the limit is 5041"
    );
    let locking = Outbox::new().lock_key(true);
    let refused = locking.statement(Dialect::Mysql, &events[..1]).unwrap_err();
    assert!(
        refused.to_string().contains("posthaste_key_locks"),
        "{refused}"
    );

    for version in Version::ALL {
        let outboxes = MysqlOutboxes::new(version);
        let mut connection = outboxes.sqlx(&outboxes.writer_url()).await;
        let statement = Outbox::new()
            .statement(Dialect::Mysql, &events[1..])
            .unwrap();
        let mut query = sqlx::query(sqlx::AssertSqlSafe(statement.sql()));
        for param in statement.params() {
            query = match param {
                Param::Text(text) => query.bind(text.as_deref()),
                Param::Bytes(bytes) => query.bind(*bytes),
                Param::BigInt(number) => query.bind(*number),
                other => panic!(
                    "MySQL has no arrays: {}",
                    matches!(other, Param::TextArray(_))
                ),
            };
        }
        query.execute(&mut connection).await.unwrap();
        assert_eq!(outboxes.rows(COUNT), "5041");
    }
}

#[tokio::test]
async fn tests_of_applications_see_what_their_transaction_sees() {
    for version in Version::ALL {
        let outboxes = MysqlOutboxes::new(version);
        let mut connection = outboxes.sqlx(&outboxes.admin_url()).await;
        let mut tx = connection.begin().await.unwrap();
        assert_emitted(&testing::emitted(&mut *tx).await.unwrap(), &[]);
        let mut other = outboxes.sqlx(&outboxes.writer_url()).await;
        Outbox::new().emit(&mut other, full_event()).await.unwrap();

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
}

/// Every way to give out numbers, beside writers with statements of every kind.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn events_of_a_transaction_keep_their_order_in_every_mode_of_auto_increment() {
    for (version, mode) in [
        (Version::MySql8, "0"),
        (Version::MySql8, "1"),
        (Version::MariaDb10, "0"),
        (Version::MariaDb10, "2"),
    ] {
        let server = MysqlServer::builder(version)
            .setting("innodb-autoinc-lock-mode", mode)
            .setting("auto-increment-increment", "3")
            .start();
        let database = server.create_database();
        for migration in Dialect::Mysql.migrations() {
            database.sql(&migration.render(posthaste::schema::Placeholders::default()));
        }
        let mut writers = tokio::task::JoinSet::new();
        for writer in 0..4 {
            let url = database.url();
            writers.spawn(async move {
                let mut connection = MySqlConnection::connect(&url).await.unwrap();
                for round in 0..5 {
                    let event = |n: i32| {
                        let event = Event::builder("t").key(format!("{writer} {round}"));
                        event.payload(format!("{n:04}")).build().unwrap()
                    };
                    let events: Vec<Event> = (0..200).map(event).collect();
                    let mut tx = connection.begin().await.unwrap();
                    Outbox::new().emit_all(&mut *tx, &events).await.unwrap();
                    tx.commit().await.unwrap();
                }
            });
        }
        writers.join_all().await;
        let disorder = "select count(*) from (select payload, lag(payload) over (partition by \
                        `key` order by seq) as earlier from posthaste_outbox) as rows_of_keys \
                        where payload <= earlier";
        assert_eq!(database.sql(disorder), "0", "{version:?} {mode}");
        assert_eq!(database.sql(COUNT), "4000");
    }
}
