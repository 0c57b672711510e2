//! `posthaste version`: of which source and with which plug-ins the program was built.

use clap::Args;
use posthaste_sinks::SINKS;
use posthaste_stores::STORES;
use serde_json::{Map, Value, json};

use crate::{
    failure::{Failure, Status},
    output,
};

/// The build of a release names it; one from a package of the sources has none.
const COMMIT: Option<&str> = option_env!("POSTHASTE_COMMIT");

#[derive(Debug, Args)]
pub(crate) struct Version {
    /// Answer with JSON
    #[arg(long)]
    json: bool,
}

impl Version {
    pub(crate) fn run(&self) -> Result<Status, Failure> {
        let version = env!("CARGO_PKG_VERSION");
        let stores = || STORES.iter().filter(|store| store.is_built());
        let sinks = SINKS.iter().filter(|sink| sink.is_built());
        let stored: Vec<_> = stores().map(|store| store.plug_in.name).collect();
        let sunk: Vec<_> = sinks.map(|sink| sink.plug_in.name).collect();
        if self.json {
            let schemas: Map<String, Value> = stores()
                .map(|store| (store.plug_in.name.to_owned(), json!(store.schema_version())))
                .collect();
            output::print_json(&json!({
                "version": version,
                "commit": COMMIT,
                "stores": stored,
                "sinks": sunk,
                "schema": schemas,
            }))?;
        } else {
            let schemas: Vec<_> = stores()
                .map(|store| {
                    let schema = store.schema_version().unwrap_or_default();
                    format!("{} (schema {schema})", store.plug_in.name)
                })
                .collect();
            let commit = COMMIT.unwrap_or("unknown");
            output::print(&format!(
                "posthaste {version}\ncommit: {commit}\nstores: {}\nsinks:  {}\n",
                schemas.join(", "),
                sunk.join(", ")
            ))?;
        }
        Ok(Status::Done)
    }
}
