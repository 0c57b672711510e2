//! The server, an outbox on it, and the relay as the process that users run.

use std::{process::Command, time::Duration};

use anyhow::{Context, Result, ensure};
use posthaste_testkit::{
    process::{self, Finished, Running},
    servers::postgres::{Database, PostgresServer},
};
use tokio_postgres::{Client, NoTls};

/// Far more than anything here takes on any machine that is worth measuring on.
pub(crate) const LIMIT: Duration = Duration::from_secs(1_800);

/// A fresh server with `posthaste init`'s schema in a database of its own.
#[derive(Debug)]
pub(crate) struct Outbox {
    pub(crate) database: Database,
    pub(crate) server: PostgresServer,
}

impl Outbox {
    pub(crate) async fn start() -> Result<Self> {
        Self::start_with(&[]).await
    }

    /// With further settings of the server.
    pub(crate) async fn start_with(settings: &[(&str, &str)]) -> Result<Self> {
        let server = PostgresServer::builder()
            .setting("fsync", "on")
            .setting("shared_buffers", "1GB")
            .setting("shared_preload_libraries", "pg_stat_statements")
            // For 500 transactions in progress.
            .setting("max_connections", "700")
            // No round is to pay for a checkpoint that another one has caused.
            .setting("max_wal_size", "16GB")
            .setting("checkpoint_timeout", "1d");
        let server = settings
            .iter()
            .fold(server, |server, (name, value)| server.setting(name, value))
            .start();
        let database = server.create_database();
        let outbox = Self { database, server };
        outbox.init(&[]);
        let client = outbox.connect().await?;
        client
            .batch_execute("create extension pg_stat_statements")
            .await?;
        let version: String = client
            .query_one("select version()", &[])
            .await?
            .try_get(0)?;
        println!("{version}");
        Ok(outbox)
    }

    /// `posthaste init`.
    pub(crate) fn init(&self, flags: &[&str]) {
        let mut init = posthaste();
        init.args(["init", "--store", &self.database.url()]);
        process::run(init.args(flags), LIMIT).expect_status(0);
    }

    pub(crate) async fn connect(&self) -> Result<Client> {
        connect(&self.database.url()).await
    }

    /// Commits events of 300 bytes with 10 000 keys, and leaves nothing for the server to tidy
    /// later.
    pub(crate) async fn fill(&self, events: u64) -> Result<()> {
        const CHUNK: u64 = 100_000;
        let client = self.connect().await?;
        let insert = client
            .prepare(
                "insert into posthaste.outbox (topic, key, type, content_type, payload)
                 select 'orders', 'order-' || n % 10000, 'OrderPlaced', 'application/json',
                     convert_to(
                         rpad('{\"order\":' || n || ',\"note\":\"', 298, 'x') || '\"}', 'UTF8')
                 from generate_series($1::bigint, $2::bigint) n",
            )
            .await?;
        let mut done = 0;
        while done < events {
            let upto = events.min(done + CHUNK);
            let range = [i64::try_from(done + 1)?, i64::try_from(upto)?];
            client.execute(&insert, &[&range[0], &range[1]]).await?;
            done = upto;
        }
        // One at a time: together they would be one transaction.
        for tidy in ["vacuum (analyze) posthaste.outbox", "checkpoint"] {
            client.batch_execute(tidy).await?;
        }
        Ok(())
    }

    /// `posthaste relay` from here to a sink.
    pub(crate) fn relay(&self, to: &str, flags: &[&str]) -> Command {
        let mut command = posthaste();
        command.args(["relay", "--from", &self.database.url(), "--to", to]);
        command.args(flags);
        command
    }

    /// Delivers everything that waits for the destination `default` into null.
    pub(crate) fn drain(&self) {
        finish(Running::start(
            &mut self.relay("null:", &["--until-drained"]),
        ));
    }

    /// A relay that has begun to deliver to the destination `default`, into null.
    pub(crate) fn start_relay(&self, flags: &[&str]) -> Running {
        let relay = Running::start(&mut self.relay("null:", flags));
        relay.wait_for_stderr("claimed", LIMIT);
        relay
    }
}

/// Asks a relay to end in order.
pub(crate) fn stop(relay: Running) {
    relay.terminate();
    finish(relay);
}

/// Waits for a relay's own end.
pub(crate) fn finish(relay: Running) -> Finished {
    relay.wait(LIMIT).expect_status(0)
}

pub(crate) async fn connect(url: &str) -> Result<Client> {
    let (client, connection) = tokio_postgres::connect(url, NoTls)
        .await
        .with_context(|| format!("connecting to {url}"))?;
    tokio::spawn(connection);
    // The relay's own sessions have these settings too: neither may save planning that the other
    // pays.
    client
        .batch_execute("set jit = off; set enable_seqscan = off")
        .await?;
    ensure!(!client.is_closed(), "the connection was closed");
    Ok(client)
}

pub(crate) fn posthaste() -> Command {
    Command::new(env!("CARGO_BIN_EXE_posthaste"))
}
