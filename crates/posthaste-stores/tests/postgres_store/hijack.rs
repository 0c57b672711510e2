//! A role that may create functions, operators and types where others look for names: nothing of it
//! is ever called by those who initialise, relay, operate or write.

use std::time::{Duration, Instant};

use posthaste::schema;
use posthaste_engine::{
    Admin, ClaimRequest, DeadAction, DestinationState, Housekeeping, Leases, Ownership,
    ParkedFilter, RelayReport, Retention, Start, Store, StoreError,
};
use posthaste_stores::postgres::{InitOptions, PostgresStore, init, plan_new_era, sql};
use posthaste_testkit::servers::{
    pgbouncer::PgBouncer,
    postgres::{Database, PostgresServer},
};
use tokio_postgres::{Client, error::SqlState};

use super::support::*;

const PLANTS: &str = include_str!("hijack/plants.sql");
const TEMPORARY: &str = include_str!("hijack/temporary.sql");
/// The pooler's sessions.
const SESSIONS: usize = 4;

/// A database in which everything is planted.
struct Planted {
    server: &'static PostgresServer,
    name: String,
}

impl Planted {
    /// A copy of the database in which it was planted.
    fn new(template: &str, suffix: &str) -> Self {
        let planted = Self {
            server: PostgresServer::shared(15),
            name: format!("{template}_{suffix}"),
        };
        planted.server.psql(
            "postgres",
            &format!("create database {} template {template}", planted.name),
        );
        planted.server.psql(
            "postgres",
            &format!(
                "alter database {} set search_path = \"$user\", public, pg_catalog",
                planted.name
            ),
        );
        planted
    }

    fn url(&self) -> String {
        self.server.admin_url(&self.name)
    }

    /// As anybody.
    fn psql(&self, sql: &str) {
        self.server.psql(&self.name, sql);
    }

    /// As somebody who knows of the plants.
    fn psql_aware(&self, sql: &str) {
        self.psql(&format!("set search_path = pg_catalog; {sql}"));
    }

    /// That the plants would be called: a call by name, an operator, a type and a temporary table.
    async fn is_dangerous(&self) {
        let client = writer(&self.url()).await;
        for statement in [
            "select clock_timestamp()",
            "select count(*) from posthaste.outbox",
            "select 1 where 'a'::pg_catalog.text = 'b'::pg_catalog.text",
            "select '01a206c4-0590-7382-b9d3-664fba6fb6f3'::uuid",
        ] {
            let called = client.batch_execute(statement).await;
            called.expect_err(statement);
        }
        self.is_dangerous_in(&client).await;
    }

    async fn is_dangerous_in(&self, client: &Client) {
        client.batch_execute(TEMPORARY).await.unwrap();
        let read = "select datname from pg_database";
        client.batch_execute(read).await.expect_err(read);
    }

    /// Everything that writers do.
    async fn write(&self) {
        let client = writer(&self.url()).await;
        client.batch_execute(TEMPORARY).await.unwrap();
        for statement in [
            "select posthaste.emit('t', 'text', key => 'k', headers => '{a,b}', lock_key => true)",
            "select posthaste.emit('t', '{}'::pg_catalog.json)",
            "select posthaste.emit('t', '{}'::pg_catalog.jsonb)",
            "select posthaste.emit('t', '\\x00'::pg_catalog.bytea, key => 7)",
            "select posthaste.emit_bytes('t', 'bytes')",
            "select posthaste.emit('t', 'x', posthaste.uuid_v7(), lock_key => true)",
            "select posthaste.lock_key(7), posthaste.lock_key(posthaste.uuid_v7())",
            "select posthaste.lock_key('k'), posthaste.uuid_v7(), posthaste.check_limit('f', 1, 2)",
            "insert into posthaste.outbox (topic, key, headers) values ('t', 'k', '{a,b,c,NULL}')",
        ] {
            client.batch_execute(statement).await.expect(statement);
        }
        for (statement, code) in [
            (
                "insert into posthaste.outbox (topic, headers) values ('t', '{odd}')",
                "23514",
            ),
            ("select posthaste.check_limit('f', 3, 2)", "54000"),
        ] {
            let refused = client.batch_execute(statement).await.unwrap_err();
            assert_eq!(refused.code().unwrap().code(), code, "{refused}");
        }
        // The library's statements.
        for statement in [
            include_str!("../../../posthaste/src/sql/emit_one.sql"),
            include_str!("../../../posthaste/src/sql/emit_many.sql"),
            include_str!("../../../posthaste/src/sql/emitted_postgres.sql"),
        ] {
            client.prepare(statement).await.expect(statement);
        }
    }

