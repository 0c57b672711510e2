//! An outbox that was made by an earlier release, with what it holds.

use std::time::Duration;

use super::support::*;
use posthaste::schema;
use posthaste_engine::{Admin, Leases, Ownership, RelayReport, Store, StoreError};
use posthaste_stores::postgres::{InitOptions, init};
use posthaste_testkit::servers::postgres::{Database, PostgresServer};

const OWNER: &str = "00000000-0000-0000-0000-0000000000aa";

/// An empty outbox of an earlier version.
fn at_version(server: &PostgresServer, version: usize) -> Database {
    let database = server.create_database();
    for migration in &posthaste::Dialect::Postgres.migrations()[..version] {
        database.psql(&migration.render(schema::Placeholders { leaf_bits: 10 }));
        database.psql(&format!(
            "insert into posthaste.migrations (version, name, min_relay) values ({}, '{}', {})",
            migration.version, migration.name, migration.min_relay
        ));
    }
    database
}

/// The schema as the release before partitions were shared left it: a live relay owns `default`,
/// which stands in the middle of a difference, with a blocked key; `other` is free and has been cut
/// into fewer.
fn version_2() -> Database {
    let database = at_version(PostgresServer::shared(15), 2);
    database.psql(
        "select posthaste.emit('t', n::text, key => 'k\\' || n % 10) \
         from generate_series(1, 100) n",
    );
    let now = database.psql("select pg_current_snapshot()");
    database.psql(&format!(
        "insert into posthaste.destinations (name) values ('default'), ('other');
         insert into posthaste.relays
             (registration, name, version, lease_until,
             boot_id, pid_namespace, pid, process_started)
         values ('{OWNER}', 'old', '0.1.0', now() + interval '1 hour', 'b', 'n', 1, 1);
         insert into posthaste.ownership
            (destination_id, first_partition, last_partition, relay, epoch, not_before)
         values (1, 0, 63, '{OWNER}', 7, now()), (2, 0, 15, null, 3, now() + interval '1 hour');
         insert into posthaste.cursors
            (destination_id, first_partition, last_partition, low, high, seq, floor, floor_min)
         values (1, 0, 63, '1:1:', '{now}', 40, 0, 0), (2, 0, 15, '{now}', null, null, 100, 100);
         insert into posthaste.markers (destination_id, key, low, high, seq, floor, floor_min)
         values (1, 'k\\3', '1:1:', '{now}', 13, 0, 0)"
    ));
    database
}

#[tokio::test]
async fn what_an_earlier_release_kept_goes_on_where_it_stood() {
    let database = version_2();
    let role = format!("relay_{}", database.name());
    database.psql(&format!(
        "create role {role} login;
         grant usage on schema posthaste to {role};
         grant select, insert, update, delete, truncate on all tables in schema posthaste to {role};
         grant select on all sequences in schema posthaste to {role}"
    ));
    let applied = init(&database.url(), &InitOptions::default())
        .await
        .unwrap()
        .applied;
    assert_eq!(applied.first(), Some(&3));
    // Rights go along with the tables.
    let store = store(&database.url_for(&role));
    store.check().await.unwrap();

    let shares = store.shares("default").await.unwrap();
    assert_eq!(
        (shares.partitions, shares.dead, shares.recut),
        (64, 64, false)
    );
    let relay = register(&store, "new").await;
    let claim = claim_some(&store, relay, 64).await;
    assert!(claim.epoch > 7 && claim.settle > SETTLE / 2, "{claim:?}");
    assert_eq!(claim.former, [OWNER.parse::<uuid::Uuid>().unwrap()]);
    let claimed = store.open(&claim).await.unwrap();
    let markers = claimed.markers(None, 10).await.unwrap();
    assert_eq!((markers.len(), markers[0].key.as_str()), (1, "k\\3"));
    let slot = posthaste::slot("k\\3").to_string();
    assert_eq!(database.psql("select slot from posthaste.markers"), slot);
    let expected: Vec<String> = (41..=100).map(|number| number.to_string()).collect();
    assert_eq!(drain(&claimed, ALL).await, expected);
    let lines = store.hand_overs(10).await.unwrap();
    let told: Vec<_> = lines
        .iter()
        .map(|line| (line.action.as_str(), line.relay.as_deref()))
        .collect();
    assert_eq!(told, [("take-over", Some("new")), ("fence", None)]);
    assert_eq!(lines[0].detail, "64 partitions of relay `old`");

    // The other one is cut as the setting has it, and still settles.
    let other = store.shares("other").await.unwrap();
    assert_eq!(
        (other.partitions, other.settling, other.recut),
        (16, 16, true)
    );
    store.leave(relay, Duration::ZERO).await.unwrap();
}

