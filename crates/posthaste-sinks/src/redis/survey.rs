//! A check's report of the server, its persistence and its memory.

use std::collections::HashMap;

use ::redis::cmd;
use posthaste_engine::{CheckReport, Fact, Finding, Severity};

use super::{connection::Client, fault::ServerFault, keys::Keys, target::Target};

/// The words of the server about itself, by name; empty where we may not ask.
#[derive(Debug, Default)]
struct Told(HashMap<String, String>);

/// Reports the server, and the stream where the address names one.
///
/// # Errors
/// Nothing could be added as it stands.
pub(super) async fn survey(
    client: &mut Client,
    target: &Target,
) -> Result<CheckReport, ServerFault> {
    try_commands(client, target).await?;
    let told = Told::by(client).await;
    let mut report = CheckReport::default();
    report_server(&mut report, &told, target);
    if let Some(stream) = target.stream.only_stream() {
        report_stream(&mut report, client, stream).await;
    }
    Ok(report)
}

/// Tries what a lane does, without any effect. A replica refuses it too.
async fn try_commands(client: &mut Client, target: &Target) -> Result<(), ServerFault> {
    let pattern = &target.stream;
    let keys = Keys::named("check", pattern);
    // No topic has it. Beside it stands the stream itself, if it is known, for its right alone.
    let stream = format!("{}:stream", keys.lanes);
    let mut question = cmd("EVAL");
    question.arg(include_str!("check.lua")).arg(4);
    question
        .arg(&keys.lanes)
        .arg(keys.ids("check"))
        .arg(&stream);
    question.arg(pattern.only_stream().unwrap_or(&stream));
    let (command, refusal): (String, String) = client.ask(&question).await?;
    if refusal.is_empty() {
        return Ok(());
    }
    let mut fault = ServerFault::of_script(&refusal);
    fault.reason = format!("{command}: {}", fault.reason);
    Err(fault)
}

impl Told {
    async fn by(client: &mut Client) -> Self {
        let mut told = HashMap::new();
        // Before Redis 7.0 it takes one section at the most, so all are asked for.
        match client.ask::<String>(&cmd("INFO")).await {
            Ok(text) => {
                let lines = text.lines().filter_map(|line| line.split_once(':'));
                told.extend(lines.map(|(name, value)| (name.to_owned(), value.to_owned())));
            }
            Err(fault) => tracing::debug!(reason = fault.reason, "`INFO` is not seen"),
        }
        for name in ["appendfsync", "proto-max-bulk-len"] {
            let mut question = cmd("CONFIG");
            question.arg("GET").arg(name);
            match client.ask::<HashMap<String, String>>(&question).await {
                Ok(found) => told.extend(found),
                Err(fault) => tracing::debug!(reason = fault.reason, "`CONFIG GET` is not seen"),
            }
        }
        Self(told)
    }

    fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    fn number(&self, name: &str) -> Option<u64> {
        self.get(name)?.parse().ok()
    }
}

fn report_server(report: &mut CheckReport, told: &Told, target: &Target) {
    let version = told.get("valkey_version").or(told.get("redis_version"));
    let facts = [
        ("version", version),
        ("mode", told.get("redis_mode")),
        ("replicas", told.get("connected_slaves")),
        ("aof_enabled", told.get("aof_enabled")),
        ("appendfsync", told.get("appendfsync")),
        ("maxmemory", told.get("maxmemory")),
        ("maxmemory_policy", told.get("maxmemory_policy")),
        ("proto_max_bulk_len", told.get("proto-max-bulk-len")),
    ];
    let name = told.get("server_name").unwrap_or("redis").to_owned();
    let facts = facts.map(|(name, value)| Fact::new(name, value));
    report.part("server", name, facts.to_vec());
    for (severity, fault, mend) in findings(told, target) {
        report.finding(Finding {
            severity,
            place: "server".to_owned(),
            fault,
            mend: mend.to_owned(),
        });
    }
}

