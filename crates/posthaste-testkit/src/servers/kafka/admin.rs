//! Topics made and removed through the client library's administration calls.

use super::waiting::{LIMIT, answer, until};
use super::{KafkaServer, SASL_USERS};
use crate::blocking::wait_for;
use crate::tls::TestCa;
use rdkafka::ClientConfig;
use rdkafka::admin::{
    AdminClient, AdminOptions, AlterConfig, NewTopic, ResourceSpecifier, TopicReplication,
};
use rdkafka::client::DefaultClientContext;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::KafkaError;
use rdkafka::types::RDKafkaErrorCode;

/// A broker refuses to make ten thousand partitions by one request.
const AT_ONCE: usize = 1_000;

impl KafkaServer {
    /// Makes a topic with settings such as `("max.message.bytes", "1000")`; returns when each of
    /// its partitions can be produced to.
    ///
    /// # Panics
    ///
    /// When the broker refuses it, for instance because it exists.
    pub fn create_topic(&self, name: &str, partitions: i32, config: &[(&str, &str)]) {
        self.create_topics(&[name], partitions, config);
    }

    /// [`Self::create_topic`] for many topics at once.
    ///
    /// # Panics
    ///
    /// When the broker refuses one of them, for instance because it exists.
    pub fn create_topics(&self, names: &[&str], partitions: i32, config: &[(&str, &str)]) {
        let mut topics = Vec::new();
        for name in names {
            let mut topic = NewTopic::new(name, partitions, TopicReplication::Fixed(1));
            for (name, value) in config {
                topic = topic.set(name, value);
            }
            topics.push(topic);
        }
        let admin = self.admin();
        for some in topics.chunks(AT_ONCE) {
            let answers = wait_for(|| admin.create_topics(some, &options()));
            expect_success(answers, &format!("{} and others", some[0].name));
        }
        let consumer = self.consumer(&[]);
        for name in names {
            for partition in 0..partitions {
                // Watermarks are told by a leader only, and the metadata names it a moment earlier.
                watermarks(&consumer, name, partition);
            }
        }
    }

    /// Makes a topic of one partition with replicas on these brokers, the first of which is to
    /// lead; returns when all are in sync.
    ///
    /// # Panics
    ///
    /// When the broker refuses it, for instance because it exists.
    pub fn create_replicated(&self, name: &str, brokers: &[i32], config: &[(&str, &str)]) {
        let assignment = [brokers];
        let mut topic = NewTopic::new(name, 1, TopicReplication::Variable(&assignment));
        for (name, value) in config {
            topic = topic.set(name, value);
        }
        let admin = self.admin();
        let answers = wait_for(|| admin.create_topics([&topic], &options()));
        expect_success(answers, name);
        self.until_in_sync(name, brokers);
    }

    /// Waits until the in-sync replicas of a topic's first partition are on these brokers, and no
    /// others.
    ///
    /// # Panics
    ///
    /// When that does not come true within a minute.
    pub fn until_in_sync(&self, name: &str, brokers: &[i32]) {
        let consumer = self.consumer(&[]);
        until(&format!("{name} is in sync on {brokers:?}"), || {
            let Ok(metadata) = consumer.fetch_metadata(Some(name), LIMIT) else {
                return false;
            };
            let topic = metadata.topics().first();
            let partition = topic.and_then(|topic| topic.partitions().first());
            partition.is_some_and(|partition| {
                let mut in_sync = partition.isr().to_vec();
                in_sync.sort_unstable();
                in_sync == brokers && brokers.contains(&partition.leader())
            })
        });
    }

    /// Waits until no partition of a topic has a leader.
    ///
    /// # Panics
    ///
    /// When that does not come true within a minute.
    pub fn until_leaderless(&self, name: &str) {
        let consumer = self.consumer(&[]);
        until(&format!("{name} has no leader"), || {
            let Ok(metadata) = consumer.fetch_metadata(Some(name), LIMIT) else {
                return false;
            };
            let partitions = metadata.topics().first().map(|topic| topic.partitions());
            partitions.is_some_and(|all| {
                !all.is_empty() && all.iter().all(|partition| partition.leader() < 0)
            })
        });
    }

    /// Gives a topic these settings, and takes away all that it had of its own.
    ///
    /// # Panics
    ///
    /// When the broker refuses it.
    pub fn configure_topic(&self, name: &str, config: &[(&str, &str)]) {
        let mut change = AlterConfig::new(ResourceSpecifier::Topic(name));
        for (name, value) in config {
            change = change.set(name, value);
        }
        let admin = self.admin();
        let answers = wait_for(|| admin.alter_configs([&change], &options()));
        for answer in answers.unwrap_or_else(|e| panic!("topic {name}: {e}")) {
            answer.unwrap_or_else(|(_, code)| panic!("topic {name}: {code}"));
        }
    }