#[tokio::test]
async fn a_relay_that_is_too_old_is_told_so() {
    let database = fresh().await;
    let store = store(&database.url());
    let relay = register(&store, "old").await;
    store
        .renew(relay, LEASE, &RelayReport::new())
        .await
        .unwrap();
    database.psql("update posthaste.settings set value = '99.0.0' where name = 'min_relay'");
    let refused = [
        store.check().await.unwrap_err(),
        store
            .renew(relay, LEASE, &RelayReport::new())
            .await
            .unwrap_err(),
        try_register(&store, "new").await.unwrap_err(),
    ];
    for error in refused {
        assert!(matches!(error, StoreError::Schema { .. }), "{error:?}");
        let (text, ours) = (error.to_string(), env!("CARGO_PKG_VERSION"));
        for part in ["99.0.0", ours, "upgrade Posthaste"] {
            assert!(text.contains(part), "{text}");
        }
    }
    database.psql("update posthaste.settings set value = '0.0.9' where name = 'min_relay'");
    store
        .renew(relay, LEASE, &RelayReport::new())
        .await
        .unwrap();
}

/// A writer that keeps its transaction open delays the migration, and nobody else.
#[tokio::test]
async fn a_migration_beside_an_open_writer_delays_no_other_writer() {
    let server = PostgresServer::builder().setting("fsync", "off").start();
    let database = at_version(&server, 4);
    let (open, other) = (writer(&database.url()).await, writer(&database.url()).await);
    open.batch_execute("begin; select posthaste.emit('t', 'open')")
        .await
        .unwrap();
    other
        .batch_execute("set lock_timeout = '150ms'")
        .await
        .unwrap();
    let url = database.url();
    let migrating = tokio::spawn(async move { init(&url, &InitOptions::default()).await });
    // It was tried again and again, and each of these went through.
    while server.log().matches("due to lock timeout").count() < 4 {
        assert!(!migrating.is_finished(), "it has not waited");
        other
            .batch_execute("select posthaste.emit('t', 'other')")
            .await
            .unwrap();
    }
    open.batch_execute("commit").await.unwrap();
    assert_eq!(migrating.await.unwrap().unwrap().applied, [5, 6, 7, 8, 9]);
    let claimed =
        super::support::open(&store(&database.url()), posthaste_engine::Start::Oldest).await;
    assert!(drain(&claimed, ALL).await.contains(&"open".to_owned()));
}

