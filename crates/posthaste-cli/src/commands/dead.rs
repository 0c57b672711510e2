//! `posthaste dead`: events that their destination refused, and the keys that wait behind them.

use clap::{Args, Subcommand};
use posthaste_engine::{DeadAction, Field, ParkedEvent, ParkedFilter, ParkedState, Store};
use serde_json::{Value, json};
use uuid::Uuid;

use super::StoreArgs;
use crate::{
    failure::{Failure, Status},
    output::{self, Style},
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
    Discard(GiveUp),
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
                "`dead {}` needs to know which events\nfix: give --id UUID, --key KEY, --destination NAME \
                 or --all; `posthaste dead list` shows them",
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
                let filter = which.filter(skipped.then_some(ParkedState::Skipped));
                act(store, &filter, DeadAction::Retry, json).await
            }
            What::Skip(what) => what.give_up(store, DeadAction::Skip, json).await,
            What::Discard(what) => what.give_up(store, DeadAction::Discard, json).await,
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
            Self::Discard(what) => Some((&what.which, DeadAction::Discard)),
        }
    }
}

impl GiveUp {
    async fn give_up(
        &self,
        store: &dyn Store,
        action: DeadAction,
        json: bool,
    ) -> Result<Status, Failure> {
        let filter = self.which.filter(None);
        if !self.yes && filter.id.is_none() && filter.key.is_none() {
            self.refuse_without_yes(store, action).await?;
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
                "they are kept for 30 days, and `dead retry --skipped` sends them after all, behind \
                 the later events of their keys"
            }
        };
        Err(Failure::usage(format!(
            "`dead {}` would give up {}, at {}: {undone}; nothing was changed\nfix: give --yes to \
             confirm, or name fewer by --id UUID or --key KEY; `posthaste dead list` shows them",
            action.as_str(),
            output::count(events, "event"),
            names.join(", "),
        )))
    }
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
        let events: Vec<_> = parked.iter().map(summary).collect();
        output::print_json(&json!({ "events": events, "more": more }))?;
        return Ok(Status::Done);
    }
    if parked.is_empty() {
        output::print("No such event.\n")?;
        return Ok(Status::Done);
    }
    let colours = output::colours();
    for one in &parked {
        output::print(&entry(one, colours))?;
    }
    output::print("`posthaste dead show ID` shows all of an event.\n")?;
    if more {
        output::print(&format!(
            "… and more; --limit {} shows more of them\n",
            limit * 10
        ))?;
    }
    Ok(Status::Done)
}

/// The least width of a terminal.
const COLUMNS: usize = 80;

/// Three lines, since the id alone takes half of one.
fn entry(one: &ParkedEvent, colours: bool) -> String {
    let style = match one.state {
        ParkedState::Dead => Style::Bad,
        ParkedState::Parked => Style::Warn,
        _ => Style::Dim,
    };
    let attempts = output::count(one.attempts.into(), "attempt");
    let key = one
        .event
        .key()
        .map_or_else(String::new, |key| format!(", key {}", printable(key)));
    let place = format!(
        "  {}: topic {}{key}",
        one.destination,
        printable(one.event.topic())
    );
    let reason = format!("  {}: {}", one.kind, printable(&one.reason));
    format!(
        "{}  {}, {attempts}\n{}\n{}\n",
        output::paint(&one.event.id().to_string(), Style::Bold, colours),
        output::paint(one.state.as_str(), style, colours),
        output::cut(&place, COLUMNS),
        output::cut(&reason, COLUMNS),
    )
}

