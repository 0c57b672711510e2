//! A check's report of the topic. It asks for its attributes, which needs a right that delivering
//! does not: they are not seen without it.

use std::sync::Arc;

use aws_sdk_sns::operation::get_topic_attributes::GetTopicAttributesOutput;
use posthaste_engine::{Cause, CheckReport, Fact, Finding, Severity};

use super::{SnsSink, topics::Topics};
use crate::requests::refusal::{Blame, Refusal};

/// The name of a topic of nobody, by which the service is asked whether it is there.
const NOBODYS: &str = "posthaste-check";

/// Reports the topic that the address names, or the service where each has one.
///
/// # Errors
/// Nothing could be published.
pub(super) async fn survey(sink: &SnsSink) -> Result<CheckReport, Refusal> {
    let config = &sink.account.config().await?;
    let region = config.region().map(ToString::to_string);
    let connections = sink.account.connections_to_check();
    let topics = Topics::new(config, connections.clone(), Arc::clone(&sink.arn));
    let mut report = CheckReport::default();
    let service = vec![
        Fact::new("region", region),
        Fact::seen("endpoint", sink.account.place()),
        Fact::seen("order", sink.target.order()),
        Fact::seen("largest_message_bytes", sink.target.message_bytes_max),
    ];
    report.part("service", "sns", service);
    match sink.target.names.only_name() {
        Some(name) => {
            let told = ask(sink, &topics, name).await?;
            report_topic(name, told.as_ref(), &mut report);
        }
        None => match ask(sink, &topics, NOBODYS).await {
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

/// The attributes of a topic; none where we may not ask.
async fn ask(
    sink: &SnsSink,
    topics: &Topics,
    name: &str,
) -> Result<Option<GetTopicAttributesOutput>, Refusal> {
    let asked = topics.client.get_topic_attributes();
    let told = asked.topic_arn(sink.arn.of_topic(name)).send().await;
    match told {
        Ok(told) => Ok(Some(told)),
        Err(error) => match Refusal::of_request(&error) {
            Refusal {
                blame: Blame::Place(Cause::Denied),
                ..
            } => Ok(None),
            refusal => Err(refusal),
        },
    }
}

fn report_topic(name: &str, told: Option<&GetTopicAttributesOutput>, report: &mut CheckReport) {
    let attributes = told.and_then(GetTopicAttributesOutput::attributes);
    let seen = |name: &str| attributes.and_then(|all| all.get(name)).map(String::as_str);
    let subscriptions = seen("SubscriptionsConfirmed");
    let encryption = attributes.map(|all| match all.contains_key("KmsMasterKeyId") {
        true => "kms",
        false => "no",
    });
    let facts = vec![
        Fact::new("subscriptions", subscriptions),
        Fact::new("subscriptions_pending", seen("SubscriptionsPending")),
        Fact::new("encryption", encryption),
    ];
    report.part("topic", name, facts);
    if subscriptions == Some("0") {
        report.finding(Finding {
            severity: Severity::Risk,
            place: format!("topic `{name}`"),
            fault: "it has no subscription: SNS takes events and gives them to nobody".to_owned(),
            mend: "subscribe a queue, or whoever is to have them".to_owned(),
        });
    }
}
