//! Faults that a start refuses, with the fix.

use std::process::Command;

use super::support::*;
use posthaste_engine::{Start, Store, StoreError};
use posthaste_stores::postgres::{InitOptions, PostgresStore, init};
use posthaste_testkit::{
    servers::postgres::{Database, PostgresServer},
    tls::TestCa,
};

async fn checked(url: &str) -> Result<(), StoreError> {
    PostgresStore::new(url)?.check().await
}

/// The kind of refusal, and that its reason has this part.
async fn refused(url: &str, part: &str) -> &'static str {
    let error = checked(url).await.expect_err(part);
    let text = error.to_string();
    assert!(text.contains(part), "{part}: {text}");
    match error {
        StoreError::Unavailable { .. } => "unavailable",
        StoreError::Denied { .. } => "denied",
        StoreError::Schema { .. } => "schema",
        StoreError::Misconfigured { .. } => "misconfigured",
        error => panic!("{error}"),
    }
}

#[tokio::test]
async fn schema_and_rights() {
    let server = PostgresServer::shared(15);
    let database = server.create_database();
    assert_eq!(refused(&database.url(), "posthaste init").await, "schema");
    initialise(&database.url()).await;
    checked(&database.url()).await.unwrap();

    let role = format!("plain_{}", database.name());
    database.psql(&format!("create role {role} login"));
    let url = database.url_for(&role);
    assert_eq!(refused(&url, "--relay ROLE").await, "denied");
    database.psql(&format!(
        "grant usage on schema posthaste to {role}; \
         grant select on all tables in schema posthaste to {role}"
    ));
    assert_eq!(refused(&url, "UPDATE on posthaste.cursors").await, "denied");
    assert_eq!(
        refused(&url, "SELECT on sequence posthaste.outbox_seq_seq").await,
        "denied"
    );

    database.psql("delete from posthaste.migrations where version = 9");
    assert_eq!(refused(&database.url(), "posthaste init").await, "schema");
    let newer = "insert into posthaste.migrations values (9, 'order_keys', 9), (10, 'future', 9)";
    database.psql(newer);
    checked(&database.url())
        .await
        .expect("a newer schema that allows this build");
    let told = init(&database.url(), &InitOptions::default()).await;
    assert_eq!(told.unwrap().version, 10, "the database's, not the build's");
    database.psql("insert into posthaste.migrations values (11, 'farther', 11)");
    assert_eq!(
        refused(&database.url(), "upgrade Posthaste").await,
        "schema"
    );
    let again = init(&database.url(), &InitOptions::default()).await;
    assert!(matches!(again, Err(StoreError::Schema { .. })), "{again:?}");
}

#[tokio::test]
async fn a_sequence_that_breaks_the_floors() {
    let database = fresh().await;
    let store = store(&database.url());
    let claimed = open(&store, Start::Oldest).await;
    database.psql("insert into posthaste.outbox (topic) select 't' from generate_series(1, 50)");
    for _ in 0..3 {
        let page = claimed.next(ALL).await.unwrap();
        claimed.advance(&page.end, &[]).await.unwrap();
    }
    let alter = |set: &str| {
        database.psql(&format!(
            "alter table posthaste.outbox alter column seq set {set}"
        ));
    };
    for (broken, sound) in [
        ("cache 10", "cache 1"),
        ("increment 2", "increment 1"),
        ("cycle", "no cycle"),
    ] {
        alter(broken);
        assert_eq!(refused(&database.url(), "cache 1").await, "misconfigured");
        alter(sound);
    }
    database.psql("select setval('posthaste.outbox_seq_seq', 20)");
    assert_eq!(refused(&database.url(), "set back").await, "misconfigured");
    // The running claim takes it for a new life of the database; the next one names the fix.
    let read = claimed.next(ALL).await;
    assert!(
        matches!(read, Err(StoreError::IncarnationChanged { .. })),
        "{read:?}"
    );
    let relay = register(&store, "next").await;
    database
        .psql("update posthaste.relays set lease_until = clock_timestamp() where name = 'test'");
    let claim = claim(&store, relay, Start::Oldest).await;
    let reopened = store.open(&claim).await.map(drop);
    assert!(
        matches!(reopened, Err(StoreError::Misconfigured { .. })),
        "{reopened:?}"
    );
}

