//! `posthaste status`: what waits, where, and since when.

use std::time::Duration;

use clap::Args;
use posthaste_engine::{
    DestinationState, DestinationStatus, HeldPlace, OrderBy, PinKind, RelayStatus, Retained,
    RetentionMode, Status as StoreStatus, Store,
};
use serde_json::{Value, json};

use super::StoreArgs;
use crate::{
    failure::{Failure, Status},
    output::{self, Style, Table},
    secret::SecretUrl,
};

#[derive(Debug, Args)]
pub(crate) struct StatusArgs {
    #[command(flatten)]
    store: StoreArgs,
    /// End with status 1 where events are not delivered: no relay runs, a destination accepts
    /// nothing, or events are parked or dead. Paused destinations do not count
    #[arg(long)]
    check: bool,
}

impl StatusArgs {
    pub(crate) async fn run(self) -> Result<Status, Failure> {
        let look = async |store: &dyn Store| Ok((store.info().kind, store.status().await?));
        let (kind, status) = self.store.with_store(look).await?;
        if self.store.json {
            output::print_json(&as_json(&status))?;
        } else {
            output::print(&as_text(kind, &status, output::colours()))?;
        }
        let active = status.destinations.iter().filter(|d| is_active(d));
        let refused = active.map(|d| d.parked + d.dead).any(|events| events > 0);
        let stands_still = refused || !stoppages(&status).is_empty();
        Ok(match self.check && stands_still {
            true => Status::Failure,
            false => Status::Done,
        })
    }
}

/// Why nothing is delivered, and where; a paused destination is no stoppage.
fn stoppages(status: &StoreStatus) -> Vec<String> {
    if !status.relays.iter().any(|relay| relay.state == "live") {
        return vec![
            "no relay runs: nothing is being delivered; start `posthaste relay`".to_owned(),
        ];
    }
    let active = status.destinations.iter().filter(|d| is_active(d));
    let stands_still = active.filter_map(|d| match (&d.relay, d.breaker.as_str()) {
        (None, _) => Some(format!(
            "no relay serves `{}`: start one that names it, or remove it",
            d.name
        )),
        (Some(_), "closed") => None,
        (Some(_), _) => Some(format!(
            "`{}` accepts no events; its relay tries again within seconds",
            d.name
        )),
    });
    stands_still.collect()
}

fn is_active(destination: &DestinationStatus) -> bool {
    destination.state == DestinationState::Active
}

/// The contract of `status --json`.
fn as_json(status: &StoreStatus) -> Value {
    let relays = status.relays.iter().map(|r| {
        json!({
            "name": r.name,
            "version": r.version,
            "state": r.state,
            "lease_expires_at": output::time(r.lease_expires_at),
            "partitions": r.partitions,
        })
    });
    let sum = |of: fn(&DestinationStatus) -> u64| status.destinations.iter().map(of).sum::<u64>();
    json!({
        "pending": status.pending,
        "pending_exact": status.pending_exact,
        "parked": sum(|d| d.parked),
        "dead": sum(|d| d.dead),
        "blocked_keys": sum(|d| d.blocked_keys),
        "oldest_pending_age_seconds": seconds(status.oldest_pending_age),
        "destinations": destinations_json(status),
        "relays": relays.collect::<Vec<_>>(),
        "retained_bytes": status.retained_bytes,
        "retention_window_seconds": status.retained.window.as_secs(),
        "retention_mode": status.retained.mode.as_str(),
        "retention_advice": status.retained.advice,
        "retention_debt_events": status.retained.debt_events,
        "retention_debt_exact": status.retained.debt_exact,
        "pinned_by": pins_json(&status.retained),
    })
}

/// The causes that keep events beyond their time.
pub(super) fn pins_json(retained: &Retained) -> Value {
    let pins = retained.pins.iter().map(|pin| {
        json!({
            "kind": pin.kind.as_str(),
            "destination": pin.destination,
            "key": pin.key,
            "detail": pin.detail,
        })
    });
    pins.collect()
}

