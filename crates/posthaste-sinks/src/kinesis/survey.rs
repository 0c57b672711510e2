//! A check's report of the stream. It asks for its summary, which needs another right than
//! delivering: it is not seen without it.

use aws_sdk_kinesis::types::{StreamDescriptionSummary, StreamStatus};
use posthaste_engine::{Cause, CheckReport, Fact, Finding, Severity};

use super::{
    KinesisSink,
    streams::{Streams, something_else},
};
use crate::requests::refusal::{Blame, Refusal};

/// Records that nobody has read are deleted after this time unless somebody said more.
const RETENTION_HOURS_DEFAULT: i32 = 24;

/// The name of a stream of nobody, by which the service is asked whether it is there.
const NOBODYS: &str = "posthaste-check";

/// Reports the stream that the address names, or the service where each topic has one.
///
/// # Errors
/// Nothing could be put.
pub(super) async fn survey(sink: &KinesisSink) -> Result<CheckReport, Refusal> {
    let config = &sink.account.config().await?;
    let region = config.region().map(ToString::to_string);
    let connections = sink.account.connections_to_check();
    let streams = Streams::new(config, connections.clone());
    let mut report = CheckReport::default();
    let service = vec![
        Fact::new("region", region),
        Fact::seen("endpoint", sink.account.place()),
        Fact::seen("order", "of each key"),
    ];
    report.part("service", "kinesis", service);
    match sink.target.names.only_name() {
        Some(name) => {
            let told = ask(&streams, name).await?;
            report_stream(name, told.as_ref(), &mut report);
            if let Some(told) = told {
                find(sink, name, &told, &mut report);
            }
        }
        None => match ask(&streams, NOBODYS).await {
            Ok(_) => {}
            // It is there and knows us.
            Err(Refusal {
                blame: Blame::Place(Cause::Misconfigured),
                ..
            }) => {}
            Err(refusal) => return Err(refusal),
        },
    }
    connections.close_idle();
    Ok(report)
}

/// The summary of a stream; none where we may not ask.
async fn ask(streams: &Streams, name: &str) -> Result<Option<StreamDescriptionSummary>, Refusal> {
    let asked = streams.client.describe_stream_summary();
    match asked.stream_name(name).send().await {
        Ok(told) => match told.stream_description_summary {
            Some(told) if told.stream_name == name => Ok(Some(told)),
            _ => Err(something_else()),
        },
        Err(error) => match Refusal::of_request(&error) {
            Refusal {
                blame: Blame::Place(Cause::Denied),
                ..
            } => Ok(None),
            refusal => Err(refusal),
        },
    }
}

fn report_stream(name: &str, told: Option<&StreamDescriptionSummary>, report: &mut CheckReport) {
    let mode = told.and_then(StreamDescriptionSummary::stream_mode_details);
    let encryption = told.and_then(StreamDescriptionSummary::encryption_type);
    let facts = vec![
        Fact::new("status", told.map(|told| told.stream_status.as_str())),
        Fact::new("mode", mode.map(|mode| mode.stream_mode.as_str())),
        Fact::new("shards", told.map(|told| told.open_shard_count)),
        Fact::new(
            "retention_hours",
            told.map(|told| told.retention_period_hours),
        ),
        Fact::new("maximum_record_bytes", told.and_then(record_bytes_max)),
        Fact::new("encryption", encryption.map(|kind| kind.as_str())),
    ];
    report.part("stream", name, facts);
}

fn record_bytes_max(told: &StreamDescriptionSummary) -> Option<u64> {
    let kib = told.max_record_size_in_kib()?;
    u64::try_from(kib).ok().map(|kib| kib << 10)
}

fn find(sink: &KinesisSink, name: &str, told: &StreamDescriptionSummary, report: &mut CheckReport) {
    let place = format!("stream `{name}`");
    let status = &told.stream_status;
    if [StreamStatus::Creating, StreamStatus::Deleting].contains(status) {
        report.finding(Finding {
            severity: Severity::Stops,
            place: place.clone(),
            fault: format!("it takes no records while its status is {status}"),
            mend: "wait until it is ACTIVE, or create it again".to_owned(),
        });
    }
    let event_bytes_max = sink.target.event_bytes_max.unwrap_or_default();
    if let Some(largest) = record_bytes_max(told).filter(|&largest| largest < event_bytes_max) {
        report.finding(Finding {
            severity: Severity::Stops,
            place: place.clone(),
            fault: format!(
                "it takes records of {largest} bytes at the most, and `max_event_bytes` is \
                 {event_bytes_max}: it refuses larger events"
            ),
            mend: "raise its maximum record size, or lower `max_event_bytes`".to_owned(),
        });
    }
    let hours = told.retention_period_hours;
    if hours <= RETENTION_HOURS_DEFAULT {
        report.finding(Finding {
            severity: Severity::Risk,
            place,
            fault: format!("it deletes records after {hours} hours, read or not"),
            mend: "raise its retention period, to 8760 hours at the most".to_owned(),
        });
    }
}
