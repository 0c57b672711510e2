//! `posthaste relays`: who delivers what, and how it came to be so.

use clap::Args;
use posthaste_engine::{AuditLine, HostIdentity, RelayShare, RelayStatus, Store};
use serde_json::{Value, json};

use super::StoreArgs;
use crate::{
    failure::{Failure, Status},
    output::{self, Style, Table},
};

/// Enough of a boot id to tell machines apart.
const BOOT_ID_CHARS: usize = 8;

#[derive(Debug, Args)]
pub(crate) struct RelaysArgs {
    /// How many hand-overs are shown, the last ones
    #[arg(long, value_name = "N", default_value_t = 20)]
    last: usize,
    #[command(flatten)]
    store: StoreArgs,
}

impl RelaysArgs {
    pub(crate) async fn run(self) -> Result<Status, Failure> {
        let look = async |store: &dyn Store| {
            Ok((
                store.status().await?.relays,
                store.hand_overs(self.last).await?,
            ))
        };
        let (relays, hand_overs) = self.store.with_store(look).await?;
        if self.store.json {
            output::print_json(&json!({
                "relays": relays.iter().map(relay_json).collect::<Vec<_>>(),
                "hand_overs": hand_overs.iter().map(hand_over_json).collect::<Vec<_>>(),
            }))?;
        } else {
            output::print(&as_text(&relays, &hand_overs, output::colours()))?;
        }
        Ok(Status::Done)
    }
}

fn relay_json(relay: &RelayStatus) -> Value {
    let destinations = relay.shares.iter().map(|share| {
        json!({
            "name": share.destination,
            "partitions": share.partitions,
            "epoch": share.epoch,
            "reaches": share.reaches,
        })
    });
    json!({
        "name": relay.name,
        "registration": relay.registration.to_string(),
        "version": relay.version,
        "state": relay.state,
        "leaving": relay.leaving,
        "started_at": output::time(relay.started_at),
        "lease_expires_at": output::time(relay.lease_expires_at),
        "host": {
            "boot_id": relay.host.boot_id,
            "pid_namespace": relay.host.pid_namespace,
            "pid": relay.host.pid,
        },
        "partitions": relay.partitions,
        "destinations": destinations.collect::<Vec<_>>(),
    })
}

fn hand_over_json(line: &AuditLine) -> Value {
    json!({
        "at": output::time(line.at),
        "action": line.action,
        "relay": line.relay,
        "destination": line.destination,
        "detail": line.detail,
    })
}

fn as_text(relays: &[RelayStatus], hand_overs: &[AuditLine], colours: bool) -> String {
    let mut parts = vec![match relays.is_empty() {
        true => "No relay is registered: nothing is being delivered.\n".to_owned(),
        false => instances(relays).render(colours),
    }];
    if relays.iter().any(|relay| !relay.shares.is_empty()) {
        parts.push(shares(relays).render(colours));
    }
    if !hand_overs.is_empty() {
        parts.push(history(hand_overs).render(colours));
    }
    parts.join("\n")
}

fn instances(relays: &[RelayStatus]) -> Table {
    let mut table = Table::new(&["relay", "process", "version", "state", "lease until"]);
    for relay in relays {
        let (state, style) = match (relay.state.as_str(), relay.leaving) {
            ("live", true) => ("leaving", Style::Warn),
            ("live", false) => ("live", Style::Good),
            (other, _) => (other, Style::Bad),
        };
        table.row(vec![
            (relay.name.clone(), Style::Bold),
            (process(&relay.host), Style::Plain),
            (relay.version.clone(), Style::Plain),
            (state.to_owned(), style),
            (
                output::time_to_the_second(relay.lease_expires_at),
                Style::Plain,
            ),
        ]);
    }
    table
}

/// A row for each destination of each relay. Names need not be unique, processes are.
fn shares(relays: &[RelayStatus]) -> Table {
    let mut table = Table::new(&[
        "relay",
        "process",
        "destination",
        "partitions",
        "epoch",
        "broker",
    ]);
    for relay in relays {
        for share in &relay.shares {
            let mut cells = vec![
                (relay.name.clone(), Style::Bold),
                (process(&relay.host), Style::Plain),
            ];
            cells.extend(of_share(relay, share));
            table.row(cells);
        }
    }
    table
}

fn of_share(relay: &RelayStatus, share: &RelayShare) -> [(String, Style); 4] {
    let epoch = match share.partitions {
        0 => "-".to_owned(),
        _ => share.epoch.to_string(),
    };
    // A relay that is gone reaches nothing, whatever it last said.
    let (broker, style) = match share.reaches.filter(|_| relay.state == "live") {
        Some(true) => ("reached", Style::Good),
        Some(false) => ("out of reach", Style::Bad),
        None => ("-", Style::Plain),
    };
    [
        (share.destination.clone(), Style::Plain),
        (share.partitions.to_string(), Style::Plain),
        (epoch, Style::Plain),
        (broker.to_owned(), style),
    ]
}

fn process(host: &HostIdentity) -> String {
    let boot: String = host.boot_id.chars().take(BOOT_ID_CHARS).collect();
    format!("{}@{boot}", host.pid)
}

fn history(hand_overs: &[AuditLine]) -> Table {
    let mut table = Table::new(&["at", "action", "relay", "destination", "detail"]);
    for line in hand_overs {
        let or_none = |text: &Option<String>| text.clone().unwrap_or_else(|| "-".to_owned());
        table.row(vec![
            (output::time_to_the_second(line.at), Style::Plain),
            (line.action.clone(), Style::Bold),
            (or_none(&line.relay), Style::Plain),
            (or_none(&line.destination), Style::Plain),
            (line.detail.clone(), Style::Plain),
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    #[test]
    fn a_relay_has_a_row_and_one_for_each_destination() {
        let share = |destination: &str, partitions, reaches| RelayShare {
            destination: destination.to_owned(),
            partitions,
            epoch: 7,
            reaches,
        };
        let mut relay = RelayStatus {
            registration: Uuid::nil(),
            name: "a".to_owned(),
            host: HostIdentity {
                boot_id: "0123456789".to_owned(),
                pid: 42,
                ..HostIdentity::default()
            },
            started_at: 0,
            version: "1".to_owned(),
            state: "live".to_owned(),
            lease_expires_at: 0,
            partitions: 32,
            leaving: true,
            shares: vec![share("one", 32, Some(true)), share("two", 0, None)],
        };
        let shown = |relay: &RelayStatus| as_text(std::slice::from_ref(relay), &[], false);
        let text = shown(&relay);
        let rows: Vec<Vec<&str>> = text
            .lines()
            .map(|l| l.split_whitespace().collect())
            .collect();
        let process = "42@01234567";
        assert_eq!(
            rows[1],
            ["a", process, "1", "leaving", "1970-01-01T00:00:00Z"],
            "{text}"
        );
        assert_eq!(
            rows[4],
            ["a", process, "one", "32", "7", "reached"],
            "{text}"
        );
        assert_eq!(rows[5], ["a", process, "two", "0", "-", "-"], "{text}");
        relay.state = "expired".to_owned();
        assert!(!shown(&relay).contains("reached"), "{}", shown(&relay));
    }
}