/// Keys and brokers' answers may hold control characters, which a terminal would follow.
fn printable(text: &str) -> String {
    text.chars()
        .flat_map(|c| {
            if c.is_control() {
                c.escape_default().collect::<Vec<_>>()
            } else {
                vec![c]
            }
        })
        .collect()
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
        let events: Vec<_> = found.iter().map(whole).collect();
        output::print_json(&json!({ "events": events }))?;
    } else {
        for one in &found {
            output::print(&report(one, output::colours()))?;
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
    if events == 0 && filter.means_skipped(action) {
        return Err(Failure::failed(
            "no skipped event matches whose key has gone on; nothing was changed\nfix: `posthaste \
             dead list --state skipped` shows the skipped events; a released key goes on once a relay \
             has delivered its waiting events",
        ));
    }
    if events == 0 {
        return Err(nothing("no parked or dead event matches"));
    }
    let said = match action {
        DeadAction::Retry if filter.means_skipped(action) => {
            "tried again at once by a running relay, behind the later events of its key, which goes \
             on meanwhile"
        }
        DeadAction::Retry => {
            "tried again at once by a running relay; each key that waits for its event stays \
             blocked until the event is accepted"
        }
        DeadAction::Skip => {
            "skipped and kept for 30 days (`dead retry --skipped` sends it after all); each key goes \
             on with its next event"
        }
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

fn nothing(what: &str) -> Failure {
    Failure::failed(format!(
        "{what}; nothing was changed\nfix: `posthaste dead list` shows the parked and dead events"
    ))
}

/// An event as a list shows it: no payload, no header values.
fn summary(one: &ParkedEvent) -> Value {
    json!({
        "id": one.event.id().to_string(),
        "destination": one.destination,
        "state": one.state.as_str(),
        "attempts": one.attempts,
        "kind": one.kind,
        "reason": one.reason,
        "parked_at": output::time(one.parked_at),
        "due_at": one.due_at.map(output::time),
        "topic": one.event.topic(),
        "key": one.event.key(),
        "type": one.event.text(Field::Type),
        "payload_bytes": one.event.payload().map(<[u8]>::len),
    })
}

const TEXTS: [(&str, Field); 6] = [
    ("content_type", Field::ContentType),
    ("correlation_id", Field::CorrelationId),
    ("causation_id", Field::CausationId),
    ("tenant_id", Field::TenantId),
    ("traceparent", Field::Traceparent),
    ("tracestate", Field::Tracestate),
];

fn whole(one: &ParkedEvent) -> Value {
    let mut value = summary(one);
    for (name, field) in TEXTS {
        value[name] = json!(one.event.text(field));
    }
    value["occurred_at"] = json!(output::time(one.event.occurred_at()));
    value["headers"] = one
        .event
        .headers()
        .map(|(name, value)| json!([name, value]))
        .collect();
    value["payload"] = Value::Null;
    if let Some(payload) = one.event.payload() {
        match std::str::from_utf8(payload) {
            Ok(text) => value["payload"] = json!(text),
            Err(_) => value["payload_hex"] = json!(hex(payload)),
        }
    }
    value
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Of a payload a person is shown so many characters.
const SHOWN: usize = 4_000;

fn report(one: &ParkedEvent, colours: bool) -> String {
    let mut text = String::new();
    let mut line = |name: &str, value: String| {
        let name = output::paint(&format!("{name:<15}"), Style::Dim, colours);
        text.push_str(&format!("{name} {value}\n"));
    };
    let event = &one.event;
    line("id", event.id().to_string());
    line("destination", one.destination.clone());
    line(
        "state",
        format!(
            "{}, after {}",
            one.state.as_str(),
            output::count(one.attempts.into(), "attempt")
        ),
    );
    line(
        "reason",
        format!("{}: {}", one.kind, printable(&one.reason)),
    );
    line("parked at", output::time(one.parked_at));
    if let Some(due) = one.due_at {
        line("next attempt at", output::time(due));
    }
    line("topic", event.topic().to_owned());
    line(
        "key",
        event.key().map_or_else(|| "none".to_owned(), printable),
    );
    for (name, field) in std::iter::once(&("type", Field::Type)).chain(&TEXTS) {
        if let Some(value) = event.text(*field) {
            line(name, printable(value));
        }
    }
    line("occurred at", output::time(event.occurred_at()));
    for (name, value) in event.headers() {
        line(
            "header",
            format!(
                "{}: {}",
                printable(name),
                printable(value.unwrap_or("(no value)"))
            ),
        );
    }
    match event.payload() {
        None => line("payload", "none".to_owned()),
        Some(payload) => {
            line("payload", output::bytes(payload.len() as u64));
            let content = match std::str::from_utf8(payload) {
                Ok(content) => printable(content),
                Err(_) => hex(payload),
            };
            let shown = output::cut(&content, SHOWN);
            text.push_str(&format!("{shown}\n"));
            if shown != content {
                text.push_str("(cut; --json has all of it)\n");
            }
        }
    }
    text.push('\n');
    text
}
