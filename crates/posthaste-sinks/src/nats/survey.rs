//! A check's report of the server and its streams.

use std::time::Duration;

use posthaste_engine::{Cause, CheckReport, Fact, Finding, Severity};
use serde::Deserialize;
use tokio::time::timeout;

use super::{
    connection::{Connection, NO_RESPONDERS},
    fault::{ServerFault, StreamError},
};
use crate::transport::OPEN_LIMIT;

/// How long the server may take to list its streams, which we need not be allowed to ask.
const LIST_LIMIT: Duration = Duration::from_secs(1);
const NO_JETSTREAM: &str = "the server has no JetStream for this account; enable it";

/// A stream, as far as it matters.
#[derive(Debug, Default, Deserialize)]
struct Stream {
    #[serde(default)]
    config: StreamConfig,
    cluster: Option<Cluster>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct StreamConfig {
    name: String,
    subjects: Vec<String>,
    storage: String,
    discard: String,
    num_replicas: u32,
    /// Nanoseconds.
    duplicate_window: u64,
    /// -1: no limit; so with all limits.
    max_msgs: i64,
    max_bytes: i64,
    max_msg_size: i64,
    sealed: bool,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Cluster {
    leader: String,
    replicas: Vec<Replica>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Replica {
    current: bool,
    offline: bool,
}

#[derive(Debug, Deserialize)]
struct OneAnswer {
    error: Option<StreamError>,
    #[serde(flatten)]
    stream: Stream,
}

#[derive(Debug, Deserialize)]
struct ListAnswer {
    #[serde(default)]
    total: u64,
    #[serde(default)]
    streams: Vec<Stream>,
    error: Option<StreamError>,
}

/// Reports the server, and the stream of the address, or else those that we may see.
///
/// # Errors
/// The stream of the address cannot be used.
pub(super) async fn survey(
    connection: &mut Connection,
    stream: Option<&str>,
) -> Result<CheckReport, ServerFault> {
    let mut report = CheckReport::default();
    let server = connection.info.server_name.clone();
    let limit = Fact::seen("max_payload", connection.info.max_payload);
    match stream {
        Some(name) => {
            let stream = one(connection, name).await?;
            report.part("server", server, vec![limit]);
            add(&mut report, &stream);
        }
        None => {
            let listed = list(connection).await;
            let total = listed.as_ref().ok().map(|listed| listed.total);
            report.part("server", server, vec![limit, Fact::new("streams", total)]);
            match listed {
                Ok(listed) => listed
                    .streams
                    .iter()
                    .for_each(|stream| add(&mut report, stream)),
                Err(fault) if fault.cause == Cause::Misconfigured => report.finding(Finding {
                    severity: Severity::Stops,
                    place: "server".to_owned(),
                    fault: "it has no JetStream for this account".to_owned(),
                    mend: "enable it".to_owned(),
                }),
                // We need not be allowed to ask.
                Err(fault) => tracing::debug!(reason = fault.reason, "streams are not seen"),
            }
        }
    }
    Ok(report)
}

async fn one(connection: &mut Connection, name: &str) -> Result<Stream, ServerFault> {
    let question = format!("$JS.API.STREAM.INFO.{name}");
    let doing = format!("asking for stream `{name}`");
    let answer: OneAnswer = ask(connection, &question, &doing, OPEN_LIMIT).await?;
    match answer.error {
        None => Ok(answer.stream),
        Some(error) => Err(error.fault()),
    }
}

async fn list(connection: &mut Connection) -> Result<ListAnswer, ServerFault> {
    let doing = "asking for the streams";
    let answer: ListAnswer = ask(connection, "$JS.API.STREAM.LIST", doing, LIST_LIMIT).await?;
    match &answer.error {
        None => Ok(answer),
        Some(error) => Err(error.fault()),
    }
}

async fn ask<T: for<'a> Deserialize<'a>>(
    connection: &mut Connection,
    question: &str,
    doing: &str,
    limit: Duration,
) -> Result<T, ServerFault> {
    let asked = timeout(limit, connection.ask(question)).await;
    let answer = asked.map_err(|_| ServerFault::slow(doing, limit))??;
    if answer.status == Some(NO_RESPONDERS) {
        return Err(ServerFault::setup(NO_JETSTREAM));
    }
    serde_json::from_slice(&answer.payload)
        .map_err(|_| ServerFault::setup("another client than JetStream answers at `$JS.API`"))
}

fn add(report: &mut CheckReport, stream: &Stream) {
    let config = &stream.config;
    let bounded = |limit: i64| u64::try_from(limit).ok().filter(|&limit| limit > 0);
    let bytes = bounded(config.max_msg_size);
    let facts = vec![
        Fact::seen("subjects", config.subjects.join(" ")),
        Fact::seen("duplicate_window", humanly(config.duplicate_window)),
        Fact::seen("replicas", config.num_replicas),
        Fact::seen("storage", &config.storage),
        Fact::seen("discard", &config.discard),
        Fact::seen(
            "max_msg_size",
            bytes.map_or("no limit".to_owned(), |n| n.to_string()),
        ),
    ];
    report.part("stream", &*config.name, facts);
    let mut find = |severity, fault: String, mend: &str| {
        let place = format!("stream `{}`", config.name);
        let mend = mend.to_owned();
        report.finding(Finding {
            severity,
            place,
            fault,
            mend,
        });
    };
    if config.sealed {
        let fault = "it is sealed, and takes nothing more".to_owned();
        find(Severity::Stops, fault, "name another one");
    }
    if let Some(cluster) = &stream.cluster {
        let lost = cluster
            .replicas
            .iter()
            .filter(|replica| replica.offline || !replica.current);
        let (lost, all) = (lost.count(), cluster.replicas.len() + 1);
        if cluster.leader.is_empty() || 2 * (all - lost) <= all {
            let fault =
                format!("{lost} of its {all} replicas are away or behind, and it has no majority");
            find(Severity::Stops, fault, "start their servers again");
        }
    }
    if config.storage == "memory" {
        let fault = "its storage is memory: accepted events are lost when the server restarts";
        find(Severity::Risk, fault.to_owned(), "use storage `file`");
    }
    let is_full_some_day = bounded(config.max_msgs)
        .or(bounded(config.max_bytes))
        .is_some();
    if config.discard == "old" && is_full_some_day {
        let fault = "it has limits and drops its oldest events where it is full";
        find(Severity::Risk, fault.to_owned(), "set discard to `new`");
    }
}

/// A duration of nanoseconds in its largest whole unit.
fn humanly(nanos: u64) -> String {
    format!("{:?}", Duration::from_nanos(nanos))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(stream: &str) -> Vec<(Severity, String)> {
        let mut report = CheckReport::default();
        add(&mut report, &serde_json::from_str(stream).unwrap());
        let found = report.findings().iter();
        found.map(|f| (f.severity, f.mend.clone())).collect()
    }

    #[test]
    fn streams_that_take_nothing_or_forget_are_found() {
        let one = |severity, mend: &str| vec![(severity, mend.to_owned())];
        for (config, expected) in [
            (
                r#""config":{"storage":"file","discard":"old","max_msgs":-1}"#,
                vec![],
            ),
            (
                r#""config":{"storage":"file","discard":"new","max_msgs":7}"#,
                vec![],
            ),
            (
                r#""config":{"storage":"file","discard":"old","max_bytes":7}"#,
                one(Severity::Risk, "set discard to `new`"),
            ),
            (
                r#""config":{"storage":"memory"}"#,
                one(Severity::Risk, "use storage `file`"),
            ),
            (
                r#""config":{"sealed":true}"#,
                one(Severity::Stops, "name another one"),
            ),
            (
                r#""cluster":{"leader":"a","replicas":[{"current":true},{"offline":true}]}"#,
                vec![],
            ),
            (
                r#""cluster":{"leader":"a","replicas":[{"current":false},{"offline":true}]}"#,
                one(Severity::Stops, "start their servers again"),
            ),
        ] {
            assert_eq!(found(&format!("{{{config}}}")), expected, "{config}");
        }
    }
}