    /// Everything that a relay and an operator do.
    async fn relay(&self, url: &str) {
        let store = store(url);
        store.check().await.unwrap();
        let relay = register(&store, "relay").await;
        let claimed = reopen(&store, relay, Start::Oldest).await;
        // A former life of the destination may have left some.
        drain(&claimed, ALL).await;
        deliver(&store, &claimed, |sql| self.psql_aware(sql)).await;
        drain(&claimed, ALL).await;
        store
            .renew(relay, LEASE, &RelayReport::new())
            .await
            .unwrap();
        store.shares("default").await.unwrap();
        store.status().await.unwrap();
        store.hand_overs(10).await.unwrap();
        for action in [DeadAction::Retry, DeadAction::Skip, DeadAction::Discard] {
            let any = ParkedFilter::default();
            store.act(&any, action).await.unwrap();
        }
        self.empty_a_leaf(&store, &claimed).await;

        let other = register(&store, "other").await;
        let now = ClaimRequest {
            start: Start::Now,
            ..ClaimRequest::all("now", "null:")
        };
        owned(store.claim(other, &now).await.unwrap());
        store.withdraw(other, "now", Duration::ZERO).await.unwrap();
        store
            .fence(relay, other.registration, "a test")
            .await
            .unwrap();
        store.revoke(relay, "now", SETTLE).await.unwrap();
        for state in [
            DestinationState::Paused,
            DestinationState::Active,
            DestinationState::Removed,
        ] {
            assert!(store.set_destination("now", state).await.unwrap());
        }
        store.announce_leaving(relay).await.unwrap();
        store.leave(relay, SETTLE).await.unwrap();
        store
            .set_destination("default", DestinationState::Removed)
            .await
            .unwrap();
    }

    async fn empty_a_leaf(
        &self,
        store: &posthaste_stores::postgres::PostgresStore,
        claimed: &std::sync::Arc<dyn posthaste_engine::Claimed>,
    ) {
        let mut done = Housekeeping::default();
        // Another test's transaction keeps leaves that it may see: the horizon is the server's.
        let limit = Instant::now() + Duration::from_secs(60);
        while done.leaves == 0 {
            assert!(Instant::now() < limit, "no leaf was emptied");
            // Twice what a leaf holds, so that one is always full and goes as a whole.
            self.psql_aware(
                "insert into posthaste.outbox (topic) select 't' from generate_series(1, 2048)",
            );
            drain(claimed, ALL).await;
            done.add(store.housekeep(None).await.unwrap());
        }
        store.retained().await.unwrap();
    }

    /// The same behind a pooler whose sessions somebody used before us.
    async fn relay_behind_a_pooler(&self) {
        let pooler = PgBouncer::start(self.server, &["postgres"]);
        let url = pooler.url("postgres", &self.name);
        let mut clients = Vec::new();
        for _ in 0..SESSIONS {
            let client = writer(&url).await;
            client.batch_execute("begin").await.unwrap();
            clients.push(client);
        }
        for client in clients {
            client.batch_execute(TEMPORARY).await.unwrap();
            client.batch_execute("commit").await.unwrap();
        }
        self.relay(&url).await;
    }
}

fn options() -> InitOptions {
    InitOptions {
        leaf_rows: Some(1 << 10),
        retention: Some(Duration::ZERO),
        ..InitOptions::default()
    }
}

#[tokio::test]
async fn names_that_others_created_are_never_called() {
    let server = PostgresServer::shared(15);
    let template = server.create_database();
    template.psql(PLANTS);

    let by_init = Planted::new(template.name(), "init");
    init(&by_init.url(), &options()).await.unwrap();
    by_init.is_dangerous().await;
    by_init.write().await;
    by_init.relay(&by_init.url()).await;
    by_init.relay_behind_a_pooler().await;

    let by_script = Planted::new(template.name(), "script");
    by_script.psql(&sql(&options()).unwrap());
    by_script.write().await;
    init(&by_script.url(), &InitOptions::default())
        .await
        .unwrap();

    let earlier = Planted::new(template.name(), "earlier");
    for migration in &posthaste::Dialect::Postgres.migrations()[..4] {
        earlier.psql(&migration.render(schema::Placeholders { leaf_bits: 10 }));
        earlier.psql(&format!(
            "insert into posthaste.migrations (version, name, min_relay) values ({}, '{}', {})",
            migration.version, migration.name, migration.min_relay
        ));
    }
    let applied = init(&earlier.url(), &options()).await.unwrap().applied;
    assert_eq!(applied.first(), Some(&5));
    earlier.write().await;
    earlier.relay(&earlier.url()).await;

    for planted in [by_init, by_script, earlier] {
        let name = planted.name;
        server.psql("postgres", &format!("drop database {name} with (force)"));
    }
}

/// A view where `init` looks for its own table; reading it counts.
const SQUATTED: &str = "
    create schema posthaste authorization {role};
    set role {role};
    create sequence posthaste.ran;
    create function posthaste.run() returns integer language sql volatile
        as $$ select nextval('posthaste.ran')::integer $$;
    create view posthaste.migrations as
        select posthaste.run() as version, 'x'::text as name, 5 as min_relay, now() as applied_at;
    create view posthaste.identity as
        select true as one, 1::oid as database_oid, 1::oid as outbox_oid,
            posthaste.run()::bigint as system_identifier;
    create table posthaste.outbox (seq bigint)";

