//! The statements as they are shipped: each prepares, and the planner reads them as it should.

use std::{sync::Arc, time::Duration};

use futures_util::FutureExt;
use posthaste_testkit::{
    long_form,
    servers::{
        pgbouncer::PgBouncer,
        postgres::{Database, PostgresServer, odd_settings},
    },
};

use tokio_postgres::{NoTls, SimpleQueryMessage, types::Type};

use super::{
    InitOptions,
    claim::with_fragments,
    config::PostgresConfig,
    connection::{Connector, Session},
    holds_key::with_holds_key,
    migrate::init,
    ordering::with_order,
    read::{Kind, PAGE_SIZES},
    server_connection::guarded,
    session_settings::{SEARCH_PATH, SETTINGS, Work},
    shares::with_shares,
    sweep::segment_end,
};

async fn database(leaf_rows: u64) -> Database {
    let database = PostgresServer::shared(15).create_database();
    let options = InitOptions {
        leaf_rows: Some(leaf_rows),
        ..InitOptions::default()
    };
    init(&database.url(), &options).await.unwrap();
    database
}

#[tokio::test]
async fn every_statement_prepares_on_every_version() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/src/postgres/sql");
    for version in [14, 15, 18] {
        let database = PostgresServer::shared(version).create_database();
        init(&database.url(), &InitOptions::default())
            .await
            .unwrap();
        let (client, connection) = tokio_postgres::connect(&database.url(), NoTls)
            .await
            .unwrap();
        tokio::spawn(connection);
        for kind in Kind::ALL {
            for size in PAGE_SIZES {
                let sql = kind.sql(size);
                client.prepare_typed(&sql, kind.types()).await.unwrap();
            }
        }
        let mut prepared = 0;
        for file in std::fs::read_dir(folder).unwrap() {
            let path = file.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            let sql = std::fs::read_to_string(&path).unwrap();
            // Parts of statements, scripts of several, and the reads above.
            if [
                "guard.",
                "header.",
                "holds_key.",
                "grant_",
                "poll.",
                "page.",
                "side_page.",
                "retention_survey.",
                "retention_floor.",
                "retention_past_window.",
                "retention_truncate.",
                "retention_delete.",
                "retention_lock.",
                "sequence_set_forward.",
                "retention_mode.",
                "lock_holder.",
                "lock_of_",
                "retention_parked.",
                "era_cursors.",
                "era_markers.",
                "era_passed.",
                "evacuate.",
                "slots.",
                "breaker.",
                "release.",
                "passed_nothing.",
                "shares.",
            ]
            .iter()
            .any(|part| name.starts_with(part))
            {
                continue;
            }
            let sql = with_holds_key(&guarded(&sql));
            let sql = with_order(&with_shares(&with_fragments(&sql))).replace("{place}", "");
            let result = client.prepare(&sql).await;
            result.unwrap_or_else(|error| panic!("{name} on {version}: {error:?}"));
            prepared += 1;
        }
        assert!(prepared > 23, "only {prepared} files");
    }
}

#[tokio::test]
async fn a_session_of_our_own_begins_with_our_settings() {
    let database = PostgresServer::shared(15).create_database();
    let url = format!("{}?options=-c%20work_mem%3D1234kB", database.url());
    let connector = Connector::new(PostgresConfig::parse(&url).unwrap()).unwrap();
    let client = connector.connect(Work::Read).await.unwrap();
    assert!(!client.is_pooled());
    let expected = SETTINGS.into_iter().chain([
        ("statement_timeout", "10min"),
        ("lock_timeout", "5s"),
        ("search_path", SEARCH_PATH),
        ("application_name", "posthaste"),
        ("work_mem", "1234kB"),
    ]);
    for (name, value) in expected {
        let row = client
            .query_typed_one("select current_setting($1)", &[(&name, Type::TEXT)])
            .await
            .unwrap();
        assert_eq!(row.get::<_, &str>(0), value, "{name}");
    }
}

