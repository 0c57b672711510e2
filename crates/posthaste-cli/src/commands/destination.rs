//! `posthaste destination`: list, pause, resume, remove.

use clap::{Args, Subcommand};
use posthaste_engine::{DestinationState, Store, shown};
use serde_json::json;

use super::{StoreArgs, status};
use crate::{
    failure::{Failure, Status},
    output,
};

/// Longer than the names of any broker's topics.
const PLACE_BYTES_MAX: usize = 1_024;

#[derive(Debug, Args)]
pub(crate) struct DestinationArgs {
    #[command(subcommand)]
    what: What,
    #[command(flatten)]
    store: StoreArgs,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Show all destinations
    List,
    /// Deliver nothing until resumed; events wait and are kept
    Pause {
        /// The destination's name
        name: String,
        /// Pause this topic alone, or this partition of one as `topic/3`
        #[arg(long)]
        place: Option<String>,
    },
    /// Deliver again, from the stored cursor on
    Resume {
        /// The destination's name
        name: String,
        /// Resume this topic or partition, which was paused by itself
        #[arg(long)]
        place: Option<String>,
    },
    /// Remove a destination and its progress; it pins no events any more
    Remove {
        /// The destination's name
        name: String,
        /// Remove it also with pending or parked events, and give them up
        #[arg(long)]
        yes: bool,
    },
}

impl DestinationArgs {
    pub(crate) async fn run(self) -> Result<Status, Failure> {
        self.store
            .with_store(async |store| self.on(store).await)
            .await
    }

    async fn on(&self, store: &dyn Store) -> Result<Status, Failure> {
        let (name, state, said) = match &self.what {
            What::List => return list(store, self.store.json).await,
            What::Pause {
                name,
                place: Some(place),
            } => return self.set_place(store, name, place, true).await,
            What::Resume {
                name,
                place: Some(place),
            } => return self.set_place(store, name, place, false).await,
            What::Pause { name, .. } => (
                name,
                DestinationState::Paused,
                "is paused: its events wait, also across restarts, and are kept",
            ),
            What::Resume { name, .. } => (
                name,
                DestinationState::Active,
                "is active: delivery goes on from the stored cursor",
            ),
            What::Remove { name, yes } => {
                if !yes {
                    refuse_to_give_up(store, name).await?;
                }
                (
                    name,
                    DestinationState::Removed,
                    "is removed; a relay that names it again makes a new destination, from its \
                     --start (by default the oldest event that is still kept)",
                )
            }
        };
        if !store.set_destination(name, state).await? {
            return Err(unknown(store, name).await?);
        }
        if self.store.json {
            output::print_json(&json!({ "name": name, "state": state.as_str() }))?;
            return Ok(Status::Done);
        }
        output::print(&format!("Destination `{name}` {said}.\n"))?;
        if state == DestinationState::Paused
            && let Some(relay) = serving(store, name).await?
        {
            output::print(&format!(
                "Pausing: relay `{relay}`, and any other that serves it, stops within a third of\n\
                 its lease (5 s by default), and says so in its log.\n"
            ))?;
        }
        Ok(Status::Done)
    }

    async fn set_place(
        &self,
        store: &dyn Store,
        name: &str,
        place: &str,
        paused: bool,
    ) -> Result<Status, Failure> {
        if place.is_empty() {
            return Err(Failure::usage(
                "a place has a name; nothing was changed\nfix: name a topic, or a partition as \
                 `topic/3`, after --place",
            ));
        }
        if paused && place.len() > PLACE_BYTES_MAX {
            return Err(Failure::usage(format!(
                "a place's name has at most {PLACE_BYTES_MAX} bytes, and this one has {}; nothing \
                 was changed\nfix: name a topic, or a partition as `topic/3`, as `posthaste \
                 status` does",
                place.len()
            )));
        }
        if !store.set_place(name, place, paused).await? {
            return Err(unknown(store, name).await?);
        }
        if self.store.json {
            let json = json!({ "name": name, "place": place, "paused": paused });
            output::print_json(&json)?;
            return Ok(Status::Done);
        }
        let said = match paused {
            true => {
                "is paused:\nits events wait and are kept, and so do all events of their keys. \
                 Relays learn\nit within a third of their lease (5 s by default). A name that no \
                 event goes to\nholds up nothing: `posthaste status` tells how many wait."
            }
            false => {
                "is not paused:\nits events go on in their order. Relays learn it within a third \
                 of their lease\n(5 s by default)."
            }
        };
        let place = place.escape_debug();
        output::print(&format!("Place `{place}` of destination `{name}` {said}\n"))?;
        Ok(Status::Done)
    }
}

/// No destination has this name.
async fn unknown(store: &dyn Store, name: &str) -> Result<Failure, Failure> {
    let known = store.status().await?.destinations;
    let names: Vec<_> = known.iter().map(|known| known.name.as_str()).collect();
    let fix = match names.is_empty() {
        true => "a relay makes a destination when it first runs; there is none yet".to_owned(),
        false => format!("name one of {}", names.join(", ")),
    };
    let name = shown(name);
    Ok(Failure::failed(format!(
        "there is no destination `{name}`; nothing was changed\nfix: {fix}"
    )))
}

/// Says which events a removal would give up, and how many of them can still be sent.
async fn refuse_to_give_up(store: &dyn Store, name: &str) -> Result<(), Failure> {
    let status = store.status().await?;
    let Some(known) = status.destinations.iter().find(|known| known.name == name) else {
        return Ok(());
    };
    let set_aside = known.parked + known.dead;
    if known.pending + set_aside == 0 {
        return Ok(());
    }
    Err(Failure::usage(format!(
        "removing destination `{name}` gives up its cursor: {} pending and {} parked or dead; \
         nothing was changed\nfix: start a relay that delivers them, or give --yes to confirm. \
         Events are kept for {}; while they are, a relay that names `{name}` again begins at the \
         oldest one and sends all of them, also delivered ones. Parked events that the outbox has \
         removed are kept for 30 days as skipped: `dead retry --skipped` sends them then",
        status::amount(known.pending, known.pending_exact),
        output::thousands(set_aside),
        output::short_duration(status.retained.configured_window),
    )))
}

/// A live relay that serves this destination.
async fn serving(store: &dyn Store, name: &str) -> Result<Option<String>, Failure> {
    let mut known = store.status().await?.destinations.into_iter();
    Ok(known
        .find(|known| known.name == name)
        .and_then(|known| known.relay))
}

async fn list(store: &dyn Store, json: bool) -> Result<Status, Failure> {
    let status = store.status().await?;
    if json {
        output::print_json(&json!({ "destinations": status::destinations_json(&status) }))?;
    } else if status.destinations.is_empty() {
        output::print(
            "No destination yet: `posthaste relay --from … --to …` makes the first one.\n",
        )?;
    } else {
        output::print(&status::destinations(&status.destinations).render(output::colours()))?;
    }
    Ok(Status::Done)
}
