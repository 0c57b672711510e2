//! `posthaste check`: looks at the store and at each destination, and changes nothing.

use std::path::PathBuf;

use clap::Args;
use posthaste_engine::{
    CheckReport, CheckedPart, DedupWindow, Fact, Finding, Severity, Sink, SinkError, SinkInfo,
    StoreError,
};
use serde_json::{Value, json};

use super::Addresses;
use crate::{
    config::{self, RelayFlags},
    failure::{Failure, Status},
    open,
    output::{self, Style, Table},
};

/// The word for what could not be asked.
const NOT_SEEN: &str = "not seen";
/// Characters of a line of findings, at the most.
const WIDTH: usize = 80;

#[derive(Debug, Args)]
pub(crate) struct Check {
    #[command(flatten)]
    addresses: Addresses,
    /// A file with destinations, as for the relay
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Answer with JSON
    #[arg(long)]
    json: bool,
}

/// A destination, and what its check told.
struct Checked {
    name: String,
    info: SinkInfo,
    report: Result<CheckReport, SinkError>,
}

impl Check {
    pub(crate) async fn run(self) -> Result<Status, Failure> {
        let flags = RelayFlags {
            from: self.addresses.from,
            to: self.addresses.to,
            ..RelayFlags::default()
        };
        let config = config::relay(self.config.as_deref(), flags)?;
        let kind = open::store_kind(&config.from)?.plug_in.name;
        let store = open::bounded_store(&config.from)?;
        let mut destinations = Vec::new();
        for known in &config.destinations {
            let sink = open::destination(known)
                .map_err(|error| error.of(&format!("destination `{}`", known.name)))?;
            destinations.push((known.name.clone(), sink));
        }
        let stored = store.check().await;
        store.close().await;
        let mut checked = Vec::new();
        for (name, sink) in destinations {
            checked.push(check(name, &*sink).await);
        }
        let status = status(&stored, &checked);
        if self.json {
            output::print_json(&as_json(kind, &stored, &checked))?;
        } else {
            output::print(&as_text(kind, &stored, &checked))?;
        }
        Ok(status)
    }
}

async fn check(name: String, sink: &dyn Sink) -> Checked {
    Checked {
        name,
        info: sink.info(),
        report: sink.check().await,
    }
}

/// A set-up that must be changed counts more than something that may pass.
fn status(stored: &Result<(), StoreError>, checked: &[Checked]) -> Status {
    let store = stored.as_ref().err().map(|error| match error {
        StoreError::Denied { .. }
        | StoreError::Schema { .. }
        | StoreError::Misconfigured { .. } => Status::Usage,
        _ => Status::Failure,
    });
    let sinks = checked.iter().filter_map(|of| match &of.report {
        Err(SinkError::Denied { .. } | SinkError::Misconfigured { .. }) => Some(Status::Usage),
        Err(_) => Some(Status::Failure),
        Ok(report) => {
            let mut findings = report.findings().iter();
            let stops = findings.any(|found| found.severity == Severity::Stops);
            stops.then_some(Status::Failure)
        }
    });
    let worst = store
        .into_iter()
        .chain(sinks)
        .max_by_key(|status| *status as u8);
    worst.unwrap_or(Status::Done)
}

fn as_json(kind: &str, stored: &Result<(), StoreError>, checked: &[Checked]) -> Value {
    let destinations: Vec<_> = checked
        .iter()
        .map(|Checked { name, info, report }| {
            let error = report.as_ref().err().map(ToString::to_string);
            let none = CheckReport::default();
            let report = report.as_ref().unwrap_or(&none);
            json!({
                "name": name,
                "kind": info.kind,
                "error": error,
                "limits": {
                    "batch_events": info.batch_events_max,
                    "batch_bytes": info.batch_bytes_max,
                    "in_flight_events": info.in_flight_events_max,
                    "event_bytes": info.event_bytes_max,
                    "requests": info.requests_max,
                },
                "deduplication": info.deduplication.map(|known| json!({
                    "window": window(known.window),
                    "ids": known.ids_max,
                })),
                "parts": report.parts().iter().map(part_json).collect::<Vec<_>>(),
                "parts_left_out": report.parts_left_out(),
                "findings": report.findings().iter().map(finding_json).collect::<Vec<_>>(),
                "findings_left_out": report.findings_left_out(),
            })
        })
        .collect();
    json!({
        "store": { "kind": kind, "error": stored.as_ref().err().map(ToString::to_string) },
        "destinations": destinations,
    })
}