async fn has_our_settings(url: &str, pooled: bool, version: u16) {
    let connector = Connector::new(PostgresConfig::parse(url).unwrap()).unwrap();
    let mut client = connector.connect(Work::Read).await.unwrap();
    assert_eq!(client.is_pooled(), pooled);
    let mut expected: Vec<_> = SETTINGS.into();
    expected.extend([
        ("search_path", SEARCH_PATH),
        ("statement_timeout", "10min"),
        ("lock_timeout", "5s"),
        ("transaction_isolation", "read committed"),
        ("transaction_read_only", "off"),
        ("transaction_deferrable", "off"),
    ]);
    if version >= 17 {
        expected.push(("transaction_timeout", "0"));
    }
    for (name, value) in expected {
        let question = "select pg_catalog.current_setting($1) as value";
        let row = client
            .query_typed_one(question, &[(&name, Type::TEXT)])
            .await
            .unwrap();
        assert_eq!(row.get::<_, &str>(0), value, "{name}");
        let question = format!("select pg_catalog.current_setting('{name}') as value;");
        let told = client.script(&question).await.unwrap();
        let told = told.iter().find_map(|message| match message {
            SimpleQueryMessage::Row(row) => row.get("value"),
            _ => None,
        });
        assert_eq!(told, Some(value), "{name} in a script");
        let transaction = client.transaction().await.unwrap();
        let row = transaction
            .query_typed_one(
                "select pg_catalog.current_setting($1)",
                &[(&name, Type::TEXT)],
            )
            .await
            .unwrap();
        assert_eq!(
            row.get::<_, &str>(0),
            value,
            "{name} in a transaction of several statements"
        );
    }
}

#[tokio::test]
async fn settings_of_a_role_do_not_reach_our_statements() {
    for version in [14, 15, 18] {
        let server = PostgresServer::shared(version);
        let database = server.create_database();
        let role = format!("hostile_{}", database.name());
        database.psql(&format!("create role {role} login superuser"));
        database.psql(&odd_settings(&format!("role {role}"), version));
        has_our_settings(&database.url_for(&role), false, version).await;
        let pooler = PgBouncer::start(server, &[&role]);
        has_our_settings(&pooler.url(&role, database.name()), true, version).await;
    }
}

async fn backend(session: &Session) -> i32 {
    let client = session.client().await.unwrap();
    let row = client.query_typed_one("select pg_backend_pid()", &[]);
    row.await.unwrap().get(0)
}

