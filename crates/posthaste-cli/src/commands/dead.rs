//! `posthaste dead`: events that their destination refused, and the keys that wait behind them.

mod view;

use clap::{Args, Subcommand};
use posthaste_engine::{DeadAction, ParkedFilter, ParkedState, Store};
use serde_json::json;
use uuid::Uuid;

use super::StoreArgs;
use crate::{
    failure::{Failure, Status},
    output,
};

#[derive(Debug, Args)]
pub(crate) struct Dead {
    #[command(subcommand)]
    what: What,
    #[command(flatten)]
    store: StoreArgs,
}

#[derive(Debug, Subcommand)]
enum What {
    /// List events that wait for another attempt or for a decision
    List {
        #[command(flatten)]
        which: Which,
        /// Only events in this state: parked, dead, skipped, discarded, delivered
        #[arg(long, value_name = "STATE", value_parser = state)]
        state: Option<ParkedState>,
        /// How many events at most
        #[arg(long, value_name = "N", default_value_t = 100, value_parser = limit)]
        limit: usize,
    },
    /// Show one event completely, with its payload
    Show {
        /// The event's id
        id: Uuid,
        /// At this destination only
        #[arg(long, value_name = "NAME")]
        destination: Option<String>,
    },
    /// Try the event again now; the key stays blocked until it succeeds
    Retry {
        #[command(flatten)]
        which: Which,
        /// Send skipped events after all, behind the later events of their key
        #[arg(long)]
        skipped: bool,
    },
    /// Release the key; the event is kept as skipped, and can still be retried
    Skip(GiveUp),
    /// Release the key, and erase the payload: nothing undoes that
    Discard {
        #[command(flatten)]
        what: GiveUp,
        /// Erase the payloads of skipped events
        #[arg(long)]
        skipped: bool,
    },
}

#[derive(Debug, Args)]
struct GiveUp {
    #[command(flatten)]
    which: Which,
    /// Give up all events, where neither an id nor a key is named
    #[arg(long)]
    yes: bool,
}

/// Which events are meant: those that match all given options.
#[derive(Debug, Args)]
struct Which {
    /// The event with this id
    #[arg(long, value_name = "UUID")]
    id: Option<Uuid>,
    /// Events with this key
    #[arg(long, value_name = "KEY")]
    key: Option<String>,
    /// Events at this destination
    #[arg(long, value_name = "NAME")]
    destination: Option<String>,
    /// All events
    #[arg(long, conflicts_with_all = ["id", "key"])]
    all: bool,
}

impl Which {
    fn filter(&self, state: Option<ParkedState>) -> ParkedFilter {
        ParkedFilter {
            destination: self.destination.clone(),
            id: self.id,
            key: self.key.clone(),
            state,
        }
    }

    /// A decision on all events needs an explicit option.
    fn demand_a_choice(&self, action: DeadAction) -> Result<(), Failure> {
        if self.id.is_none() && self.key.is_none() && self.destination.is_none() && !self.all {
            return Err(Failure::usage(format!(
                "`dead {}` needs to know which events\nfix: give --id UUID, --key KEY, \
                 --destination NAME or --all; `posthaste dead list` shows them",
                action.as_str()
            )));
        }
        Ok(())
    }
}

fn state(name: &str) -> Result<ParkedState, String> {
    ParkedState::from_name(name)
        .ok_or_else(|| "write parked, dead, skipped, discarded or delivered".to_owned())
}

/// The state that `--skipped` names.
fn only(skipped: bool) -> Option<ParkedState> {
    skipped.then_some(ParkedState::Skipped)
}

fn limit(text: &str) -> Result<usize, String> {
    text.parse()
        .ok()
        .filter(|&limit| limit > 0)
        .ok_or_else(|| "write a number from 1".to_owned())
}

