//! `posthaste init`: creates or migrates the schema, grants least privilege, stores what all relays
//! share.

mod era;

use std::time::Duration;

use clap::Args;
use posthaste::schema::{self, Migration};
use posthaste_engine::RetentionMode;
use posthaste_stores::{postgres, sqlite};
use serde_json::json;

use super::{StoreArgs, relay::start_logging};
use crate::{
    config::{LogFormat, units},
    failure::{Failure, Status},
    open::StoreKind,
    output,
};

#[derive(Debug, Args)]
pub(crate) struct Init {
    #[command(flatten)]
    store: StoreArgs,
    /// A role that may write events, and nothing else (PostgreSQL)
    #[arg(long, value_name = "ROLE")]
    writer: Option<String>,
    /// A role that may run a relay and operators' commands (PostgreSQL)
    #[arg(long, value_name = "ROLE")]
    relay: Option<String>,
    /// Partitions of a destination: a power of two up to 4096; running relays follow a new number
    /// by themselves [default: 64]
    #[arg(long, value_name = "N")]
    partitions: Option<u16>,
    /// How long delivered events are kept, at most as long as three quarters of the ring last
    /// (PostgreSQL) [default: 24h]
    #[arg(long, value_name = "DURATION", value_parser = units::duration)]
    retention: Option<Duration>,
    /// How they are removed: `truncate` empties whole leaves; `delete` removes rows, which costs
    /// the server more and disturbs no reader of a hot standby (PostgreSQL) [default: truncate]
    #[arg(long, value_name = "truncate|delete", value_parser = retention_mode)]
    retention_mode: Option<RetentionMode>,
    /// Whether writers wake idle relays, which then find the first event after a pause without
    /// waiting for a poll (PostgreSQL; not through a transaction pooler) [default: on for a new
    /// outbox]
    #[arg(long, value_name = "on|off", value_parser = on_or_off)]
    notify: Option<bool>,
    /// Rows of one of the 16 leaves of the ring: a power of two, fixed by the first init
    /// (PostgreSQL) [default: 524288]
    #[arg(long, value_name = "N")]
    leaf_rows: Option<u64>,
    /// Begin a new era in a copied database (a restored dump, pg_upgrade, a template): shows which
    /// events would be pending and sent again, and changes nothing without --yes (PostgreSQL)
    #[arg(long, conflicts_with = "sql")]
    new_era: bool,
    /// Begin the new era now
    #[arg(long, requires = "new_era")]
    yes: bool,
    /// Print the SQL instead of running it, for your own migration tool
    #[arg(long)]
    sql: bool,
}

fn on_or_off(value: &str) -> Result<bool, &'static str> {
    match value {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => Err("`on` or `off` is needed"),
    }
}

fn retention_mode(value: &str) -> Result<RetentionMode, &'static str> {
    RetentionMode::from_name(value).ok_or("`truncate` or `delete` is needed")
}

/// The changes, in words that both kinds of store share.
struct Done {
    applied: Vec<u32>,
    version: u32,
    granted: Vec<String>,
    new_era: Option<postgres::NewEra>,
}

/// The result of an `init` that went well.
fn newest(migrations: &[Migration]) -> u32 {
    migrations.last().map_or(0, |last| last.version)
}