/// A pooler may keep a connection open and silent: the next call must not wait behind an answer
/// that never comes.
#[tokio::test]
async fn a_call_that_is_given_up_takes_its_connection_along() {
    let database = PostgresServer::shared(15).create_database();
    let config = PostgresConfig::parse(&database.url()).unwrap();
    let connector = Arc::new(Connector::new(config).unwrap());
    let session = Session::new(Arc::clone(&connector));
    let first = backend(&session).await;
    assert_eq!(backend(&session).await, first, "it is kept");

    let client = session.client().await.unwrap();
    let call = client.batch_execute("select pg_sleep(86400)");
    assert!(call.now_or_never().is_none(), "it is sent, and given up");
    drop(client);
    let second = backend(&session).await;
    assert_ne!(second, first);

    let mut client = session.client().await.unwrap();
    drop(client.transaction().await.unwrap());
    drop(client);
    let third = backend(&session).await;
    assert_ne!(third, second, "it was in a transaction");

    let client = session.client().await.unwrap();
    let call = client.batch_execute("select pg_sleep(86400)");
    let cut = async { connector.cut() };
    let (answer, ()) = tokio::join!(call, cut);
    assert!(answer.is_err(), "what is under way fails");
    drop(client);
    assert_ne!(backend(&session).await, third);

    // The server is told too that nobody waits any more.
    let left = format!("select count(*) from pg_stat_activity where pid in ({first}, {third})");
    while database.psql(&left) != "0" {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// One leaf of a plan: its name, and the rows that it looked at.
#[derive(Debug)]
struct Scan {
    line: String,
    rows: u64,
}

/// Explains a statement with these arguments, under the sessions' settings; answers the scans of
/// leaves and the server's time in milliseconds.
fn explain(database: &Database, sql: &str, types: &str, arguments: &str) -> (Vec<Scan>, f64) {
    let settings = SETTINGS.map(|(name, value)| format!("set {name} = '{value}';"));
    let plan = database.psql(&format!(
        "{}; prepare p({types}) as {sql};
         explain (analyze, costs off, timing off) execute p({arguments})",
        settings.concat()
    ));
    let mut scans: Vec<Scan> = Vec::new();
    let number_after = |line: &str, label: &str| -> Option<u64> {
        let (_, rest) = line.split_once(label)?;
        rest.split(|c: char| !c.is_ascii_digit())
            .find(|n| !n.is_empty())?
            .parse()
            .ok()
    };
    for line in plan.lines() {
        if line.contains("Scan") && line.contains(" on outbox_") {
            let rows = number_after(line, "(actual rows=").unwrap_or(0);
            scans.push(Scan {
                line: line.trim().to_owned(),
                rows,
            });
        } else if let (Some(scan), Some(rows)) = (
            scans.last_mut(),
            number_after(line, "Rows Removed by Filter: "),
        ) {
            scan.rows += rows;
        }
    }
    let time = plan
        .lines()
        .find_map(|line| line.split_once("Execution Time: "));
    let time = time.and_then(|(_, rest)| rest.split(' ').next()).unwrap();
    assert!(!scans.is_empty(), "{plan}");
    for scan in &scans {
        assert!(scan.line.contains("Index Scan using"), "{plan}");
    }
    (scans, time.parse().unwrap())
}

const POLL_TYPES: &str = "bigint, pg_snapshot, bigint, xid8[], bigint[]";
const PAGE_TYPES: &str = "bigint, pg_snapshot, pg_snapshot, bigint, bigint";
/// One partition of 64.
const SOME_SLOTS: &str = "'\\x0100000000000000', 8";

/// The plan of a statement under the sessions' settings.
fn plan(database: &Database, sql: &str, types: &str, arguments: &str) -> String {
    let settings = SETTINGS.map(|(name, value)| format!("set {name} = '{value}';"));
    database.psql(&format!(
        "{}; prepare p({types}) as {sql}; explain (costs off) execute p({arguments})",
        settings.concat()
    ))
}

/// A claim goes through any number of markers, so each page must begin in the index where it
/// begins.
#[tokio::test]
async fn a_page_of_markers_begins_in_the_index() {
    let database = database(1 << 14).await;
    database.psql(
        "insert into posthaste.destinations (name, partitions) values ('d', 64);
         insert into posthaste.markers (destination_id, key, slot, low, floor, floor_min)
         select d.id, 'k' || lpad(n::text, 6, '0'), 0, pg_current_snapshot(), 0, 0
         from posthaste.destinations d, generate_series(1, 20000) n;
         analyze posthaste.markers",
    );
    let markers = with_holds_key(include_str!("sql/markers.sql"));
    let types = "bigint, bytea, integer, bigint, text";
    let plan = plan(&database, &markers, types, "1, null, null, 100, 'k019000'");
    let condition = plan
        .lines()
        .find(|line| line.contains("Index Cond"))
        .unwrap();
    assert!(condition.contains("key >= "), "{plan}");
}

/// Tens of thousands of keys may be blocked before the first `analyze`: a join of all markers with
/// all copies would take minutes.
#[tokio::test]
async fn each_marker_looks_up_its_own_copies() {
    let database = database(1 << 14).await;
    let due = with_holds_key(include_str!("sql/due.sql"));
    let types = "bigint, bigint, bytea, integer";
    let plan = plan(&database, &due, types, "1, 100, null, null");
    let mut lines = plan.lines();
    while let Some(scan) = lines.find(|line| line.contains("using parked_waiting")) {
        let condition = lines.next().unwrap();
        assert!(condition.contains("(key = m"), "{scan}\n{plan}");
    }
    assert_eq!(plan.matches("using parked_waiting").count(), 2, "{plan}");
}

/// It went through all markers for each event, and took longer than a statement may.
#[tokio::test]
async fn a_status_looks_up_the_marker_of_each_event() {
    let database = database(1 << 14).await;
    database.psql(
        "insert into posthaste.destinations (name, partitions) values ('d', 64);
         insert into posthaste.markers (destination_id, key, slot, low, floor, floor_min)
         select d.id, 'k' || n, 0, pg_current_snapshot(), 0, 0
         from posthaste.destinations d, generate_series(1, 100) n;
         analyze posthaste.markers",
    );
    let pending = with_order(include_str!("sql/status_pending.sql"));
    let types = "bigint[], bigint, bigint, bigint";
    let plan = plan(&database, &pending, types, "'{1}', 0, 1000000, 100001");
    let mut lines = plan.lines();
    let scan = lines.find(|line| line.contains(" on markers")).unwrap();
    let condition = lines.next().unwrap();
    assert!(condition.contains("(key = CASE"), "{scan}\n{plan}");
}

/// The planner's duties, with rows that were delivered and kept, and with rows that are pending.
fn the_plans_hold(database: &Database, rows: i64, leaf_bits: u8) {
    let now = database.psql("select pg_current_snapshot()");
    let empty_poll = format!("1, '{now}', {rows}, '{{}}', '{{}}'");
    let (scans, _) = explain(database, &Kind::Poll.sql(1_000), POLL_TYPES, &empty_poll);
    assert_eq!(scans.iter().map(|scan| scan.rows).sum::<u64>(), 0);

    let types = format!("{POLL_TYPES}, bytea, integer");
    let empty = format!("{empty_poll}, {SOME_SLOTS}");
    let (scans, _) = explain(database, &Kind::PollOfSlots.sql(1_000), &types, &empty);
    assert_eq!(scans.iter().map(|scan| scan.rows).sum::<u64>(), 0);

    let backlog = "1, '1:1:', 0, '{}', '{}'";
    let (scans, _) = explain(database, &Kind::Poll.sql(1_000), POLL_TYPES, backlog);
    let looked_at = scans.iter().map(|scan| scan.rows).sum::<u64>();
    // Each leaf gives its first row to the merge.
    assert!(looked_at <= 1_001 + 32, "{looked_at} rows");

    for last in [1_i64 << leaf_bits, (3 << leaf_bits) - 10, rows / 2] {
        let until = segment_end(last, leaf_bits);
        let page = format!("1, '1:1:', '{now}', {last}, {until}");
        let (scans, _) = explain(database, &Kind::Page.sql(1_000), PAGE_TYPES, &page);
        let leaves = scans.iter().filter(|scan| scan.rows > 0).count();
        assert_eq!(leaves, 1, "{scans:#?}");
        let some = format!("{page}, {SOME_SLOTS}");
        let types = format!("{PAGE_TYPES}, bytea, integer");
        let (scans, _) = explain(database, &Kind::PageOfSlots.sql(1_000), &types, &some);
        let leaves = scans.iter().filter(|scan| scan.rows > 0).count();
        assert_eq!(leaves, 1, "{scans:#?}");
        let side = format!("{page}, array['k1'], false, false");
        let types = format!("{PAGE_TYPES}, text[], boolean, boolean");
        let (scans, _) = explain(database, &Kind::SidePage.sql(1_000), &types, &side);
        let leaves = scans.iter().filter(|scan| scan.rows > 0).count();
        assert_eq!(leaves, 1, "{scans:#?}");
    }
}

/// The median server time of a poll that finds nothing.
fn empty_poll_ms(database: &Database, rows: i64, arguments: &str) -> f64 {
    let poll = Kind::PollOfSlots.sql(1_000);
    let types = format!("{POLL_TYPES}, bytea, integer");
    let arguments = format!("{arguments}, {SOME_SLOTS}");
    let mut times: Vec<f64> = (0..21)
        .map(|_| explain(database, &poll, &types, &arguments).1)
        .collect();
    times.sort_by(f64::total_cmp);
    let median = times[times.len() / 2];
    println!("an empty poll beside {rows} retained rows: {median} ms");
    median
}

#[tokio::test]
async fn the_planner_reads_one_segment_by_its_index() {
    let (rows, leaf_bits) = if long_form() {
        (2_000_000, 17)
    } else {
        (200_000, 14)
    };
    let database = database(1 << leaf_bits).await;
    database.psql(&format!(
        "insert into posthaste.outbox (topic, key, payload)
         select 't', 'k' || n % 100, convert_to(repeat('x', 200), 'UTF8')
         from generate_series(1, {rows}) n"
    ));
    the_plans_hold(&database, rows, leaf_bits);
    database.psql("analyze posthaste.outbox");
    the_plans_hold(&database, rows, leaf_bits);
    if long_form() {
        let now = database.psql("select pg_current_snapshot()");
        let quiet = format!("1, '{now}', {rows}, '{{}}', '{{}}'");
        assert!(empty_poll_ms(&database, rows, &quiet) < 1.0);
        // 500 transactions in progress, none of them finished.
        let xmax: u64 = now.split(':').nth(1).unwrap().parse().unwrap();
        let list = |numbers: Vec<u64>| {
            let texts: Vec<String> = numbers.iter().map(u64::to_string).collect();
            texts.join(",")
        };
        let xids = list((xmax..xmax + 500).collect());
        let floors = list(vec![1; 500]);
        let snapshot = format!("{xmax}:{}:{xids}", xmax + 500);
        let busy = format!("1, '{snapshot}', {rows}, '{{{xids}}}', '{{{floors}}}'");
        assert!(empty_poll_ms(&database, rows, &busy) < 1.0);
    }
}