/// Writers of an outbox whose owner took the functions from everybody else need no new grant.
#[tokio::test]
async fn new_functions_may_be_called_by_those_who_may_call_the_old_ones() {
    let database = at_version(PostgresServer::shared(15), 6);
    let (writes, bytes, none) = (
        format!("writes_{}", database.name()),
        format!("bytes_{}", database.name()),
        format!("none_{}", database.name()),
    );
    let signature = "text, text, text, text, text[], text, text, text, text, text, text, \
                     timestamptz, uuid, boolean";
    database.psql(&format!(
        "create role {writes} login; create role {bytes} login; create role {none} login;
         grant usage on schema posthaste to {writes}, {bytes}, {none};
         grant insert (id, topic, key, type, content_type, payload, headers, occurred_at,
                       correlation_id, causation_id, tenant_id, traceparent, tracestate)
             on posthaste.outbox to {writes}, {bytes}, {none};
         revoke execute on all functions in schema posthaste from public;
         grant execute on all functions in schema posthaste to {bytes};
         revoke execute on function posthaste.emit({signature}) from {bytes};
         grant execute on all functions in schema posthaste to {writes} with grant option"
    ));
    initialise(&database.url()).await;
    let of_bytes = "select posthaste.emit('t', '\\x00'::bytea, key => 7)";
    let of_text = "select posthaste.emit('t', 'x', key => gen_random_uuid(), lock_key => true), \
                   posthaste.lock_key(7)";
    for (role, call, allowed) in [
        (&writes, of_text, true),
        (&writes, of_bytes, true),
        (&bytes, of_text, false),
        (&bytes, of_bytes, true),
        (&none, of_text, false),
        (&none, of_bytes, false),
    ] {
        let client = writer(&database.url_for(role)).await;
        let called = client.batch_execute(call).await;
        assert_eq!(called.is_ok(), allowed, "{role}: {call}: {called:?}");
        if let Err(refused) = called {
            assert_eq!(refused.code().unwrap().code(), "42501", "{refused}");
        }
    }
    // Options of a grant go along, too.
    let granting = "select count(*) from pg_proc p cross join aclexplode(p.proacl) a \
                    where p.pronamespace = 'posthaste'::regnamespace and a.is_grantable \
                    and p.proname in ('emit', 'emit_bytes', 'lock_key')";
    let all = "select count(*) from pg_proc p where p.pronamespace = 'posthaste'::regnamespace \
               and p.proname in ('emit', 'emit_bytes', 'lock_key')";
    assert_eq!(database.psql(granting), database.psql(all));
    database.psql(&format!(
        "drop owned by {writes}, {bytes}, {none}; drop role {writes}, {bytes}, {none}"
    ));
}

/// `init` locks nothing of the outbox once it is up to date.
#[tokio::test]
async fn grants_and_settings_do_not_wait_for_an_open_writer() {
    let database = fresh().await;
    let role = format!("both_{}", database.name());
    database.psql(&format!("create role {role} login"));
    let open = writer(&database.url()).await;
    open.batch_execute(
        "begin; select posthaste.emit('t', 'open'); \
         lock table only posthaste.outbox in row exclusive mode",
    )
    .await
    .unwrap();
    let options = InitOptions {
        writer: Some(role.clone()),
        relay: Some(role),
        partitions: Some(32),
        notify: Some(false),
        ..InitOptions::default()
    };
    let url = database.url();
    let initialising = init(&url, &options);
    let done = tokio::time::timeout(Duration::from_secs(30), initialising).await;
    assert!(done.expect("no wait").unwrap().applied.is_empty());
    open.batch_execute("commit").await.unwrap();
}

/// An outbox in use keeps its setting; a new one has hints.
#[tokio::test]
async fn hints_are_on_for_new_outboxes_alone() {
    let notify = "select value from posthaste.settings where name = 'notify'";
    assert_eq!(fresh().await.psql(notify), "on");
    let used = at_version(PostgresServer::shared(15), 4);
    used.psql("select posthaste.emit('t', 'x')");
    initialise(&used.url()).await;
    assert_eq!(used.psql(notify), "off");
}

/// A role that does not exist is the commonest reason; the error tells where it happened.
#[tokio::test]
async fn a_refused_init_leaves_nothing_behind_and_says_where() {
    let database = PostgresServer::shared(15).create_database();
    let to_nobody = InitOptions {
        relay: Some("nobody_there".to_owned()),
        ..InitOptions::default()
    };
    let refused = init(&database.url(), &to_nobody).await.unwrap_err();
    assert!(
        matches!(refused, StoreError::Misconfigured { .. }),
        "{refused}"
    );
    let (text, place) = (
        refused.to_string(),
        format!("database `{}`", database.name()),
    );
    assert!(
        text.contains("create role") && text.contains(&place),
        "{text}"
    );
    assert_eq!(
        database.psql("select to_regnamespace('posthaste') is null"),
        "t"
    );

    let unmade = store(&database.url()).check().await.unwrap_err();
    let text = unmade.to_string();
    assert!(
        text.contains("posthaste init") && text.contains(&place),
        "{text}"
    );

    let applied = init(&database.url(), &InitOptions::default()).await;
    assert_eq!(
        applied.unwrap().applied.len(),
        posthaste::Dialect::Postgres.migrations().len()
    );
}