impl Init {
    pub(crate) async fn run(self) -> Result<Status, Failure> {
        let url = self.store.url()?;
        let kind = StoreKind::of(&url)?;
        if kind == StoreKind::Sqlite {
            self.refuse_postgres_options()?;
        }
        if self.sql {
            output::print(&match kind {
                StoreKind::Postgres => postgres::sql(&self.postgres_options())?,
                StoreKind::Sqlite => sqlite::sql(self.sqlite_options())?,
            })?;
            return Ok(Status::Done);
        }
        if self.new_era && !self.yes {
            return era::tell_plan(url, self.store.json).await;
        }
        let done = match kind {
            StoreKind::Postgres => {
                // It may have to wait for a lock, and says for whose.
                start_logging(LogFormat::Text, "warn")?;
                let done = postgres::init(url.expose(), &self.postgres_options()).await?;
                let version = newest(schema::postgres());
                Done {
                    applied: done.applied,
                    version,
                    granted: self.granted(),
                    new_era: done.new_era,
                }
            }
            StoreKind::Sqlite => {
                let done = sqlite::init(url.expose(), self.sqlite_options()).await?;
                Done {
                    applied: done.applied,
                    version: done.version,
                    granted: Vec::new(),
                    new_era: None,
                }
            }
        };
        if self.store.json {
            output::print_json(&json!({
                "version": done.version,
                "applied": done.applied,
                "granted": done.granted,
                "new_era": done.new_era.as_ref().map(era::as_json),
            }))?;
        } else {
            output::print(&self.report(&url.to_string(), &done))?;
        }
        Ok(Status::Done)
    }

    fn refuse_postgres_options(&self) -> Result<(), Failure> {
        for (flag, given) in [
            ("--writer", self.writer.is_some()),
            ("--relay", self.relay.is_some()),
            ("--leaf-rows", self.leaf_rows.is_some()),
            ("--retention-mode", self.retention_mode.is_some()),
            ("--notify", self.notify.is_some()),
            ("--new-era", self.new_era),
        ] {
            if given {
                return Err(Failure::usage(format!(
                    "{flag} means nothing to SQLite, which has neither roles nor leaves nor notifications nor eras\nfix: leave it \
                     out; the rights are those of the file"
                )));
            }
        }
        Ok(())
    }

    fn postgres_options(&self) -> postgres::InitOptions {
        postgres::InitOptions {
            writer: self.writer.clone(),
            relay: self.relay.clone(),
            partitions: self.partitions,
            retention: self.retention,
            retention_mode: self.retention_mode,
            notify: self.notify,
            leaf_rows: self.leaf_rows,
            new_era: self.new_era && self.yes,
        }
    }

    fn sqlite_options(&self) -> sqlite::InitOptions {
        sqlite::InitOptions {
            partitions: self.partitions,
            retention: self.retention,
        }
    }

    fn granted(&self) -> Vec<String> {
        self.writer.iter().chain(&self.relay).cloned().collect()
    }

    fn report(&self, url: &str, done: &Done) -> String {
        let version = done.version;
        let mut text = match done.applied.as_slice() {
            [] => format!("{url}: the outbox is there, at schema version {version}.\n"),
            [1, ..] => format!("{url}: outbox created, at schema version {version}.\n"),
            applied => {
                let numbers: Vec<_> = applied.iter().map(u32::to_string).collect();
                format!(
                    "{url}: outbox migrated to schema version {version} (applied {}).\n",
                    numbers.join(", ")
                )
            }
        };
        match &done.new_era {
            Some(begun) => text.push_str(&era::begun(begun)),
            None if self.new_era => text.push_str(era::NO_COPY),
            None => {}
        }
        if let Some(writer) = &self.writer {
            text.push_str(&format!(
                "Role `{writer}` may write events, and nothing else.\n"
            ));
        }
        if let Some(relay) = &self.relay {
            text.push_str(&format!(
                "Role `{relay}` may run a relay and operators' commands.\n"
            ));
        }
        if let Some(partitions) = self.partitions {
            text.push_str(&format!(
                "Destinations have {partitions} partitions; those with another number are brought to it \
                 by their relays.\n"
            ));
        }
        if let Some(retention) = self.retention {
            let kept = output::short_duration(retention);
            text.push_str(&format!("Delivered events are kept for {kept}.\n"));
        }
        match self.retention_mode {
            None => {}
            Some(RetentionMode::Truncate) => {
                text.push_str("They are removed a leaf of the ring at a time.\n");
            }
            Some(RetentionMode::Delete) => {
                text.push_str("They are removed in small deletes alone.\n")
            }
        }
        text
    }
}