impl Dead {
    pub(crate) async fn run(self) -> Result<Status, Failure> {
        let json = self.store.json;
        let answer = async |store: &dyn Store| match &self.what {
            What::List {
                which,
                state,
                limit,
            } => list(store, &which.filter(*state), *limit, json).await,
            What::Show { id, destination } => show(store, *id, destination.clone(), json).await,
            What::Retry { which, skipped } => {
                act(
                    store,
                    &which.filter(only(*skipped)),
                    DeadAction::Retry,
                    json,
                )
                .await
            }
            What::Skip(what) => what.give_up(store, DeadAction::Skip, None, json).await,
            What::Discard { what, skipped } => {
                what.give_up(store, DeadAction::Discard, only(*skipped), json)
                    .await
            }
        };
        if let Some((which, action)) = self.what.acts() {
            which.demand_a_choice(action)?;
        }
        self.store.with_store(answer).await
    }
}

impl What {
    fn acts(&self) -> Option<(&Which, DeadAction)> {
        match self {
            Self::List { .. } | Self::Show { .. } => None,
            Self::Retry { which, .. } => Some((which, DeadAction::Retry)),
            Self::Skip(what) => Some((&what.which, DeadAction::Skip)),
            Self::Discard { what, .. } => Some((&what.which, DeadAction::Discard)),
        }
    }
}

impl GiveUp {
    async fn give_up(
        &self,
        store: &dyn Store,
        action: DeadAction,
        state: Option<ParkedState>,
        json: bool,
    ) -> Result<Status, Failure> {
        let filter = self.which.filter(state);
        if !self.yes && filter.id.is_none() && filter.key.is_none() {
            match filter.means_skipped(action) {
                true => refuse_to_erase(store, &filter).await?,
                false => self.refuse_without_yes(store, action).await?,
            }
        }
        act(store, &filter, action, json).await
    }

    /// Says how many events would be given up, and whether that can be undone.
    async fn refuse_without_yes(
        &self,
        store: &dyn Store,
        action: DeadAction,
    ) -> Result<(), Failure> {
        let all = store.status().await?.destinations;
        let name = self.which.destination.as_deref();
        let meant = all
            .iter()
            .filter(|d| name.is_none_or(|name| d.name == name));
        let waiting: Vec<_> = meant.filter(|d| d.parked + d.dead > 0).collect();
        if waiting.is_empty() {
            return Err(nothing("no parked or dead event matches"));
        }
        let events = waiting.iter().map(|d| d.parked + d.dead).sum();
        let names: Vec<_> = waiting.iter().map(|d| format!("`{}`", d.name)).collect();
        let undone = match action {
            DeadAction::Discard => "their payloads are erased, and nothing undoes that",
            _ => {
                "they are kept for 30 days, and `dead retry --skipped` sends them after all, \
                 behind the later events of their keys"
            }
        };
        Err(Failure::usage(format!(
            "`dead {}` would give up at most {}, at {}: {undone}; nothing was changed\nfix: give \
             --yes to confirm, or name fewer by --id UUID or --key KEY; `posthaste dead list` \
             shows them",
            action.as_str(),
            output::count(events, "event"),
            names.join(", "),
        )))
    }
}

async fn refuse_to_erase(store: &dyn Store, filter: &ParkedFilter) -> Result<(), Failure> {
    if store.parked(filter, 1).await?.is_empty() {
        return Err(none_skipped());
    }
    Err(Failure::usage(
        "`dead discard --skipped` would erase the payloads of all skipped events that match, and \
         nothing undoes that; nothing was changed\nfix: give --yes to confirm, or name fewer by \
         --id UUID or --key KEY; `posthaste dead list --state skipped` shows them",
    ))
}

async fn list(
    store: &dyn Store,
    filter: &ParkedFilter,
    limit: usize,
    json: bool,
) -> Result<Status, Failure> {
    // One more than asked for, to know whether something was left off.
    let mut parked = store.parked(filter, limit.saturating_add(1)).await?;
    let more = parked.len() > limit;
    parked.truncate(limit);
    if json {
        let events: Vec<_> = parked.iter().map(view::summary).collect();
        output::print_json(&json!({ "events": events, "more": more }))?;
        return Ok(Status::Done);
    }
    if parked.is_empty() {
        output::print(match filter.state {
            None => "No event is parked or dead.\n",
            Some(_) => "No such event.\n",
        })?;
        return Ok(Status::Done);
    }
    let colours = output::colours();
    for one in &parked {
        output::print(&view::entry(one, colours))?;
    }
    output::print(
        "`posthaste dead show ID` shows all of an event; `dead retry`, `dead skip` and\n\
         `dead discard` decide on the events of an --id or a --key.\n",
    )?;
    if more {
        output::print(&format!(
            "… and more; --limit {} shows more of them\n",
            limit * 10
        ))?;
    }
    Ok(Status::Done)
}