#[tokio::test]
async fn an_encoding_that_lets_any_bytes_pass() {
    let server = PostgresServer::shared(15);
    let name = "any_bytes";
    server.psql(
        "postgres",
        "create database any_bytes encoding 'SQL_ASCII' template template0 locale 'C'",
    );
    let refused = init(&server.admin_url(name), &InitOptions::default()).await;
    server.psql("postgres", "drop database any_bytes with (force)");
    let Err(StoreError::Misconfigured { reason, .. }) = refused else {
        panic!("{refused:?}");
    };
    assert!(reason.contains("SQL_ASCII"), "{reason}");
}

/// Slots are hashes of UTF-8 bytes; a server computes them from its own.
#[tokio::test]
async fn an_encoding_whose_slots_would_differ_from_the_contract() {
    let server = PostgresServer::shared(15);
    let name = "latin";
    server.psql(
        "postgres",
        "create database latin encoding 'LATIN1' template template0 locale 'C'",
    );
    let url = server.admin_url(name);
    let refused = init(&url, &InitOptions::default()).await;
    let Err(StoreError::Misconfigured { reason, .. }) = refused else {
        panic!("{refused:?}");
    };
    assert!(
        reason.contains("LATIN1") && reason.contains("UTF8"),
        "{reason}"
    );
    let script = posthaste_stores::postgres::sql(&InitOptions::default()).unwrap();
    let by_script = writer(&url).await.batch_execute(&script).await.unwrap_err();
    assert!(
        by_script
            .as_db_error()
            .unwrap()
            .message()
            .contains("LATIN1")
    );

    // One that is there goes on: nothing of it is lost, and its slots agree with one another.
    for migration in &posthaste::Dialect::Postgres.migrations()[..4] {
        server.psql(
            name,
            &migration.render(posthaste::schema::Placeholders::default()),
        );
        server.psql(
            name,
            &format!(
                "insert into posthaste.migrations (version, name, min_relay) values ({}, '{}', {})",
                migration.version, migration.name, migration.min_relay
            ),
        );
    }
    init(&url, &InitOptions::default()).await.unwrap();
    server.psql(
        name,
        "select posthaste.emit('t', U&'Gr\\00f6\\00dfe', key => U&'Gr\\00f6\\00dfe')",
    );
    let store = store(&url);
    store.check().await.unwrap();
    let claimed = open(&store, Start::Oldest).await;
    let page = claimed.next(ALL).await.unwrap();
    assert_eq!(payloads_of(&page), ["Größe"]);
    assert_eq!(page.events[0].key(), Some("Größe"));
    drop((claimed, store));
    server.psql("postgres", "drop database latin with (force)");
}

#[tokio::test]
async fn a_session_without_triggers_and_foreign_keys() {
    let database = fresh().await;
    let role = format!("replica_{}", database.name());
    database.psql(&format!(
        "create role {role} login superuser; \
         alter role {role} set session_replication_role = replica"
    ));
    let url = database.url_for(&role);
    assert_eq!(
        refused(&url, "reset session_replication_role").await,
        "misconfigured"
    );
}

#[tokio::test]
async fn row_level_security_that_would_hide_rows() {
    let database = PostgresServer::shared(15).create_database();
    let role = format!("guarded_{}", database.name());
    database.psql(&format!("create role {role} login"));
    let options = InitOptions {
        relay: Some(role.clone()),
        writer: Some(role.clone()),
        ..InitOptions::default()
    };
    init(&database.url(), &options).await.unwrap();
    let url = database.url_for(&role);
    for table in [
        "outbox",
        "outbox_07",
        "migrations",
        "settings",
        "cursors",
        "parked",
    ] {
        let switch = |on: &str| {
            database.psql(&format!(
                "alter table posthaste.{table} {on} row level security"
            ));
        };
        switch("enable");
        let fix = "row-level security hides rows";
        assert_eq!(refused(&url, fix).await, "denied", "{table}");
        // An owner sees everything, unless it is made to obey.
        checked(&database.url()).await.unwrap();
        switch("disable");
        checked(&url).await.unwrap();
    }

    // A writer that a policy lets in is not held up.
    database.psql(
        "alter table posthaste.outbox enable row level security;
         create policy writers on posthaste.outbox for insert with check (true)",
    );
    let app = writer(&url).await;
    app.batch_execute(
        "select posthaste.emit('t', 'a'); insert into posthaste.outbox (topic) values ('t')",
    )
    .await
    .unwrap();
    database.psql(&format!("alter role {role} bypassrls"));
    checked(&url).await.unwrap();
}

