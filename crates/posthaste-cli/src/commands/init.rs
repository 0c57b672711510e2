//! `posthaste init`: creates or migrates the schema, grants least privilege, stores what all relays
//! share.

mod era;

use std::time::Duration;

use clap::Args;
use posthaste_engine::RetentionMode;
use posthaste_stores::{InitOption, InitOptions, Initialised, STORES, StoreDescriptor};
use serde_json::json;

use super::StoreArgs;
use crate::{
    config::{LogFormat, units},
    failure::{Failure, Status},
    logging::start_logging,
    open, output,
};

#[derive(Debug, Args)]
pub(crate) struct Init {
    #[command(flatten)]
    store: StoreArgs,
    #[arg(long, value_name = "ROLE", help = help(
        InitOption::Writer,
        "A role that may write events, and nothing else"
    ))]
    writer: Option<String>,
    #[arg(long, value_name = "ROLE", help = help(
        InitOption::Relay,
        "A role that may run a relay and operators' commands"
    ))]
    relay: Option<String>,
    /// Partitions of a destination: a power of two up to 4096; running relays follow a new number
    /// by themselves [default: 64]
    #[arg(long, value_name = "N")]
    partitions: Option<u16>,
    /// How long delivered events are kept, at most as long as three quarters of the ring last
    /// (PostgreSQL) [default: 24h]
    #[arg(long, value_name = "DURATION", value_parser = units::duration)]
    retention: Option<Duration>,
    #[arg(long, value_name = "truncate|delete", value_parser = retention_mode, help = help(
        InitOption::RetentionMode,
        "How they are removed: `truncate` empties whole leaves; `delete` removes rows, which costs \
         the server more and disturbs no reader of a hot standby [default: truncate]"
    ))]
    retention_mode: Option<RetentionMode>,
    #[arg(long, value_name = "on|off", value_parser = on_or_off, help = help(
        InitOption::Notify,
        "Whether writers wake idle relays, which then find the first event after a pause without \
         waiting for a poll; not through a transaction pooler [default: on for a new outbox]"
    ))]
    notify: Option<bool>,
    #[arg(long, value_name = "N", help = help(
        InitOption::LeafRows,
        "Rows of one of the 16 leaves of the ring: a power of two, fixed by the first init \
         [default: 524288]"
    ))]
    leaf_rows: Option<u64>,
    #[arg(long, conflicts_with = "sql", help = help(
        InitOption::NewEra,
        "Begin a new era in a copied database (a restored dump, pg_upgrade, a template): shows \
         which events would be pending and sent again, and changes nothing without --yes"
    ))]
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

/// The stores that take an option of `init`, behind what it means.
fn help(option: InitOption, meaning: &str) -> String {
    let takes = |store: &&StoreDescriptor| store.init_options.contains(&option);
    let titles: Vec<_> = STORES
        .iter()
        .filter(takes)
        .map(|store| store.plug_in.title)
        .collect();
    let titles = titles.join(", ");
    match meaning.split_once(" [") {
        Some((meaning, default)) => format!("{meaning} ({titles}) [{default}"),
        None => format!("{meaning} ({titles})"),
    }
}

impl Init {
    pub(crate) async fn run(self) -> Result<Status, Failure> {
        let url = self.store.url()?;
        let kind = open::store_kind(&url)?;
        self.refuse_options_of_others(kind)?;
        if self.sql {
            output::print(&kind.init_sql(&self.options())?)?;
            return Ok(Status::Done);
        }
        if self.new_era && !self.yes {
            return era::tell_plan(kind, url, self.store.json).await;
        }
        // It may have to wait for a lock, and says for whose.
        start_logging(LogFormat::Text, "warn")?;
        let done = kind.init(url.expose(), &self.options()).await?;
        if self.store.json {
            output::print_json(&json!({
                "version": done.version,
                "applied": done.applied,
                "granted": self.granted(),
                "new_era": done.new_era.as_ref().map(era::as_json),
            }))?;
        } else {
            output::print(&self.report(&url.to_string(), &done))?;
        }
        Ok(Status::Done)
    }

    fn refuse_options_of_others(&self, kind: &StoreDescriptor) -> Result<(), Failure> {
        for (option, flag, given) in [
            (InitOption::Writer, "--writer", self.writer.is_some()),
            (InitOption::Relay, "--relay", self.relay.is_some()),
            (
                InitOption::LeafRows,
                "--leaf-rows",
                self.leaf_rows.is_some(),
            ),
            (
                InitOption::RetentionMode,
                "--retention-mode",
                self.retention_mode.is_some(),
            ),
            (InitOption::Notify, "--notify", self.notify.is_some()),
            (InitOption::NewEra, "--new-era", self.new_era),
        ] {
            if given && !kind.init_options.contains(&option) {
                return Err(Failure::usage(format!(
                    "{flag} means nothing to {}, which {}\nfix: leave it out",
                    kind.plug_in.title, kind.init_lacks
                )));
            }
        }
        Ok(())
    }

    fn options(&self) -> InitOptions {
        InitOptions {
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

    fn granted(&self) -> Vec<String> {
        self.writer.iter().chain(&self.relay).cloned().collect()
    }

    fn report(&self, url: &str, done: &Initialised) -> String {
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
                "A destination has {partitions} partitions; running relays bring existing \
                 destinations to that number.\n"
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
