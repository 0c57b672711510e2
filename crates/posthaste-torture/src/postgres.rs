//! Business tables on PostgreSQL, written through tokio-postgres.

use std::{any::Any, time::Duration};

use async_trait::async_trait;
use posthaste_testkit::servers::postgres::{self, PostgresServer};
use tokio_postgres::{
    Client, NoTls, Transaction,
    types::{ToSql, Type},
};

use crate::{
    crash::Crashing,
    database::{
        Database, Fact, KEYS, LOOSE, LOOSE_EVENTS_MAX, PUT_OFF, Plan, Savepoint, Step, Trouble,
        Writer, emit_numbered, pace, paced,
    },
    relay::posthaste,
};

const TABLES: &str = "
    create table counters (key text primary key, n bigint not null default 0);
    create table facts
        (key text not null, n bigint not null, id uuid not null, primary key (key, n));
    create sequence loose_transactions;
";

const LOCK: &str = "insert into counters as c values ($1, $2)
    on conflict (key) do update set n = c.n + excluded.n returning n";

/// The next transaction's number.
const NEXT: &str = "select pg_snapshot_xmax(pg_current_snapshot())::text::bigint";

/// Notes whoever takes what another one owns, and every epoch that goes back (I8), past whatever
/// the relays do.
const WATCH: &str = "
    create table thefts (what text not null);
    -- With the rights of its owner: the relays' role may not write to our tables.
    create function watch() returns trigger
    language plpgsql security definer set search_path = public as $$
    begin
        if new.epoch < old.epoch then
            insert into thefts values (format('epoch %s after %s', new.epoch, old.epoch));
        end if;
        if new.relay <> old.relay and exists (
            select from posthaste.relays r
            where r.registration = old.relay and r.fenced_at is null) then
            insert into thefts values (format('%s from its owner %s', new.relay, old.relay));
        end if;
        if new.relay is not null and new.relay is distinct from old.relay
            and new.epoch = old.epoch then
            insert into thefts values (format('%s in the epoch of %s', new.relay, old.relay));
        end if;
        return new;
    end $$;
    create trigger watch before update on posthaste.cursors for each row execute function watch();
";

/// One database of a server.
pub struct Postgres {
    database: postgres::Database,
    longest_think: Duration,
}

impl Postgres {
    /// A new one, with the settings that there are by themselves.
    #[must_use]
    pub fn new(server: &PostgresServer) -> Self {
        Self::with_init(server, &[])
    }

    /// A new one, with these flags of `posthaste init`.
    #[must_use]
    pub fn with_init(server: &PostgresServer, flags: &[&str]) -> Self {
        let database = server.create_database();
        posthaste(&[&["init", "--store", &database.url()], flags].concat()).expect_status(0);
        database.psql(&format!(
            "{TABLES}; insert into counters select 'k' || lpad(i::text, 3, '0')
             from generate_series(0, {}) i",
            KEYS - 1
        ));
        Self {
            database,
            longest_think: pace(),
        }
    }

    /// A load leaves some processor to the tests beside it. So does each load of the short form.
    #[must_use]
    pub fn with_paced_writers(mut self) -> Self {
        self.longest_think = paced();
        self
    }

    /// Runs SQL as superuser; answers rows, columns separated by `|`.
    pub fn rows(&self, sql: &str) -> String {
        self.database.psql(sql)
    }

    /// From now on [`thefts`](Self::thefts) knows.
    pub fn watch_ownership(&self) {
        self.database.psql(WATCH);
    }

    /// Thefts of partitions, and partitions whose progress does not stand in one place (I8).
    ///
    /// # Panics
    ///
    /// When nobody watched.
    #[must_use]
    pub fn thefts(&self) -> Vec<String> {
        let uncovered = "select
                'progress in ' || count(p.cursor_id) || ' of ' || d.partitions || ' partitions'
            from posthaste.destinations d
            left join posthaste.partitions p
                on p.destination_id = d.id and p.partition < d.partitions
            group by d.id having count(p.cursor_id) <> d.partitions";
        let found = [self.rows("select what from thefts"), self.rows(uncovered)];
        let lines = found.iter().flat_map(|rows| rows.lines());
        lines.map(str::to_owned).collect()
    }

    /// Ends all connections of relays; answers how many there were.
    #[must_use]
    pub fn end_connections(&self) -> u64 {
        self.number(
            "select count(*) filter (where pg_terminate_backend(pid)) from pg_stat_activity
             where application_name = 'posthaste' and datname = current_database()",
        )
    }

    /// The database's name.
    #[must_use]
    pub fn name(&self) -> &str {
        self.database.name()
    }

    /// The one number that a query answers.
    ///
    /// # Panics
    ///
    /// When it does not.
    #[must_use]
    pub fn number(&self, sql: &str) -> u64 {
        self.rows(sql).parse().unwrap()
    }