#[tokio::test]
async fn wrong_addresses_and_passwords() {
    let server = PostgresServer::builder().setting("fsync", "off").start();
    server.create_password_user("careful", "secret");
    let url = |login: &str, database: &str| {
        format!("postgres://{login}@127.0.0.1:{}/{database}", server.port())
    };
    let wrong = url("careful:geheim", "postgres");
    assert_eq!(refused(&wrong, "check user, password").await, "denied");
    let none = url("careful:secret", "none");
    assert_eq!(refused(&none, "create the database").await, "misconfigured");
    assert_eq!(
        refused("postgres://me@127.0.0.1:1/d", "refused").await,
        "unavailable"
    );
    server.stop_fast();
    let down = checked(&url("careful:secret", "postgres"))
        .await
        .unwrap_err();
    assert!(down.is_retryable());
}

#[tokio::test]
async fn a_read_replica_and_the_primary_among_several_hosts() {
    let primary = PostgresServer::builder().setting("fsync", "off").start();
    initialise(&primary.admin_url("postgres")).await;
    let standby = primary.standby();
    let one = |options: &str| format!("{}{options}", standby.admin_url("postgres"));
    assert_eq!(refused(&one(""), "read replica").await, "misconfigured");
    let only = one("?target_session_attrs=read-write");
    assert_eq!(refused(&only, "primary").await, "misconfigured");
    let both = format!(
        "postgres://postgres@127.0.0.1:1,127.0.0.1:{},127.0.0.1:{}/postgres",
        standby.port(),
        primary.port()
    );
    checked(&both).await.unwrap();
}

#[tokio::test]
async fn certificates() {
    let server = PostgresServer::builder().setting("fsync", "off").start();
    initialise(&server.admin_url("postgres")).await;
    let (ca, stranger) = (TestCa::new(), TestCa::new());
    let login = server.enable_tls_for(&ca, &["localhost"]);
    let url = |host: &str, options: &str| {
        format!(
            "postgres://{}:{}@{host}:{}/postgres?{options}",
            login.user,
            login.password.replace(' ', "%20"),
            server.port()
        )
    };
    let trusting = |ca: &TestCa| format!("sslrootcert={}", ca.certificate_file().display());
    let (ours, theirs) = (trusting(&ca), trusting(&stranger));
    for (host, options) in [
        (
            "localhost",
            format!("sslmode=verify-full&{ours}&channel_binding=require"),
        ),
        ("127.0.0.1", format!("sslmode=verify-ca&{ours}")),
        ("127.0.0.1", format!("sslmode=require&{ours}")),
        ("127.0.0.1", "sslmode=require".to_owned()),
        ("127.0.0.1", "sslmode=prefer".to_owned()),
    ] {
        checked(&url(host, &options))
            .await
            .unwrap_or_else(|error| panic!("{options}: {error}"));
    }
    for (host, options, part) in [
        (
            "127.0.0.1",
            format!("sslmode=verify-full&{ours}"),
            "not valid for name",
        ),
        (
            "localhost",
            format!("sslmode=verify-full&{theirs}"),
            "UnknownIssuer",
        ),
        (
            "localhost",
            format!("sslmode=verify-ca&{theirs}"),
            "UnknownIssuer",
        ),
        (
            "localhost",
            "sslmode=verify-full&sslrootcert=/none".to_owned(),
            "sslrootcert=/none",
        ),
    ] {
        assert_eq!(refused(&url(host, &options), part).await, "misconfigured");
    }
    assert_eq!(
        refused(&url("localhost", "sslmode=disable"), "pg_hba.conf").await,
        "denied"
    );
    let plain = PostgresServer::shared(15);
    let insists = format!("{}?sslmode=require", plain.admin_url("postgres"));
    assert_eq!(refused(&insists, "TLS").await, "misconfigured");
}

