//! Questions to the cluster about its topics.

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, Weak},
    thread,
    time::{Duration, Instant},
};

use rdkafka::{
    metadata::{MetadataPartition, MetadataTopic},
    producer::Producer as _,
    types::RDKafkaErrorCode as Code,
};

use super::{
    client::{Client, Producer},
    directory::{Directory, Question, TopicLayout},
};

/// When a missing topic is asked for again before it counts as missing: a broker that makes topics
/// on demand answers the first question with "unknown".
const ASK_AGAIN_AFTER: [Duration; 3] = [
    Duration::from_millis(100),
    Duration::from_millis(150),
    Duration::from_millis(250),
];

/// Asks the cluster, and tells the directory the answer. A client that could not ask tells its
/// lane.
pub(super) fn answer(
    client: &Client,
    directory: &Arc<Directory>,
    question: Question,
    limit: Duration,
) {
    let (weak, shared) = (client.weak(), client.shared());
    let directory = Arc::clone(directory);
    tokio::task::spawn_blocking(move || match question {
        Question::ByName(name) => {
            let found = by_name(&weak, &name, limit);
            if let Err(code) = directory.answered(&name, found, Instant::now()) {
                shared.tell(|news| news.not_looked_up.push((name, code)));
            }
        }
        Question::All(names) => {
            let shown = all(&weak, &names, limit);
            directory.all_answered(&names, shown, Instant::now());
        }
    });
}

/// Asks for one topic by its name, which a broker that makes topics on demand takes for an order.
fn by_name(producer: &Weak<Producer>, topic: &str, limit: Duration) -> Result<TopicLayout, Code> {
    let until = Instant::now() + limit;
    let mut waits = ASK_AGAIN_AFTER.into_iter();
    let mut missing = None;
    loop {
        let found = match producer.upgrade() {
            Some(producer) => ask(&producer, topic, left(until)),
            None => Err(Code::OperationTimedOut),
        };
        let code = match found {
            // Out of time with the answer known.
            Err(Code::OperationTimedOut) => return Err(missing.unwrap_or(Code::OperationTimedOut)),
            Err(code) if may_come(code) => code,
            found => return found,
        };
        match waits.next() {
            Some(wait) if wait < left(until) => thread::sleep(wait),
            _ => return Err(code),
        }
        missing = Some(code);
    }
}

/// Asks for all topics at once, and answers those of `names` that the cluster shows us. Makes none.
fn all(
    producer: &Weak<Producer>,
    names: &HashSet<Box<str>>,
    limit: Duration,
) -> Result<HashMap<Box<str>, Result<TopicLayout, Code>>, Code> {
    let producer = producer.upgrade().ok_or(Code::OperationTimedOut)?;
    let metadata = producer.client().fetch_metadata(None, limit);
    let metadata = metadata.map_err(|error| error.rdkafka_error_code().unwrap_or(Code::Unknown))?;
    let shown = metadata.topics().iter();
    let shown = shown.filter(|topic| names.contains(topic.name()));
    Ok(shown
        .map(|topic| (topic.name().into(), layout(topic)))
        .collect())
}

fn left(until: Instant) -> Duration {
    until.saturating_duration_since(Instant::now())
}

/// Whether a topic may be there a moment later.
fn may_come(code: Code) -> bool {
    matches!(
        code,
        Code::UnknownTopicOrPartition | Code::UnknownTopic | Code::LeaderNotAvailable
    )
}

fn ask(producer: &Producer, topic: &str, limit: Duration) -> Result<TopicLayout, Code> {
    let metadata = producer.client().fetch_metadata(Some(topic), limit);
    let metadata = metadata.map_err(|error| error.rdkafka_error_code().unwrap_or(Code::Unknown))?;
    let found = metadata.topics().first();
    layout(found.ok_or(Code::UnknownTopicOrPartition)?)
}

fn layout(topic: &MetadataTopic) -> Result<TopicLayout, Code> {
    if let Some(error) = topic.error() {
        return Err(error.into());
    }
    let partitions = topic.partitions();
    if partitions.is_empty() {
        return Err(Code::LeaderNotAvailable);
    }
    let leaderless = partitions.iter().filter(|partition| {
        let error = partition.error().map(Code::from);
        partition.leader() < 0 || error == Some(Code::LeaderNotAvailable)
    });
    let leaderless = leaderless.filter_map(|partition| usize::try_from(partition.id()).ok());
    Ok(TopicLayout {
        partitions: partitions.len(),
        leaderless: Arc::new(leaderless.collect()),
        leaders: partitions.iter().map(MetadataPartition::leader).collect(),
    })
}