fn findings(told: &Told, target: &Target) -> Vec<(Severity, String, &'static str)> {
    let mut found = Vec::new();
    match (told.get("aof_enabled"), told.get("appendfsync")) {
        (Some("0"), _) => found.push((
            Severity::Risk,
            "it writes no log (`appendonly no`): accepted events since its last snapshot are lost \
             when it ends"
                .to_owned(),
            "set `appendonly yes` and `appendfsync always`",
        )),
        (Some("1"), Some(sync @ ("everysec" | "no"))) => found.push((
            Severity::Risk,
            format!(
                "it syncs its log {} (`appendfsync {sync}`): a crash of its machine loses accepted \
                 events of that time",
                match sync {
                    "everysec" => "each second",
                    _ => "when the system does",
                }
            ),
            "set `appendfsync always`",
        )),
        _ => {}
    }
    let policy = told.get("maxmemory_policy").unwrap_or("noeviction");
    if policy != "noeviction" && told.number("maxmemory") != Some(0) {
        let fault = format!("it drops keys where memory is short (`maxmemory-policy {policy}`)");
        found.push((Severity::Risk, fault, "set `maxmemory-policy noeviction`"));
    }
    let replicas = told.number("connected_slaves");
    if let (Some(wanted), Some(replicas)) = (target.wait, replicas)
        && replicas < wanted
    {
        let fault = format!("it has {replicas} of the {wanted} replicas that `wait` asks for");
        found.push((
            Severity::Stops,
            fault,
            "start the replicas, or lower `wait`",
        ));
    }
    if let (Some(limit), Some(ours)) = (told.number("proto-max-bulk-len"), target.event_bytes_max)
        && limit < ours
    {
        let fault = format!(
            "it ends the connection at a value over {limit} bytes (`proto-max-bulk-len`), and the \
             destination takes {ours}"
        );
        found.push((Severity::Stops, fault, "lower `max_event_bytes`"));
    }
    found
}

async fn report_stream(report: &mut CheckReport, client: &mut Client, stream: &str) {
    let mut question = cmd("TYPE");
    question.arg(stream);
    let kind: Option<String> = client.ask(&question).await.ok();
    let mut question = cmd("XLEN");
    question.arg(stream);
    let entries: Option<u64> = client.ask(&question).await.ok();
    report.part("stream", stream, vec![Fact::new("entries", entries)]);
    if let Some(kind) = kind
        && !["stream", "none"].contains(&&*kind)
    {
        report.finding(Finding {
            severity: Severity::Stops,
            place: format!("stream `{stream}`"),
            fault: format!("its key holds a {kind}, and no stream"),
            mend: "rename that, or give `stream` another name".to_owned(),
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::redis::stream_name::StreamPattern;

    fn found(told: &[(&str, &str)]) -> Vec<(Severity, &'static str)> {
        let told = told.iter();
        let told = Told(
            told.map(|&(name, value)| (name.into(), value.into()))
                .collect(),
        );
        let target = Target {
            stream: StreamPattern::new("{topic}").unwrap(),
            maxlen: ("", 0),
            known_ids: 1_000,
            event_bytes_max: Some(1_000),
            wait: Some(1),
        };
        let found = findings(&told, &target).into_iter();
        found.map(|(severity, _, mend)| (severity, mend)).collect()
    }

    #[test]
    fn servers_that_forget_are_found() {
        for (told, expected) in [
            (&[][..], None),
            (&[("aof_enabled", "1"), ("appendfsync", "always")], None),
            (
                &[("aof_enabled", "0"), ("appendfsync", "always")],
                Some((
                    Severity::Risk,
                    "set `appendonly yes` and `appendfsync always`",
                )),
            ),
            (
                &[("aof_enabled", "1"), ("appendfsync", "everysec")],
                Some((Severity::Risk, "set `appendfsync always`")),
            ),
            (&[("aof_enabled", "1")], None),
            (
                &[("maxmemory", "9"), ("maxmemory_policy", "volatile-ttl")],
                Some((Severity::Risk, "set `maxmemory-policy noeviction`")),
            ),
            (
                &[("maxmemory", "0"), ("maxmemory_policy", "allkeys-lru")],
                None,
            ),
            (
                &[("connected_slaves", "0")],
                Some((Severity::Stops, "start the replicas, or lower `wait`")),
            ),
            (&[("connected_slaves", "1")], None),
            (
                &[("proto-max-bulk-len", "999")],
                Some((Severity::Stops, "lower `max_event_bytes`")),
            ),
        ] {
            assert_eq!(found(told), Vec::from_iter(expected), "{told:?}");
        }
    }
}