    /// A bare connection.
    ///
    /// # Errors
    ///
    /// When the server does not answer.
    pub async fn client(&self) -> Result<Client, Trouble> {
        let (client, connection) = tokio_postgres::connect(&self.url(), NoTls).await?;
        tokio::spawn(connection);
        Ok(client)
    }
}

#[async_trait]
impl Database for Postgres {
    fn url(&self) -> String {
        self.database.url()
    }

    fn longest_hold(&self) -> Duration {
        Duration::from_secs(1)
    }

    fn longest_think(&self) -> Duration {
        self.longest_think
    }

    fn writes_at_once(&self) -> bool {
        true
    }

    async fn writer(&self) -> Result<Box<dyn Writer>, Trouble> {
        Ok(Box::new(PostgresWriter(self.client().await?)))
    }

    async fn facts(&self) -> Vec<Fact> {
        let client = self.client().await.unwrap();
        let rows = client
            .query("select key, n, id from facts order by key, n", &[])
            .await
            .unwrap();
        let fact = |row: tokio_postgres::Row| Fact {
            key: row.get(0),
            n: row.get::<_, i64>(1).try_into().unwrap(),
            id: row.get(2),
        };
        rows.into_iter().map(fact).collect()
    }

    async fn committed(&self) -> u64 {
        self.number("select count(*) from facts")
    }

    async fn audited(&self, action: &str) -> u64 {
        self.number(&format!(
            "select count(*) from posthaste.audit where action like '%{action}%'"
        ))
    }

    async fn parked_with_an_attempt(&self) -> u64 {
        self.number(&format!(
            "select count(*) from posthaste.audit
             where action = 'park' and detail not like '%: {PUT_OFF}'"
        ))
    }
}

struct PostgresWriter(Client);

#[async_trait]
impl Writer for PostgresWriter {
    async fn transact(&mut self, plan: &Plan) -> Result<(), Trouble> {
        let mut tx = self.0.transaction().await?;
        for step in &plan.steps {
            if step.savepoint == Savepoint::None {
                emit(&mut tx, step).await?;
                continue;
            }
            let mut savepoint = tx.savepoint("step").await?;
            emit(&mut savepoint, step).await?;
            if step.savepoint == Savepoint::Kept {
                savepoint.commit().await?;
            } else {
                savepoint.rollback().await?;
            }
        }
        plan.hold.pass().await;
        if plan.rolls_back {
            tx.rollback().await?;
        } else {
            tx.commit().await?;
        }
        Ok(())
    }
}

async fn emit(tx: &mut Transaction<'_>, step: &Step) -> Result<(), Trouble> {
    let events = i64::from(step.events);
    let first = if step.key.starts_with(LOOSE) {
        let row = tx
            .query_one("select nextval('loose_transactions')", &[])
            .await?;
        row.get::<_, i64>(0) * i64::try_from(LOOSE_EVENTS_MAX)?
    } else {
        // The row lock comes first: it is what order is promised for.
        let params: [(&(dyn ToSql + Sync), Type); 2] =
            [(&step.key, Type::TEXT), (&events, Type::INT8)];
        let rows = tx.query_typed(LOCK, &params).await?;
        rows[0].get::<_, i64>(0) - events + 1
    };
    let numbers: Vec<i64> = (first..first + events).collect();
    let ids = emit_numbered(tx, step, &numbers).await?;
    tx.execute_typed(
        "insert into facts select $1, n, id from unnest($2, $3) f (n, id)",
        &[
            (&step.key, Type::TEXT),
            (&numbers, Type::INT8_ARRAY),
            (&ids, Type::UUID_ARRAY),
        ],
    )
    .await?;
    Ok(())
}

#[async_trait]
impl Crashing for (&PostgresServer, &Postgres) {
    /// The numbers of transactions; those of the outbox are drawn besides.
    async fn draw(&self) -> (u64, Box<dyn Any + Send>) {
        let client = self.1.client().await.unwrap();
        let mut writer = self.1.writer().await.unwrap();
        for _ in 0..5 {
            // More draws than PostgreSQL logs ahead.
            let plan = Plan {
                rolls_back: true,
                ..Plan::of("aborted", 100)
            };
            writer.transact(&plan).await.unwrap();
            client
                .batch_execute("begin; select pg_current_xact_id(); rollback")
                .await
                .unwrap();
        }
        let next: i64 = client.query_one(NEXT, &[]).await.unwrap().get(0);
        (next.try_into().unwrap(), Box::new(()))
    }

    fn crash(&self) {
        self.0.crash();
    }

    fn start_again(&self) {
        self.0.start_again();
    }

    fn next(&self) -> u64 {
        self.1.number(NEXT)
    }
}
