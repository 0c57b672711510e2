//! The commands, one file each.

mod check;
mod dead;
mod demo;
mod destination;
mod health;
mod init;
mod purge;
mod relay;
mod relays;
mod shell;
mod status;
mod version;

use std::path::PathBuf;

use clap::{Args, Subcommand};
use posthaste_engine::Store;

use crate::{
    config,
    failure::{Failure, Status},
    open, plug_ins,
    secret::SecretUrl,
};

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Create or migrate the outbox in a database, and grant rights
    Init(init::Init),
    /// Deliver events until told to stop
    Relay(Box<relay::Relay>),
    /// Look whether store and destinations can be used, and show what is seen of them
    Check(check::Check),
    /// Show the relays, the partitions of each, and the last hand-overs
    Relays(relays::RelaysArgs),
    /// Show how many events wait, where, and since when
    Status(status::StatusArgs),
    /// List events that their destination refused, and decide on them
    Dead(dead::Dead),
    /// List, pause, resume and remove destinations
    Destination(destination::DestinationArgs),
    /// Remove events that have passed their time, and show what pins the rest
    Purge(purge::PurgeArgs),
    /// Run a demonstration: a small shop, an outage, and the proof that nothing was lost
    Demo(demo::Demo),
    /// Ask a relay that listens with --http whether it makes progress, for probes
    Health(health::Health),
    /// Print a script that lets a shell complete commands and options
    Completions(shell::Completions),
    /// Print or write manual pages
    Man(shell::Man),
    /// Print version, commit, stores and sinks of this build
    Version(version::Version),
}

/// The store to read from and the destination to deliver to.
#[derive(Debug, Args)]
struct Addresses {
    #[arg(
        long, value_name = "URL", visible_alias = "store",
        help = plug_ins::store_help(config::FROM)
    )]
    from: Option<SecretUrl>,
    #[arg(long, value_name = "URL", help = plug_ins::sink_help(config::TO))]
    to: Option<SecretUrl>,
}

/// Which store a command works on, and how it answers.
#[derive(Debug, Args)]
pub(crate) struct StoreArgs {
    #[arg(
        long, value_name = "URL", global = true, visible_alias = "from",
        help = plug_ins::store_help(config::FROM)
    )]
    store: Option<SecretUrl>,
    /// A configuration file that names the store
    #[arg(long, value_name = "FILE", global = true)]
    config: Option<PathBuf>,
    /// Answer with JSON
    #[arg(long, global = true)]
    json: bool,
}

impl StoreArgs {
    fn url(&self) -> Result<SecretUrl, Failure> {
        Ok(config::store_url(
            self.store.clone(),
            self.config.as_deref(),
            "--store",
        )?)
    }

    /// Opens the store, looks whether its schema is one that this build honours, and closes it
    /// after the work.
    async fn with_store<T>(
        &self,
        work: impl AsyncFnOnce(&dyn Store) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let store = open::bounded_store(&self.url()?)?;
        let done = async {
            store.check().await?;
            work(&*store).await
        }
        .await;
        store.close().await;
        done
    }
}

impl Command {
    pub(crate) async fn run(self) -> Result<Status, Failure> {
        match self {
            Self::Init(command) => command.run().await,
            Self::Relay(command) => command.run().await,
            Self::Check(command) => command.run().await,
            Self::Relays(command) => command.run().await,
            Self::Status(command) => command.run().await,
            Self::Dead(command) => command.run().await,
            Self::Destination(command) => command.run().await,
            Self::Purge(command) => command.run().await,
            Self::Demo(command) => command.run().await,
            Self::Health(command) => command.run().await,
            Self::Completions(command) => command.run(),
            Self::Man(command) => command.run(),
            Self::Version(command) => command.run(),
        }
    }
}
