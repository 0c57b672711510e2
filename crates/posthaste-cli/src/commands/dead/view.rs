//! Parked events as people and programs are shown them.

use posthaste_engine::{Field, ParkedEvent, ParkedState, wire_id_room};
use serde_json::{Value, json};

use crate::output::{self, Style};

/// The least width of a terminal.
const COLUMNS: usize = 80;

/// As many lines of a reason as a list shows, whose end tells the fix.
const REASON_LINES: usize = 4;

/// Several lines, since the id alone takes half of one.
pub(super) fn entry(one: &ParkedEvent, colours: bool) -> String {
    let style = match one.state {
        ParkedState::Dead => Style::Bad,
        ParkedState::Parked => Style::Warn,
        _ => Style::Dim,
    };
    let attempts = output::count(one.attempts.into(), "attempt");
    let holds = if one.holds_key { ", holds its key" } else { "" };
    let key = one
        .event
        .key()
        .map_or_else(String::new, |key| format!(", key {}", printable(key)));
    let place = format!(
        "  {}: topic {}{key}",
        one.destination,
        printable(one.event.topic())
    );
    let due = one.due_at.map_or_else(String::new, |due| {
        format!("  next attempt at {}\n", output::time_to_the_second(due))
    });
    let reason = format!("{}: {}", one.kind, printable(&one.reason));
    let reason = output::cut(&reason, REASON_LINES * (COLUMNS - 2));
    let reason = output::wrapped(&reason, COLUMNS - 2).join("\n  ");
    format!(
        "{}  {}, {attempts}{holds}\n{}\n{due}  {reason}\n",
        output::paint(one.event.wire_id(&mut wire_id_room()), Style::Bold, colours),
        output::paint(one.state.as_str(), style, colours),
        output::cut(&place, COLUMNS),
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

/// An event as a list shows it: no payload, no header values.
pub(super) fn summary(one: &ParkedEvent) -> Value {
    json!({
        "id": one.event.wire_id(&mut wire_id_room()),
        "destination": one.destination,
        "state": one.state.as_str(),
        "attempts": one.attempts,
        "kind": one.kind,
        "reason": one.reason,
        "parked_at": output::time(one.parked_at),
        "due_at": one.due_at.map(output::time),
        "holds_key": one.holds_key,
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

pub(super) fn whole(one: &ParkedEvent) -> Value {
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

pub(super) fn report(one: &ParkedEvent, colours: bool) -> String {
    let mut text = String::new();
    let mut line = |name: &str, value: String| {
        let name = output::paint(&format!("{name:<15}"), Style::Dim, colours);
        text.push_str(&format!("{name} {value}\n"));
    };
    let event = &one.event;
    line("id", event.wire_id(&mut wire_id_room()).to_owned());
    line("destination", one.destination.clone());
    line(
        "state",
        format!(
            "{}, after {}{}",
            one.state.as_str(),
            output::count(one.attempts.into(), "attempt"),
            match one.holds_key {
                true => "; its key waits for it",
                false => "",
            }
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