    /// Removes a topic; returns when the broker no longer knows it.
    ///
    /// # Panics
    ///
    /// When the broker refuses it, for instance because it does not exist.
    pub fn delete_topic(&self, name: &str) {
        let admin = self.admin();
        let answers = wait_for(|| admin.delete_topics(&[name], &options()));
        expect_success(answers, name);
        let consumer = self.consumer(&[]);
        until(&format!("{name} is gone"), || {
            matches!(
                consumer.fetch_watermarks(name, 0, LIMIT),
                Err(KafkaError::MetadataFetch(
                    RDKafkaErrorCode::UnknownTopicOrPartition
                        | RDKafkaErrorCode::UnknownTopic
                        | RDKafkaErrorCode::UnknownPartition
                ))
            )
        });
    }

    /// The offset behind what each partition shows to a consumer that reads what is committed, by
    /// partition number: without transactions and compaction, how many records it has been given. A
    /// broker that is away is waited for.
    ///
    /// # Panics
    ///
    /// When the topic does not exist, or the broker stays away for a minute.
    #[must_use]
    pub fn high_watermarks(&self, topic: &str) -> Vec<i64> {
        self.ends(topic, "read_committed")
    }

    /// The offset that each partition's next record gets, behind what belongs to open transactions
    /// too. A broker that is away is waited for.
    ///
    /// # Panics
    ///
    /// When the topic does not exist, or the broker stays away for a minute.
    #[must_use]
    pub fn log_ends(&self, topic: &str) -> Vec<i64> {
        self.ends(topic, "read_uncommitted")
    }

    fn ends(&self, topic: &str, isolation: &str) -> Vec<i64> {
        let consumer = self.consumer(&[("isolation.level", isolation)]);
        (0..partition_count(&consumer, topic))
            .map(|partition| watermarks(&consumer, topic, partition).1)
            .collect()
    }

    /// A broker's first handshakes and logins load their classes, on a busy machine for seconds: no
    /// time of a test.
    pub(super) fn each_user_logs_in(&self, ca: &TestCa) {
        let authorities = ca.certificate_file();
        for user in SASL_USERS {
            let consumer = self.consumer(&[
                ("bootstrap.servers", &self.sasl_ssl()),
                ("security.protocol", "sasl_ssl"),
                ("sasl.mechanism", user.mechanism),
                ("sasl.username", user.name),
                ("sasl.password", user.password),
                ("ssl.ca.location", &authorities.to_string_lossy()),
            ]);
            answer(user.name, |left| consumer.fetch_metadata(None, left));
        }
    }

    /// A consumer past any proxy, in a group that it never joins.
    pub(super) fn consumer(&self, settings: &[(&str, &str)]) -> BaseConsumer {
        let mut config = ClientConfig::new();
        config
            .set("bootstrap.servers", self.direct())
            // Partitions cannot even be assigned by hand without one.
            .set("group.id", "posthaste-testkit")
            .set("enable.auto.commit", "false")
            // The client's own choice, the end, would skip records after a fault of one fetch.
            .set("auto.offset.reset", "earliest")
            // Or the end of a topic is told half a second late.
            .set("fetch.wait.max.ms", "10");
        for (name, value) in settings {
            config.set(*name, *value);
        }
        config.create().expect("make a consumer")
    }

    /// To be kept until its answers are there: they come from a thread that it ends when dropped.
    fn admin(&self) -> AdminClient<DefaultClientContext> {
        ClientConfig::new()
            .set("bootstrap.servers", self.direct())
            .create()
            .expect("make an admin client")
    }
}

pub(super) fn partition_count(consumer: &BaseConsumer, topic: &str) -> i32 {
    let metadata = answer(&format!("metadata of {topic}"), |left| {
        consumer.fetch_metadata(Some(topic), left)
    });
    let partitions = metadata.topics()[0].partitions().len();
    assert!(partitions > 0, "topic {topic} does not exist");
    i32::try_from(partitions).expect("a number of partitions")
}

/// The offsets of the first record and of the one after the last.
///
/// Asked again whatever the error: a broker that starts again has no connection, then serves before
/// it leads its partitions, and may be missing from its own metadata meanwhile, upon which the
/// client discards what it asks it. Each has a code of its own.
pub(super) fn watermarks(consumer: &BaseConsumer, topic: &str, partition: i32) -> (i64, i64) {
    answer(&format!("watermarks of {topic}/{partition}"), |left| {
        consumer.fetch_watermarks(topic, partition, left)
    })
}

fn options() -> AdminOptions {
    AdminOptions::new()
        .request_timeout(Some(LIMIT))
        .operation_timeout(Some(LIMIT))
}

fn expect_success(answers: Result<Vec<rdkafka::admin::TopicResult>, KafkaError>, topic: &str) {
    for answer in answers.unwrap_or_else(|e| panic!("topic {topic}: {e}")) {
        answer.unwrap_or_else(|(_, code)| panic!("topic {topic}: {code}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    #[test]
    fn a_question_that_the_client_discards_with_its_broker_is_asked_again() {
        let asked = Cell::new(0);
        let answered = answer("watermarks", |_| {
            asked.set(asked.get() + 1);
            match asked.get() {
                1 => Err(KafkaError::MetadataFetch(RDKafkaErrorCode::DestroyBroker)),
                _ => Ok(asked.get()),
            }
        });
        assert_eq!(answered, 2);
    }
}
