//! A check's report of the topic and of its subscriptions. It needs rights that publishing does
//! not: what we may not ask is not seen.

use posthaste_engine::{Cause, CheckReport, Fact, Finding, Severity};

use super::{
    PubSubSink,
    topics::{Topics, resource},
    wire::{
        GetSubscriptionRequest, GetTopicRequest, ListTopicSubscriptionsRequest, Question,
        Subscription, TestIamPermissionsRequest, Topic,
    },
};
use crate::requests::refusal::{Blame, Refusal};

/// The name of a topic of nobody, by which the service is asked whether it is there.
const NOBODYS: &str = "posthaste-check";

/// The right that publishing needs.
const PUBLISH: &str = "pubsub.topics.publish";

/// Subscriptions that are looked at: each is a question.
const SUBSCRIPTIONS_MAX: i32 = 10;

/// Reports the topic that the address names, or the service where each topic has one.
///
/// # Errors
/// Nothing could be published.
pub(super) async fn survey(sink: &PubSubSink, topics: &Topics) -> Result<CheckReport, Refusal> {
    let mut report = CheckReport::default();
    let service = vec![
        Fact::seen("project", &sink.project),
        Fact::seen("endpoint", sink.server.endpoint.authority()),
        Fact::seen(
            "order",
            "of each key, where subscriptions have message ordering",
        ),
        Fact::seen("largest_message_bytes", sink.target.message_bytes_max),
    ];
    report.part("service", "pubsub", service);
    match sink.target.names.only_name() {
        Some(name) => survey_topic(topics, name, &mut report).await?,
        None => expect_service(topics).await?,
    }
    Ok(report)
}

/// A refusal over the topic shows that the service is there and knows us.
async fn expect_service(topics: &Topics) -> Result<(), Refusal> {
    let topic = resource(&topics.project, NOBODYS);
    match topics.channel.call(&GetTopicRequest { topic }).await {
        Ok(_) => Ok(()),
        Err(Refusal {
            blame: Blame::Place(Cause::Misconfigured | Cause::Denied),
            ..
        }) => Ok(()),
        Err(refusal) => Err(refusal),
    }
}

/// The answer; none where we may not ask, or where a server does not know the question.
async fn ask<Q: Question>(topics: &Topics, question: &Q) -> Result<Option<Q::Answer>, Refusal> {
    match topics.channel.call(question).await {
        Ok(answer) => Ok(Some(answer)),
        Err(Refusal {
            blame: Blame::Place(Cause::Denied),
            ..
        }) => Ok(None),
        Err(refusal) => Err(refusal),
    }
}

async fn survey_topic(
    topics: &Topics,
    name: &str,
    report: &mut CheckReport,
) -> Result<(), Refusal> {
    let topic = resource(&topics.project, name);
    let told = ask(
        topics,
        &GetTopicRequest {
            topic: topic.clone(),
        },
    )
    .await?;
    let may_publish = may_publish(topics, &topic).await?;
    let page_size = SUBSCRIPTIONS_MAX;
    let question = ListTopicSubscriptionsRequest { topic, page_size };
    let subscriptions = ask(topics, &question).await?.map(|told| told.subscriptions);
    report_topic(
        name,
        told.as_ref(),
        may_publish,
        subscriptions.as_deref(),
        report,
    );
    for subscription in subscriptions.unwrap_or_default() {
        let question = GetSubscriptionRequest { subscription };
        let told = match topics.channel.call(&question).await {
            Ok(told) => Some(told),
            // It may be gone meanwhile.
            Err(Refusal {
                blame: Blame::Place(_),
                ..
            }) => None,
            Err(refusal) => return Err(refusal),
        };
        report_subscription(&question.subscription, told.as_ref(), report);
    }
    Ok(())
}

/// Whether we may publish. Everybody may ask; an emulator need not know the question.
async fn may_publish(topics: &Topics, topic: &str) -> Result<Option<bool>, Refusal> {
    let question = TestIamPermissionsRequest {
        resource: topic.to_owned(),
        permissions: vec![PUBLISH.to_owned()],
    };
    match topics.channel.call(&question).await {
        Ok(ours) => Ok(Some(ours.permissions.iter().any(|right| right == PUBLISH))),
        Err(Refusal {
            blame: Blame::Place(Cause::Denied) | Blame::Unclear(Cause::Misconfigured),
            ..
        }) => Ok(None),
        Err(refusal) => Err(refusal),
    }
}

fn report_topic(
    name: &str,
    told: Option<&Topic>,
    may_publish: Option<bool>,
    subscriptions: Option<&[String]>,
    report: &mut CheckReport,
) {
    let seconds = told.map(|told| told.retention.as_ref().map_or(0, |time| time.seconds));
    let regions = told.map(|told| match &told.storage {
        Some(storage) if !storage.regions.is_empty() => storage.regions.join(", "),
        _ => "any".to_owned(),
    });
    let schema = told.map(|told| match &told.schema {
        Some(settings) => settings.schema.as_str(),
        None => "none",
    });
    let key = told.map(|told| match told.kms_key_name.as_str() {
        "" => "Google's",
        key => key,
    });
    let count = subscriptions.map(|all| match i32::try_from(all.len()) {
        Ok(count) if count < SUBSCRIPTIONS_MAX => count.to_string(),
        _ => format!("{SUBSCRIPTIONS_MAX} or more"),
    });
    let facts = vec![
        Fact::new("may_publish", may_publish),
        Fact::new("subscriptions", count),
        Fact::new("retention_seconds", seconds),
        Fact::new("regions", regions),
        Fact::new("schema", schema),
        Fact::new("encryption_key", key),
    ];
    report.part("topic", name, facts);
    let place = format!("topic `{name}`");
    if may_publish == Some(false) {
        report.finding(Finding {
            severity: Severity::Stops,
            place: place.clone(),
            fault: format!("our account has no `{PUBLISH}` there, or the topic is not there"),
            mend: "give it the role `roles/pubsub.publisher` on the topic, or create that"
                .to_owned(),
        });
    }
    if subscriptions.is_some_and(<[_]>::is_empty) && seconds == Some(0) {
        report.finding(Finding {
            severity: Severity::Risk,
            place,
            fault: "it has no subscription and keeps nothing: Pub/Sub takes events and drops them"
                .to_owned(),
            mend: "create a subscription before the first event, or give the topic a retention"
                .to_owned(),
        });
    }
}

fn report_subscription(name: &str, told: Option<&Subscription>, report: &mut CheckReport) {
    let name = name.rsplit('/').next().unwrap_or(name);
    let seconds = told.and_then(|told| told.retention.as_ref());
    let facts = vec![
        Fact::new("ordering", told.map(|told| told.has_ordering)),
        Fact::new("retention_seconds", seconds.map(|time| time.seconds)),
    ];
    report.part("subscription", name, facts);
    if told.is_some_and(|told| !told.has_ordering) {
        report.finding(Finding {
            severity: Severity::Risk,
            place: format!("subscription `{name}`"),
            fault: "it has no message ordering: its consumers get the events of a key in any order"
                .to_owned(),
            mend: "create it anew with `--enable-message-ordering`, which cannot be changed later"
                .to_owned(),
        });
    }
}