fn part_json(part: &CheckedPart) -> Value {
    let facts = part.facts.iter();
    let facts: serde_json::Map<_, _> = facts
        .map(|Fact { name, value }| ((*name).to_owned(), json!(value)))
        .collect();
    json!({ "kind": part.kind, "name": part.name, "facts": facts })
}

fn finding_json(finding: &Finding) -> Value {
    json!({
        "severity": finding.severity.as_str(),
        "place": finding.place,
        "fault": finding.fault,
        "mend": finding.mend,
    })
}

fn as_text(kind: &str, stored: &Result<(), StoreError>, checked: &[Checked]) -> String {
    let colours = output::colours();
    let mut text = format!("Store ({kind}): {}\n", verdict(stored));
    for Checked { name, info, report } in checked {
        text.push_str(&format!(
            "\nDestination `{name}` ({}): {}\n",
            info.kind,
            verdict(report)
        ));
        text.push_str(&limits(info));
        let Ok(report) = report else { continue };
        for parts in report.parts().chunk_by(|one, next| one.kind == next.kind) {
            text.push('\n');
            text.push_str(&table(parts).render(colours));
        }
        left_out(&mut text, report.parts_left_out(), "part");
        for finding in report.findings() {
            text.push('\n');
            text.push_str(&paragraph(finding, colours));
        }
        left_out(&mut text, report.findings_left_out(), "finding");
    }
    text
}

fn verdict<T, E: std::fmt::Display>(checked: &Result<T, E>) -> String {
    match checked {
        Ok(_) => "reached".to_owned(),
        Err(error) => error.to_string(),
    }
}

fn limits(info: &SinkInfo) -> String {
    let number = |number: usize| output::thousands(number as u64);
    let known = |limit: Option<String>, otherwise: &str| limit.unwrap_or(otherwise.to_owned());
    let size = |bytes: usize| output::bytes(bytes as u64);
    let batch = format!(
        "{} events or {}",
        number(info.batch_events_max),
        size(info.batch_bytes_max)
    );
    let in_flight = format!("{} events", number(info.in_flight_events_max));
    let requests = info.requests_max.map(|requests| requests.to_string());
    let repeats = info.deduplication.map(|memory| {
        let ids = memory
            .ids_max
            .map(|ids| format!(", {} ids", output::thousands(ids)));
        format!(
            "suppressed, {}{}",
            window(memory.window),
            ids.unwrap_or_default()
        )
    });
    let lines = [
        ("a batch", batch),
        ("in flight", in_flight),
        (
            "largest event",
            known(info.event_bytes_max.map(output::bytes), "its own limits"),
        ),
        (
            "requests at once",
            known(requests, "a stream, without requests"),
        ),
        ("repeats", known(repeats, "kept")),
    ];
    let line = |(name, value)| format!("  {name:<18}{value}\n");
    lines.map(line).concat()
}

fn window(window: DedupWindow) -> &'static str {
    match window {
        DedupWindow::AtTheReceiver => "as long as it is set up to",
        DedupWindow::UntilStored => "until the database knows of them",
    }
}

/// Parts of one kind.
fn table(parts: &[CheckedPart]) -> Table {
    let first = parts.first();
    let kind = first.map_or("", |part| part.kind);
    let facts = first.into_iter().flat_map(|part| &part.facts);
    let heading: Vec<_> = std::iter::once(kind)
        .chain(facts.map(|fact| fact.name))
        .collect();
    let mut table = Table::new(&heading);
    for part in parts {
        let facts = part.facts.iter().map(|fact| match &fact.value {
            Some(value) => (value.clone(), Style::Plain),
            None => (NOT_SEEN.to_owned(), Style::Dim),
        });
        let name = (part.name.clone(), Style::Plain);
        table.row(std::iter::once(name).chain(facts).collect());
    }
    table
}

fn paragraph(finding: &Finding, colours: bool) -> String {
    let style = match finding.severity {
        Severity::Stops => Style::Bad,
        Severity::Risk => Style::Warn,
    };
    let severity = finding.severity.as_str();
    let said = format!("{severity}: {}: {}", finding.place, finding.fault);
    let mut lines = output::wrapped(&said, WIDTH);
    if let Some(first) = lines.first_mut() {
        *first = first.replacen(severity, &output::paint(severity, style, colours), 1);
    }
    lines.extend(output::wrapped(&format!("fix: {}", finding.mend), WIDTH));
    lines.join("\n") + "\n"
}

fn left_out(text: &mut String, number: usize, thing: &str) {
    if number > 0 {
        let more = output::count(number as u64, &format!("more {thing}"));
        text.push_str(&format!("{more} left out\n"));
    }
}