/// The debt and its causes; nothing when there is none.
pub(super) fn debt(retained: &Retained) -> String {
    if retained.debt_events == 0 {
        return String::new();
    }
    let mut text = format!(
        "{}{} kept beyond that, because of\n",
        if retained.debt_exact { "" } else { "at most " },
        match retained.debt_events {
            1 => "1 event is".to_owned(),
            events => format!("{} events are", output::thousands(events)),
        }
    );
    for pin in &retained.pins {
        let who = match (pin.kind, &pin.destination, &pin.key) {
            (PinKind::Key, Some(destination), Some(key)) => {
                format!("key `{key}` of destination `{destination}`: ")
            }
            (_, Some(destination), _) => format!("destination `{destination}`: "),
            _ => String::new(),
        };
        text.push_str(&format!("  {who}{}\n", pin.detail));
    }
    text
}

pub(super) fn window(retained: &Retained) -> String {
    let kept = output::short_duration(retained.window);
    let how = match retained.mode {
        RetentionMode::Truncate => "then removed (truncate)",
        RetentionMode::Delete => "then removed (delete)",
    };
    let mut text = format!("Delivered events are kept for {kept}, {how}\n");
    if retained.window < retained.configured_window {
        let wanted = output::short_duration(retained.configured_window);
        text.push_str(&format!(
            "Three quarters of the ring hold no more, instead of {wanted}\n"
        ));
    }
    if let Some(advice) = &retained.advice {
        text.push_str(&format!("Advice: {advice}\n"));
    }
    text
}

pub(super) fn destinations_json(status: &StoreStatus) -> Value {
    let destinations = status.destinations.iter().map(|d| {
        json!({
            "name": d.name,
            "kind": kind(d),
            "address": address(d),
            "order": order_and_address(d).0.as_str(),
            "state": d.state.as_str(),
            "paused_places": d.paused_places,
            "pending": d.pending,
            "pending_exact": d.pending_exact,
            "parked": d.parked,
            "dead": d.dead,
            "blocked_keys": d.blocked_keys,
            "oldest_pending_age_seconds": seconds(d.oldest_pending_age),
            "accepted_per_second": d.accepted_per_second,
            "breaker": d.breaker,
            "last_error": d.last_error,
            "places_held": d.places_held,
            "places": d.places.iter().map(output::place_json).collect::<Value>(),
        })
    });
    destinations.collect()
}

fn seconds(age: Option<Duration>) -> Option<f64> {
    age.map(|age| age.as_secs_f64())
}

fn as_text(kind: &str, status: &StoreStatus, colours: bool) -> String {
    let age = status.oldest_pending_age.map_or_else(String::new, |age| {
        format!(", the oldest for {}", output::short_duration(age))
    });
    let mut text = format!(
        "{}: {} pending{age}; {} on disk\n",
        output::paint(&format!("Outbox in {kind}"), Style::Bold, colours),
        amount(status.pending, status.pending_exact),
        output::bytes(status.retained_bytes),
    );
    text.push_str(&window(&status.retained));
    text.push_str(&debt(&status.retained));
    text.push('\n');
    if status.destinations.is_empty() {
        text.push_str(
            "No destination yet, so no event counts as pending:\n\
             `posthaste relay --from … --to …` makes the first one.\n",
        );
    } else {
        text.push_str(&destinations(&status.destinations).render(colours));
    }
    for d in &status.destinations {
        let name = output::paint(&d.name, Style::Bold, colours);
        let rate = d.accepted_per_second.map_or_else(String::new, |rate| {
            format!("; {} a second", output::rate(rate))
        });
        let order = match order_and_address(d).0 {
            OrderBy::Key => String::new(),
            order => format!(", in the order of {}", order.as_str()),
        };
        text.push_str(&format!("{name}: to {}{order}{rate}\n", address(d)));
        if let Some(error) = &d.last_error {
            // Without a relay it is the word of one that is gone.
            let when = match d.relay {
                Some(_) => "",
                None => "when a relay last served it: ",
            };
            text.push_str(&format!("{name}: {when}{error}\n"));
        }
        text.push_str(&places((d.places_held, &d.places)));
        let is_told = |name: &&String| d.places.iter().any(|place| *place.name == ***name);
        for name in d.paused_places.iter().filter(|name| !is_told(name)) {
            let name = name.escape_debug();
            text.push_str(&format!("  `{name}`: paused by an operator\n"));
        }
    }
    text.push('\n');
    if !status.relays.is_empty() {
        text.push_str(&relays(&status.relays).render(colours));
    }
    for stoppage in stoppages(status) {
        let line = format!("Attention: {stoppage}\n");
        text.push_str(&output::paint(&line, Style::Bad, colours));
    }
    if status.destinations.iter().any(|d| d.parked + d.dead > 0) {
        text.push_str("`posthaste dead list` shows the events that were refused.\n");
    }
    text
}