fn dump(database: &Database, options: &[&str]) -> String {
    let output = Command::new(PostgresServer::client_programs().join("pg_dump"))
        .args(["--no-owner", "-d", &database.url()])
        .args(options)
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let dump = String::from_utf8(output.stdout).unwrap();
    // A key that is drawn anew for each dump.
    let lines = dump.lines().filter(|line| !line.contains("restrict"));
    lines.collect::<Vec<_>>().join("\n")
}

#[tokio::test]
async fn a_dump_that_was_restored_elsewhere() {
    let database = fresh().await;
    database.psql("select posthaste.emit('t', 'e')");
    let store = store(&database.url());
    let claimed = open(&store, Start::Oldest).await;
    assert_eq!(drain(&claimed, ALL).await, ["e"]);
    let copy = PostgresServer::shared(15).create_database();
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), dump(&database, &[])).unwrap();
    let restored = Command::new(PostgresServer::client_programs().join("psql"))
        .args(["-X", "-q", "-v", "ON_ERROR_STOP=1", "-d", &copy.url(), "-f"])
        .arg(file.path())
        .output()
        .unwrap();
    assert!(
        restored.status.success(),
        "{}",
        String::from_utf8_lossy(&restored.stderr)
    );
    assert_eq!(copy.psql("select count(*) from posthaste.outbox"), "1");
    assert_eq!(refused(&copy.url(), "is a copy").await, "misconfigured");
    let again = init(&copy.url(), &InitOptions::default()).await;
    assert!(
        matches!(again, Err(StoreError::Misconfigured { .. })),
        "{again:?}"
    );
    checked(&database.url()).await.unwrap();
}

#[tokio::test]
async fn the_printed_script_makes_the_same_schema_as_init() {
    let server = PostgresServer::shared(15);
    let (by_init, by_script) = (server.create_database(), server.create_database());
    let options = InitOptions {
        partitions: Some(16),
        ..InitOptions::default()
    };
    init(&by_init.url(), &options).await.unwrap();
    by_script.psql(&posthaste_stores::postgres::sql(&options).unwrap());
    assert_eq!(
        dump(&by_init, &["--schema-only"]),
        dump(&by_script, &["--schema-only"])
    );
    for table in ["settings", "migrations"] {
        let columns = if table == "settings" {
            "*"
        } else {
            "version, name, min_relay"
        };
        let rows = format!("select {columns} from posthaste.{table} order by 1");
        assert_eq!(by_init.psql(&rows), by_script.psql(&rows));
    }
    checked(&by_script.url()).await.unwrap();
    let after = init(&by_script.url(), &InitOptions::default())
        .await
        .unwrap();
    assert!(after.applied.is_empty());
}

#[tokio::test]
async fn inits_at_once_agree_and_later_ones_change_what_may_change() {
    let database = PostgresServer::shared(15).create_database();
    let url = database.url();
    let options = InitOptions::default();
    let inits = (0..4).map(|_| init(&url, &options));
    let done = futures_util::future::try_join_all(inits).await.unwrap();
    let mut applied: Vec<u32> = done.into_iter().flat_map(|done| done.applied).collect();
    applied.sort_unstable();
    assert_eq!(applied, [1, 2, 3, 4, 5, 6, 7, 8, 9]);

    let store = store(&url);
    let relay = register(&store, "one").await;
    assert_eq!(
        claim(&store, relay, Start::Oldest).await.partitions.len(),
        64
    );
    let fewer = InitOptions {
        partitions: Some(8),
        retention: Some(std::time::Duration::from_secs(60)),
        ..InitOptions::default()
    };
    init(&url, &fewer).await.unwrap();
    assert_eq!(
        claim(&store, relay, Start::Oldest).await.partitions.len(),
        8
    );
    let other_leaves = InitOptions {
        leaf_rows: Some(1 << 12),
        ..InitOptions::default()
    };
    let refused = init(&url, &other_leaves).await;
    let Err(StoreError::Misconfigured { reason, .. }) = refused else {
        panic!("{refused:?}");
    };
    assert!(reason.contains("524288"), "{reason}");
}

