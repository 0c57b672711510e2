//! A check's report of the cluster's topics: of those that the cluster shows us, since an event's
//! topic is its own.

use std::{collections::HashMap, time::Duration};

use posthaste_engine::{CheckReport, Fact, Finding, Severity};
use rdkafka::{
    admin::{AdminClient, AdminOptions, ResourceSpecifier},
    metadata::MetadataTopic,
    producer::Producer as _,
};

use super::{
    client::Client,
    options::Settings,
    topic_names,
    transactional::{self, LogContext},
};

/// How long each of the two questions may take: what they do not tell in time is not seen.
const QUESTION_MAX: Duration = Duration::from_secs(1);
/// Topics whose settings are asked for: as many as a report lists.
const ASKED_MAX: usize = 100;

/// A topic as the cluster shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Shown {
    name: String,
    partitions: usize,
    leaderless: usize,
    /// The fewest of a partition.
    replicas: usize,
    /// The replicas in sync of each partition that has a leader.
    in_sync: Vec<usize>,
}

impl Shown {
    fn least_in_sync(&self) -> usize {
        match self.leaderless {
            0 => self.in_sync.iter().min().copied().unwrap_or(0),
            _ => 0,
        }
    }
}

/// The settings of a topic, as far as we may see them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct TopicSettings {
    min_in_sync: Option<usize>,
    message_bytes_max: Option<u64>,
}

/// Asks the cluster that was reached, and reports what it tells.
pub(super) async fn survey(client: &Client, settings: &Settings) -> CheckReport {
    let mut report = CheckReport::default();
    let shown = topics(client).await;
    let cluster = client.cluster().unwrap_or_default();
    let count = Fact::new("topics", shown.as_ref().map(Vec::len));
    report.part("cluster", cluster, vec![count]);
    let mut shown = shown.unwrap_or_default();
    shown.sort_by(|one, other| one.name.cmp(&other.name));
    let mut known = topic_settings(settings, &shown).await;
    for topic in &shown {
        let settings = known.remove(&topic.name).unwrap_or_default();
        add(&mut report, topic, &settings);
    }
    report
}

fn add(report: &mut CheckReport, topic: &Shown, settings: &TopicSettings) {
    let facts = vec![
        Fact::seen("partitions", topic.partitions),
        Fact::seen("replicas", topic.replicas),
        Fact::seen("in sync", topic.least_in_sync()),
        Fact::new("min.insync.replicas", settings.min_in_sync),
        Fact::new("max.message.bytes", settings.message_bytes_max),
    ];
    report.part("topic", &*topic.name, facts);
    let mut find = |severity, fault: String, mend: String| {
        let place = format!("topic `{}`", topic.name);
        report.finding(Finding {
            severity,
            place,
            fault,
            mend,
        });
    };
    let (name, all) = (&topic.name, topic.partitions);
    if topic.leaderless > 0 {
        let fault = format!(
            "{} of {all} partitions have no leader, and take nothing",
            topic.leaderless
        );
        let mend = "start the brokers again that hold their replicas, or assign them to others";
        find(Severity::Stops, fault, mend.to_owned());
    }
    let Some(min) = settings.min_in_sync else {
        return;
    };
    let below = topic.in_sync.iter().filter(|&&count| count < min).count();
    if below > 0 {
        let fault = format!(
            "{below} of {all} partitions have fewer replicas in sync than \
             min.insync.replicas={min}, and take nothing"
        );
        let mend = match topic.replicas < min {
            true => format!("give the topic {min} replicas, or lower min.insync.replicas"),
            false => "start the brokers again that hold the other replicas".to_owned(),
        };
        find(Severity::Stops, fault, mend);
    }
    if topic.replicas > 1 && min == 1 {
        let fault = "min.insync.replicas=1: an event is accepted that one replica alone has, and \
                     is lost with it";
        let mend = format!(
            "set it to 2 with `kafka-configs.sh --alter --topic {name} --add-config \
             min.insync.replicas=2`"
        );
        find(Severity::Risk, fault.to_owned(), mend);
    }
    if topic.replicas == 1 {
        let fault = "it has one replica: accepted events are lost with its broker's disk";
        let mend = "give it three replicas with `kafka-reassign-partitions.sh`".to_owned();
        find(Severity::Risk, fault.to_owned(), mend);
    }
}