pub(super) fn amount(pending: u64, exact: bool) -> String {
    format!(
        "{}{}",
        if exact { "" } else { "at most " },
        output::thousands(pending)
    )
}

pub(super) fn destinations(destinations: &[DestinationStatus]) -> Table {
    let mut table = Table::new(&[
        "destination",
        "kind",
        "state",
        "pending",
        "oldest",
        "parked",
        "dead",
        "blocked",
        "breaker",
    ]);
    for d in destinations {
        let alarm = |number: u64| {
            (
                output::thousands(number),
                if number > 0 { Style::Bad } else { Style::Plain },
            )
        };
        let state = match d.state {
            DestinationState::Active => Style::Good,
            _ => Style::Warn,
        };
        // Only a relay that serves the destination knows its breaker.
        let (breaker, style) = match (&d.relay, d.breaker.as_str()) {
            (None, _) => ("-", Style::Plain),
            (Some(_), "closed") => ("closed", Style::Good),
            (Some(_), other) => (other, Style::Bad),
        };
        let oldest = d
            .oldest_pending_age
            .map_or_else(|| "-".to_owned(), output::short_duration);
        table.row(vec![
            (d.name.clone(), Style::Bold),
            (kind(d), Style::Plain),
            (d.state.as_str().to_owned(), state),
            (amount(d.pending, d.pending_exact), Style::Plain),
            (oldest, Style::Plain),
            alarm(d.parked),
            alarm(d.dead),
            alarm(d.blocked_keys),
            (breaker.to_owned(), style),
        ]);
    }
    table
}

fn relays(relays: &[RelayStatus]) -> Table {
    let mut table = Table::new(&["relay", "version", "state", "lease until", "partitions"]);
    for r in relays {
        let state = if r.state == "live" {
            Style::Good
        } else {
            Style::Bad
        };
        table.row(vec![
            (r.name.clone(), Style::Bold),
            (r.version.clone(), Style::Plain),
            (r.state.clone(), state),
            (output::time_to_the_second(r.lease_expires_at), Style::Plain),
            (r.partitions.to_string(), Style::Plain),
        ]);
    }
    table
}

/// The places that are held back, a line each; nothing when there are none.
fn places((held, named): (usize, &[HeldPlace])) -> String {
    let line = |place: &HeldPlace| {
        let held_for = output::short_duration(place.held_for);
        let returns = if place.returns { ", returns" } else { "" };
        format!(
            "  `{}` for {held_for}{returns}: {} in memory, {} set aside; {}\n",
            // Anybody may write events of any topic.
            place.name.escape_debug(),
            output::thousands(place.in_memory as u64),
            output::thousands(place.set_aside as u64),
            output::visible(&place.reason),
        )
    };
    let mut lines: String = named.iter().map(line).collect();
    let unnamed = held.saturating_sub(named.len());
    if unnamed > 0 {
        let unnamed = output::thousands(unnamed as u64);
        lines.push_str(&format!("  and {unnamed} more\n"));
    }
    lines
}

fn order_and_address(destination: &DestinationStatus) -> (OrderBy, &str) {
    OrderBy::of_target(&destination.address)
}

/// The address that is stored, which others can write, too, and former versions wrote unmasked.
fn address(destination: &DestinationStatus) -> String {
    SecretUrl::new(order_and_address(destination).1).to_string()
}

/// The sink's kind, which its address begins with.
fn kind(destination: &DestinationStatus) -> String {
    order_and_address(destination)
        .1
        .split(':')
        .next()
        .unwrap_or_default()
        .to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_place_that_is_held_back_has_a_line() {
        let place = |name: &str, returns| HeldPlace {
            name: name.into(),
            reason: "a queue is full".into(),
            held_for: Duration::from_secs(300),
            returns,
            is_paused: false,
            in_memory: 7,
            set_aside: 1_234,
        };
        assert_eq!(places((0, &[])), "");
        let named = [place("a", false), place("b/3", true)];
        assert_eq!(
            places((1_500, &named)),
            "  `a` for 5m: 7 in memory, 1,234 set aside; a queue is full\n  \
               `b/3` for 5m, returns: 7 in memory, 1,234 set aside; a queue is full\n  \
               and 1,498 more\n"
        );
    }
}