#[tokio::test]
async fn roles_get_what_they_need_and_no_more() {
    let database = PostgresServer::shared(15).create_database();
    let (writer_role, relay_role) = (
        format!("Writer of {}", database.name()),
        format!("relay_{}", database.name()),
    );
    database.psql(&format!("create role \"{writer_role}\" login"));
    let options = InitOptions {
        writer: Some(writer_role.clone()),
        relay: Some(relay_role.clone()),
        ..InitOptions::default()
    };
    let missing = init(&database.url(), &options).await;
    assert!(
        matches!(missing, Err(StoreError::Misconfigured { .. })),
        "{missing:?}"
    );
    database.psql(&format!("create role {relay_role} login"));
    init(&database.url(), &options).await.unwrap();

    let app = writer(&database.url_for(&writer_role.replace(' ', "%20"))).await;
    app.batch_execute(
        "select posthaste.emit('t', 'a', lock_key => true, key => 'k');
         insert into posthaste.outbox (topic, payload) values ('t', 'b')",
    )
    .await
    .unwrap();
    for forbidden in [
        "insert into posthaste.outbox (topic, xid) values ('t', '1')",
        "insert into posthaste.outbox (topic, seq) overriding system value values ('t', 1)",
        "select 1 from posthaste.outbox",
        "delete from posthaste.outbox",
        "update posthaste.outbox set topic = 'x'",
        "select 1 from posthaste.cursors",
    ] {
        let error = app.batch_execute(forbidden).await.expect_err(forbidden);
        assert_eq!(
            error.code().unwrap().code(),
            "42501",
            "{forbidden}: {error}"
        );
    }

    let store = store(&database.url_for(&relay_role));
    store.check().await.unwrap();
    let claimed = open(&store, Start::Oldest).await;
    assert_eq!(drain(&claimed, ALL).await, ["a", "b"]);
    posthaste_engine::Admin::status(&store).await.unwrap();
    let relay = writer(&database.url_for(&relay_role)).await;
    for forbidden in [
        "delete from posthaste.outbox",
        "truncate posthaste.outbox",
        "update posthaste.outbox_00 set topic = 'x'",
        "insert into posthaste.outbox (topic) values ('t')",
        "update posthaste.settings set value = '1'",
        "delete from posthaste.identity",
    ] {
        let error = relay.batch_execute(forbidden).await.expect_err(forbidden);
        assert_eq!(
            error.code().unwrap().code(),
            "42501",
            "{forbidden}: {error}"
        );
    }
}

#[tokio::test]
async fn a_role_that_may_not_ask_which_server_this_is() {
    let database = fresh().await;
    let role = format!("blind_{}", database.name());
    database.psql(&format!("create role {role} login"));
    let options = InitOptions {
        relay: Some(role.clone()),
        ..InitOptions::default()
    };
    init(&database.url(), &options).await.unwrap();
    let url = database.url_for(&role);
    checked(&url).await.unwrap();
    database.psql("revoke execute on function pg_control_system() from public");
    assert_eq!(refused(&url, "pg_control_system").await, "denied");
    database.psql(&format!(
        "grant execute on function pg_control_system() to {role}"
    ));
    checked(&url).await.unwrap();
}

#[tokio::test]
async fn a_leaf_that_is_missing() {
    let database = fresh().await;
    database.psql("alter table posthaste.outbox detach partition posthaste.outbox_03");
    let reason = "15 of its 16 leaves";
    assert_eq!(refused(&database.url(), reason).await, "misconfigured");
    let new_era = InitOptions {
        new_era: true,
        ..InitOptions::default()
    };
    for options in [new_era, InitOptions::default()] {
        let refused = init(&database.url(), &options).await.unwrap_err();
        assert!(refused.to_string().contains(reason), "{refused}");
    }
}