/// Any role that may create a schema could be there first, and wait for a superuser's `init`.
#[tokio::test]
async fn a_schema_that_others_have_filled_is_refused_unread() {
    let server = PostgresServer::shared(15);
    let script = sql(&InitOptions::default()).unwrap();
    let new_era = InitOptions {
        new_era: true,
        ..InitOptions::default()
    };
    let is_refused = async |database: &Database, role: &str| {
        for options in [&InitOptions::default(), &new_era] {
            let refused = init(&database.url(), options).await;
            let refused = refused.expect_err("a schema of others");
            assert!(matches!(refused, StoreError::Denied { .. }), "{refused}");
            assert!(refused.to_string().contains(role), "{refused}");
        }
        let by_script = writer(&database.url()).await.batch_execute(&script).await;
        let by_script = by_script.expect_err("a schema of others");
        let told = by_script.as_db_error().unwrap().message();
        assert!(told.contains(role), "{told}");
    };

    let squatted = server.create_database();
    let role = format!("squatter_{}", squatted.name());
    squatted.psql(&format!("create role {role} login"));
    squatted.psql(&SQUATTED.replace("{role}", &role));
    is_refused(&squatted, &role).await;
    let plan = plan_new_era(&squatted.url()).await;
    assert!(matches!(plan, Err(StoreError::Denied { .. })), "{plan:?}");
    assert_eq!(squatted.psql("select is_called from posthaste.ran"), "f");

    let shared = server.create_database();
    shared.psql(&format!(
        "create schema posthaste; grant create on schema posthaste to {role}"
    ));
    is_refused(&shared, &role).await;
    shared.psql(&format!("revoke create on schema posthaste from {role}"));
    init(&shared.url(), &InitOptions::default()).await.unwrap();

    // An owner without more rights than its own may be anybody, as long as it initialises by
    // itself.
    let own = server.create_database();
    own.psql(&format!("create schema posthaste authorization {role}"));
    init(&own.url_for(&role), &InitOptions::default())
        .await
        .unwrap();
    is_refused(&own, &role).await;
}

/// A common set-up, after which each writer of the outbox could also set triggers on its tables.
#[tokio::test]
async fn default_privileges_let_nobody_run_code_as_relay_or_superuser() {
    let server = PostgresServer::shared(15);
    let script = sql(&InitOptions::default()).unwrap();
    for by_script in [false, true] {
        let database = server.create_database();
        let role = format!("app_{}", database.name());
        database.psql(&format!(
            "create role {role} login; create schema app authorization {role};
             alter default privileges grant all on tables to {role}"
        ));
        if by_script {
            let superuser = writer(&database.url()).await;
            superuser.batch_execute(&script).await.unwrap();
        }
        let options = InitOptions {
            writer: Some(role.clone()),
            ..InitOptions::default()
        };
        init(&database.url(), &options).await.unwrap();
        let app = writer(&database.url_for(&role)).await;
        let evil = "create function app.evil() returns trigger language plpgsql \
                    as $$ begin return new; end $$";
        app.batch_execute(evil).await.unwrap();
        for table in ["settings", "relays", "outbox", "audit", "eras"] {
            let planted = format!(
                "create trigger evil before insert on posthaste.{table} \
                 for each row execute function app.evil()"
            );
            let planted = app.batch_execute(&planted).await;
            let refused = planted.expect_err("a trigger of a writer");
            assert_eq!(refused.code(), Some(&SqlState::INSUFFICIENT_PRIVILEGE));
        }
        let event = "insert into posthaste.outbox (topic, payload) values ('t', 'x')";
        app.batch_execute(event).await.unwrap();

        // An outbox of before, or rights that somebody gave.
        let is_refused = async |what: &str| {
            let initialised = init(&database.url(), &InitOptions::default()).await;
            let store = PostgresStore::new(&database.url()).unwrap();
            let again = sql(&InitOptions::default()).unwrap();
            let by_script = writer(&database.url()).await.batch_execute(&again).await;
            let told = by_script.expect_err("rights of others");
            let told = told.as_db_error().unwrap().message().to_owned();
            for refused in [initialised.unwrap_err(), store.check().await.unwrap_err()] {
                assert!(matches!(refused, StoreError::Denied { .. }), "{refused}");
                let refused = refused.to_string();
                assert!(
                    refused.contains(what) && refused.contains(&role),
                    "{refused}"
                );
            }
            assert!(told.contains(what) && told.contains(&role), "{told}");
        };
        database.psql(&format!("grant trigger on posthaste.audit to {role}"));
        is_refused("TRIGGER on posthaste.audit").await;
        let planted = "create trigger evil before insert on posthaste.audit \
                       for each row execute function app.evil()";
        app.batch_execute(planted).await.unwrap();
        database.psql(&format!("revoke trigger on posthaste.audit from {role}"));
        is_refused("trigger evil on posthaste.audit").await;
        database.psql("drop trigger evil on posthaste.audit");
        init(&database.url(), &InitOptions::default())
            .await
            .unwrap();
    }
}