async fn show(
    store: &dyn Store,
    id: Uuid,
    destination: Option<String>,
    json: bool,
) -> Result<Status, Failure> {
    let mut found = Vec::new();
    // Without a state a filter means those that still wait; a shown event may be in any.
    for state in [
        ParkedState::Parked,
        ParkedState::Dead,
        ParkedState::Skipped,
        ParkedState::Discarded,
        ParkedState::Delivered,
    ] {
        let filter = ParkedFilter {
            id: Some(id),
            destination: destination.clone(),
            state: Some(state),
            ..ParkedFilter::default()
        };
        found.extend(store.parked(&filter, usize::from(u16::MAX)).await?);
    }
    if found.is_empty() {
        return Err(Failure::failed(
            "no event with this id was refused\nfix: `posthaste dead list` shows those that were",
        ));
    }
    if json {
        let events: Vec<_> = found.iter().map(view::whole).collect();
        output::print_json(&json!({ "events": events }))?;
    } else {
        for one in &found {
            output::print(&view::report(one, output::colours()))?;
        }
    }
    Ok(Status::Done)
}

async fn act(
    store: &dyn Store,
    filter: &ParkedFilter,
    action: DeadAction,
    json: bool,
) -> Result<Status, Failure> {
    let events = store.act(filter, action).await?;
    if json {
        output::print_json(&json!({ "action": action.as_str(), "events": events }))?;
        return Ok(if events == 0 {
            Status::Failure
        } else {
            Status::Done
        });
    }
    if events == 0 {
        return Err(match (filter.means_skipped(action), action) {
            (true, DeadAction::Retry) => none_to_undo(store, filter).await?,
            (true, _) => none_skipped(),
            (false, _) => nothing("no parked or dead event matches"),
        });
    }
    let said = match action {
        DeadAction::Retry if filter.means_skipped(action) => {
            "tried again at once by a running relay, behind the later events of its key; no key \
             waits for it"
        }
        DeadAction::Retry => {
            "tried again at once by a running relay; each key that waits for its event stays \
             blocked until the event is accepted"
        }
        DeadAction::Skip => {
            "skipped and kept for 30 days (`dead retry --skipped` sends it after all); each key \
             goes on with its next event"
        }
        DeadAction::Discard if filter.means_skipped(action) => "discarded, the payload erased",
        DeadAction::Discard => {
            "discarded, the payload erased; each key goes on with its next event"
        }
    };
    let verb = if action == DeadAction::Retry {
        "will be "
    } else {
        ""
    };
    output::print(&format!(
        "{}: {verb}{said}.\n",
        output::count(events, "event")
    ))?;
    Ok(Status::Done)
}

/// Why no skipped event is tried again.
async fn none_to_undo(store: &dyn Store, filter: &ParkedFilter) -> Result<Failure, Failure> {
    let skipped = store.parked(filter, 1).await?;
    let Some(one) = skipped.first() else {
        return Ok(none_skipped());
    };
    let known = store.status().await?.destinations;
    let name = &one.destination;
    if known.iter().any(|d| d.name == *name) {
        return Ok(Failure::failed(
            "no skipped event can be tried again; nothing was changed\nfix: where its key is \
             blocked, decide on the event that holds it (`posthaste dead list`)",
        ));
    }
    Ok(Failure::failed(format!(
        "destination `{name}` was removed; nothing was changed\nfix: start a relay that names \
         `{name}` again, then try this again"
    )))
}

fn none_skipped() -> Failure {
    Failure::failed(
        "no skipped event matches; nothing was changed\nfix: `posthaste dead list --state skipped` \
         shows the skipped events",
    )
}

fn nothing(what: &str) -> Failure {
    Failure::failed(format!(
        "{what}; nothing was changed\nfix: `posthaste dead list` shows the parked and dead events"
    ))
}