/// The topics that the cluster shows us, but for the brokers' own. None: it does not tell.
async fn topics(client: &Client) -> Option<Vec<Shown>> {
    let producer = client.weak();
    let asked = tokio::task::spawn_blocking(move || {
        let producer = producer.upgrade()?;
        // Of all topics: a question by name may make one.
        let metadata = producer.client().fetch_metadata(None, QUESTION_MAX).ok()?;
        let shown = metadata.topics().iter().filter(|topic| {
            topic.error().is_none() && topic_names::refuse_name(topic.name()).is_none()
        });
        Some(shown.map(shown_topic).collect())
    });
    asked.await.ok().flatten()
}

fn shown_topic(topic: &MetadataTopic) -> Shown {
    let partitions = topic.partitions();
    let replicas = partitions
        .iter()
        .map(|partition| partition.replicas().len());
    let led = partitions
        .iter()
        .filter(|partition| partition.leader() >= 0);
    let in_sync: Vec<_> = led.map(|partition| partition.isr().len()).collect();
    Shown {
        name: topic.name().to_owned(),
        partitions: partitions.len(),
        leaderless: partitions.len() - in_sync.len(),
        replicas: replicas.min().unwrap_or(0),
        in_sync,
    }
}

/// The settings of the first topics, by their names. Those that we may not see are left out.
async fn topic_settings(settings: &Settings, shown: &[Shown]) -> HashMap<String, TopicSettings> {
    let asked: Vec<_> = shown
        .iter()
        .take(ASKED_MAX)
        .map(|topic| ResourceSpecifier::Topic(&topic.name))
        .collect();
    let admin: Result<AdminClient<LogContext>, _> =
        transactional::client(&settings.probe(), settings);
    let (false, Ok(admin)) = (asked.is_empty(), admin) else {
        return HashMap::new();
    };
    let limit = Some(QUESTION_MAX);
    let options = AdminOptions::new()
        .request_timeout(limit)
        .operation_timeout(limit);
    let answers = admin
        .describe_configs(&asked, &options)
        .await
        .unwrap_or_default();
    let known = shown.iter().zip(answers).filter_map(|(topic, answer)| {
        let config = answer.ok()?;
        let value = |name| config.get(name)?.value.as_deref();
        let settings = TopicSettings {
            min_in_sync: value("min.insync.replicas").and_then(|text| text.parse().ok()),
            message_bytes_max: value("max.message.bytes").and_then(|text| text.parse().ok()),
        };
        Some((topic.name.clone(), settings))
    });
    known.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_takes_nothing_and_what_can_be_lost_is_found() {
        for (leaderless, replicas, in_sync, min_in_sync, found) in [
            (0, 3, [3, 3], Some(2), &[][..]),
            (0, 3, [3, 2], Some(2), &[]),
            (
                0,
                3,
                [3, 1],
                Some(2),
                &[(Severity::Stops, "start the brokers")],
            ),
            (
                0,
                1,
                [1, 1],
                Some(2),
                &[(Severity::Stops, "2 replicas"), (Severity::Risk, "three")],
            ),
            (1, 3, [3, 3], Some(2), &[(Severity::Stops, "assign them")]),
            (0, 3, [3, 3], Some(1), &[(Severity::Risk, "--topic t ")]),
            (0, 1, [1, 1], Some(1), &[(Severity::Risk, "three replicas")]),
            // Not seen, and so not found.
            (0, 3, [1, 1], None, &[]),
        ] {
            let topic = Shown {
                name: "t".to_owned(),
                partitions: 2,
                leaderless,
                replicas,
                in_sync: in_sync.to_vec(),
            };
            let settings = TopicSettings {
                min_in_sync,
                message_bytes_max: None,
            };
            let mut report = CheckReport::default();
            add(&mut report, &topic, &settings);
            assert_eq!(
                report.findings().len(),
                found.len(),
                "{topic:?}: {report:?}"
            );
            for (finding, (severity, mend)) in report.findings().iter().zip(found) {
                assert_eq!(finding.severity, *severity, "{topic:?}");
                assert!(finding.mend.contains(mend), "{topic:?}: {finding:?}");
            }
        }
    }
}
