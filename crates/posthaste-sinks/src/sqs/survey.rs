//! A check's report of the queue. It asks for its URL, as delivering does, and for its attributes,
//! which needs another right: they are not seen without it.

use aws_sdk_sqs::types::QueueAttributeName;
use posthaste_engine::{Cause, CheckReport, Fact, Finding, Severity};

use super::{SqsSink, queues::Queues};
use crate::requests::refusal::{Blame, Refusal};

/// Messages that nobody has read are deleted after this time by default, and after less than it if
/// somebody said so: 4 days, in seconds.
const RETENTION_DEFAULT: u64 = 4 * 24 * 3_600;

/// The name of a queue of nobody, by which the service is asked whether it is there.
const NOBODYS: &str = "posthaste-check";

/// Reports the queue that the address names, or the service where each topic has a queue.
///
/// # Errors
/// Nothing could be sent.
pub(super) async fn survey(sink: &SqsSink) -> Result<CheckReport, Refusal> {
    let config = &sink.account.config().await?;
    let region = config.region().map(ToString::to_string);
    let connections = sink.account.connections_to_check();
    let queues = Queues::new(
        config,
        connections.clone(),
        sink.owner.clone(),
        Default::default(),
    );
    let mut report = CheckReport::default();
    let service = vec![
        Fact::new("region", region),
        Fact::seen("endpoint", sink.account.place()),
        Fact::seen("order", sink.target.order()),
        Fact::seen("largest_message_bytes", sink.target.message_bytes_max),
    ];
    report.part("service", "sqs", service);
    match sink.target.names.only_name() {
        Some(name) => survey_queue(sink, &queues, name, &mut report).await?,
        None => expect_service(&queues).await?,
    }
    connections.close_idle();
    Ok(report)
}

/// A refusal over the queue shows that the service is there and knows us.
async fn expect_service(queues: &Queues) -> Result<(), Refusal> {
    match queues.url(NOBODYS).await {
        Ok(_) => Ok(()),
        Err(Refusal {
            blame: Blame::Place(Cause::Misconfigured | Cause::Denied),
            ..
        }) => Ok(()),
        Err(refusal) => Err(refusal),
    }
}

async fn survey_queue(
    sink: &SqsSink,
    queues: &Queues,
    name: &str,
    report: &mut CheckReport,
) -> Result<(), Refusal> {
    let url = queues.url(name).await?;
    let asked = queues.client.get_queue_attributes().queue_url(&*url);
    let asked = asked.attribute_names(QueueAttributeName::All).send().await;
    let told = match asked {
        Ok(told) => told.attributes,
        Err(error) => match Refusal::of_request(&error) {
            Refusal {
                blame: Blame::Place(Cause::Denied),
                ..
            } => None,
            refusal => return Err(refusal),
        },
    };
    let told = told.unwrap_or_default();
    let seen = |name: QueueAttributeName| told.get(&name).map(String::as_str);
    let encryption = match (
        seen(QueueAttributeName::KmsMasterKeyId),
        seen(QueueAttributeName::SqsManagedSseEnabled),
    ) {
        (Some(key), _) if !key.is_empty() => Some("kms"),
        (_, Some("true")) => Some("sqs"),
        (_, Some(_)) => Some("no"),
        _ => None,
    };
    let largest = seen(QueueAttributeName::MaximumMessageSize);
    let retention = seen(QueueAttributeName::MessageRetentionPeriod);
    let facts = vec![
        Fact::new("maximum_message_bytes", largest),
        Fact::new("retention_seconds", retention),
        Fact::new(
            "messages",
            seen(QueueAttributeName::ApproximateNumberOfMessages),
        ),
        Fact::new("encryption", encryption),
        Fact::new("dead_letters", seen(QueueAttributeName::RedrivePolicy)),
    ];
    report.part("queue", name, facts);
    let number = |text: Option<&str>| text.and_then(|text| text.parse::<u64>().ok());
    let place = format!("queue `{name}`");
    let event_bytes_max = sink.target.event_bytes_max.unwrap_or_default();
    if let Some(largest) = number(largest).filter(|&largest| largest < event_bytes_max) {
        report.finding(Finding {
            severity: Severity::Stops,
            place: place.clone(),
            fault: format!(
                "it takes messages of {largest} bytes at the most, and `max_event_bytes` is \
                 {event_bytes_max}: it refuses larger events"
            ),
            mend: "raise its `MaximumMessageSize`, or lower `max_event_bytes`".to_owned(),
        });
    }
    if let Some(seconds) = number(retention).filter(|&seconds| seconds < RETENTION_DEFAULT) {
        report.finding(Finding {
            severity: Severity::Risk,
            place,
            fault: format!("it deletes messages after {seconds} seconds, read or not"),
            mend: "raise its `MessageRetentionPeriod`, to 1209600 at the most".to_owned(),
        });
    }
    Ok(())
}
