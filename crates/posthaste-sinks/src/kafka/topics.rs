//! What a lane knows of topics: their partitions, and where a record goes.
//!
//! The lane chooses the partition, not the client library: only so can it tell which records the
//! broker will keep in order.

use std::{
    collections::HashMap,
    sync::Weak,
    thread,
    time::{Duration, Instant},
};

use posthaste_engine::{Outcome, Record, RejectionKind};
use rdkafka::{producer::Producer as _, types::RDKafkaErrorCode as Code};

use super::client::Producer;

/// How long a topic's partitions are believed before they are looked up again, beside the traffic.
const KNOWN_FOR: Duration = Duration::from_secs(60);
/// How long a topic stays missing or denied, so that its events do not ask the cluster one by one.
const REFUSED_FOR: Duration = Duration::from_secs(1);
/// A partition that took nothing for so long is opened anew: the broker may have forgotten us. Far
/// below the broker's `producer.id.expiration.ms` (a day).
const OPEN_FOR: Duration = Duration::from_secs(60);
/// When a missing topic is asked for again before it counts as missing: a broker that makes topics on
/// demand answers the first question with "unknown".
const ASK_AGAIN_AFTER: [Duration; 3] = [
    Duration::from_millis(100),
    Duration::from_millis(150),
    Duration::from_millis(250),
];
/// Look-ups at a time. Each takes a thread, and a missing topic takes half a second.
const LOOK_UPS_MAX: usize = 8;

/// A topic and a partition of it: within one, the broker keeps the order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place {
    /// Index in [`Topics`].
    pub(super) topic: usize,
    pub(super) partition: usize,
}

/// The answer to a look-up.
pub(super) struct Answer {
    pub(super) index: usize,
    pub(super) found: Result<usize, Code>,
}

/// The topics that a lane has met.
#[derive(Default)]
pub(super) struct Topics {
    by_name: HashMap<Box<str>, usize>,
    topics: Vec<Topic>,
    asking: usize,
}

struct Topic {
    name: Box<str>,
    state: State,
    asking: bool,
}

enum State {
    Unknown,
    Known {
        partitions: Vec<Partition>,
        until: Instant,
    },
    Refused {
        kind: RejectionKind,
        reason: String,
        until: Instant,
    },
}

/// A partition, as this producer knows it.
#[derive(Debug, Clone, Copy, Default)]
struct Partition {
    state: Opened,
    in_flight: usize,
}

/// Whether the broker can tell that something is missing in front of what we send to a partition.
///
/// A broker takes *any* first sequence number of a producer that it does not know in a partition. So
/// until a partition has accepted a record of this producer, a second batch can be accepted although
/// the first was refused: a single record goes ahead and opens the partition.
#[derive(Debug, Clone, Copy, Default)]
enum Opened {
    #[default]
    No,
    /// The first record is under way.
    Opening,
    /// It took a record at this time.
    Yes(Instant),
}

/// What is known about where a record may go.
pub(super) enum Route {
    /// The number of partitions.
    Partitions(usize),
    /// Being looked up, or to be looked up.
    NotYet,
    /// Nowhere.
    Refused(Outcome),
}

/// Whether a partition takes a record now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Entry {
    /// Yes.
    Open,
    /// Yes, this one, and no other until it is answered.
    First,
    /// When the first one is answered.
    Wait,
}

impl Topics {
    /// The topic's index.
    pub(super) fn index(&mut self, name: &str) -> usize {
        if let Some(&index) = self.by_name.get(name) {
            return index;
        }
        let index = self.topics.len();
        let state = match refuse_name(name) {
            None => State::Unknown,
            Some(reason) => State::Refused {
                kind: RejectionKind::Invalid,
                reason,
                // A name does not mend; a minute more or less is nobody's concern.
                until: Instant::now() + Duration::from_secs(1 << 32),
            },
        };
        self.topics.push(Topic {
            name: name.into(),
            state,
            asking: false,
        });
        self.by_name.insert(name.into(), index);
        index
    }

    pub(super) fn name(&self, index: usize) -> &str {
        &self.topics[index].name
    }

    /// Where the topic's records go, as far as is known.
    pub(super) fn route(&self, index: usize, now: Instant) -> Route {
        match &self.topics[index].state {
            State::Known { partitions, .. } => Route::Partitions(partitions.len()),
            State::Refused {
                kind,
                reason,
                until,
            } if now < *until => Route::Refused(Outcome::rejected(*kind, reason.as_str())),
            State::Unknown | State::Refused { .. } => Route::NotYet,
        }
    }

    /// Whether the topic should be looked up now; the caller does it.
    pub(super) fn wants_look_up(&mut self, index: usize, now: Instant) -> bool {
        let topic = &mut self.topics[index];
        let is_due = match &topic.state {
            State::Unknown => true,
            State::Known { until, .. } | State::Refused { until, .. } => now >= *until,
        };
        if !is_due || topic.asking || self.asking == LOOK_UPS_MAX {
            return false;
        }
        topic.asking = true;
        self.asking += 1;
        true
    }

    /// Takes the answer to a look-up.
    ///
    /// # Errors
    /// What keeps the topic from being known, when that is not the topic's fault.
    pub(super) fn answered(&mut self, answer: Answer, now: Instant) -> Result<(), Code> {
        let topic = &mut self.topics[answer.index];
        topic.asking = false;
        self.asking -= 1;
        let name = &topic.name;
        let refusal = match answer.found {
            Ok(count) => {
                let until = now + KNOWN_FOR;
                match &mut topic.state {
                    State::Known {
                        partitions,
                        until: known_until,
                    } => {
                        partitions.resize(count, Partition::default());
                        *known_until = until;
                    }
                    state => {
                        let partitions = vec![Partition::default(); count];
                        *state = State::Known { partitions, until };
                    }
                }
                return Ok(());
            }
            Err(Code::UnknownTopicOrPartition | Code::UnknownTopic) => (
                RejectionKind::Unroutable,
                format!("topic `{name}` does not exist; create it, or route the event to another"),
            ),
            Err(Code::TopicAuthorizationFailed) => (RejectionKind::Denied, denial(name)),
            Err(Code::InvalidTopic) => (
                RejectionKind::Invalid,
                format!("the broker takes no topic of the name `{name}`"),
            ),
            Err(code) => {
                if let State::Known { until, .. } = &mut topic.state {
                    // What is known may well be right still: sending will show.
                    *until = now + REFUSED_FOR;
                    return Ok(());
                }
                return Err(code);
            }
        };
        topic.state = State::Refused {
            kind: refusal.0,
            reason: refusal.1,
            until: now + REFUSED_FOR,
        };
        Ok(())
    }

    /// The producer is another one: no partition knows it, and nobody answers for the old one.
    pub(super) fn forget_producer(&mut self) {
        self.asking = 0;
        for topic in &mut self.topics {
            topic.asking = false;
            if let State::Known { partitions, .. } = &mut topic.state {
                partitions.fill(Partition::default());
            }
        }
    }

    /// Whether the partition takes a record now.
    pub(super) fn entry(&self, place: Place, now: Instant) -> Entry {
        let State::Known { partitions, .. } = &self.topics[place.topic].state else {
            return Entry::Wait;
        };
        match partitions.get(place.partition) {
            Some(partition) => partition.entry(now),
            None => Entry::Wait,
        }
    }

    /// A record is under way to the partition.
    pub(super) fn sent(&mut self, place: Place, now: Instant) {
        if let Some(partition) = self.partition(place) {
            if partition.entry(now) == Entry::First {
                partition.state = Opened::Opening;
            }
            partition.in_flight += 1;
        }
    }

    /// The partition took a record.
    pub(super) fn accepted(&mut self, place: Place, now: Instant) {
        if let Some(partition) = self.partition(place) {
            partition.state = Opened::Yes(now);
            partition.in_flight = partition.in_flight.saturating_sub(1);
        }
    }

    /// The client knows the topic's partitions otherwise.
    pub(super) fn forget(&mut self, index: usize) {
        self.topics[index].state = State::Unknown;
    }

    fn partition(&mut self, place: Place) -> Option<&mut Partition> {
        match &mut self.topics[place.topic].state {
            State::Known { partitions, .. } => partitions.get_mut(place.partition),
            State::Unknown | State::Refused { .. } => None,
        }
    }
}

impl Partition {
    fn entry(self, now: Instant) -> Entry {
        match self.state {
            Opened::No => Entry::First,
            Opened::Opening => Entry::Wait,
            Opened::Yes(at) if self.in_flight == 0 && now.duration_since(at) > OPEN_FOR => {
                Entry::First
            }
            Opened::Yes(_) => Entry::Open,
        }
    }
}

/// What the operator is told when a topic is denied.
pub(super) fn denial(name: &str) -> String {
    format!("topic `{name}`: we may not write to it; allow the user WRITE and DESCRIBE on it")
}

/// Why no broker can have a topic of this name.
pub(super) fn refuse_name(name: &str) -> Option<String> {
    const LEN_MAX: usize = 249;
    let is_good = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    if name.is_empty() {
        Some("the event has an empty topic".to_owned())
    } else if name.len() > LEN_MAX {
        Some(format!(
            "the topic's name has {} bytes, Kafka takes {LEN_MAX}",
            name.len()
        ))
    } else if matches!(name, "." | "..") || !name.bytes().all(is_good) {
        Some(format!(
            "topic `{name}`: Kafka takes letters, digits, `.`, `_` and `-` only"
        ))
    } else {
        None
    }
}

/// The topic that the client's log names as refused to a transaction.
pub(super) fn named_in_refusal<'a>(facility: &str, message: &'a str) -> Option<&'a str> {
    if facility != "ADDPARTS" {
        return None;
    }
    if !message.ends_with("Topic authorization failed") {
        return None;
    }
    let (_, rest) = message.split_once("Failed to add partition \"")?;
    Some(rest.split_once('"')?.0)
}

/// The partition of a record: as Java's default partitioner chooses it for a record with a key. Without
/// one any partition will do, `rotation` chooses; a key of order keeps to one of them.
pub(super) fn place(record: &Record, count: usize, rotation: usize) -> usize {
    match (record.key(), record.order_key()) {
        (Some(key), _) => partition_of(key.as_bytes(), count),
        (None, Some(order)) => partition_of(&order.to_le_bytes(), count),
        (None, None) => rotation % count,
    }
}

/// Asks the cluster for a topic's number of partitions. Blocks.
pub(super) fn look_up(
    producer: &Weak<Producer>,
    topic: &str,
    limit: Duration,
) -> Result<usize, Code> {
    let mut waits = ASK_AGAIN_AFTER.into_iter();
    loop {
        let found = match producer.upgrade() {
            Some(producer) => ask(&producer, topic, limit),
            None => Err(Code::OperationTimedOut),
        };
        match (&found, waits.next()) {
            (
                Err(Code::UnknownTopicOrPartition | Code::UnknownTopic | Code::LeaderNotAvailable),
                Some(wait),
            ) => thread::sleep(wait),
            _ => return found,
        }
    }
}

fn ask(producer: &Producer, topic: &str, limit: Duration) -> Result<usize, Code> {
    let metadata = producer
        .client()
        .fetch_metadata(Some(topic), limit)
        .map_err(|error| error.rdkafka_error_code().unwrap_or(Code::Unknown))?;
    let found = metadata
        .topics()
        .first()
        .ok_or(Code::UnknownTopicOrPartition)?;
    match found.error() {
        Some(error) => Err(error.into()),
        None => match found.partitions().len() {
            0 => Err(Code::LeaderNotAvailable),
            count => Ok(count),
        },
    }
}

/// The partition of a key as Java's default partitioner chooses it.
pub(super) fn partition_of(key: &[u8], count: usize) -> usize {
    (murmur2(key) & 0x7fff_ffff) as usize % count
}

/// MurmurHash2 with the seed of Apache Kafka's `Utils.murmur2`.
fn murmur2(bytes: &[u8]) -> u32 {
    const SEED: u32 = 0x9747_b28c;
    const M: u32 = 0x5bd1_e995;
    // Java's lengths are 32 bits.
    #[allow(clippy::cast_possible_truncation)]
    let mut hash = SEED ^ bytes.len() as u32;
    let (words, rest) = bytes.as_chunks::<4>();
    for word in words {
        let mixed = u32::from_le_bytes(*word).wrapping_mul(M);
        hash = hash.wrapping_mul(M) ^ (mixed ^ mixed >> 24).wrapping_mul(M);
    }
    if !rest.is_empty() {
        for (at, &byte) in rest.iter().enumerate() {
            hash ^= u32::from(byte) << (8 * at);
        }
        hash = hash.wrapping_mul(M);
    }
    hash = (hash ^ hash >> 13).wrapping_mul(M);
    hash ^ hash >> 15
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The vectors of Apache Kafka's own `UtilsTest.testMurmur2`.
    #[test]
    fn keys_hash_as_in_java() {
        for (key, expected) in [
            ("21", -973_932_308),
            ("foobar", -790_332_482),
            ("a-little-bit-long-string", -985_981_536),
            ("a-little-bit-longer-string", -1_486_304_829),
            (
                "lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8",
                -58_897_971,
            ),
            ("abc", 479_470_107),
        ] {
            assert_eq!(murmur2(key.as_bytes()).cast_signed(), expected, "{key}");
        }
    }

    #[test]
    fn names_that_no_broker_takes_are_refused_here() {
        let mut topics = Topics::default();
        let now = Instant::now();
        for name in ["", ".", "..", "a b", "a/b", "é", &"t".repeat(250)] {
            let index = topics.index(name);
            assert!(
                matches!(topics.route(index, now), Route::Refused(_)),
                "{name}"
            );
            assert!(!topics.wants_look_up(index, now));
        }
        for name in ["a", "A.b_c-9", "...", &"t".repeat(249)] {
            let index = topics.index(name);
            assert!(matches!(topics.route(index, now), Route::NotYet), "{name}");
        }
    }

    #[test]
    fn a_partition_is_opened_by_one_record() {
        let mut topics = Topics::default();
        let now = Instant::now();
        let index = topics.index("t");
        assert!(topics.wants_look_up(index, now));
        assert!(!topics.wants_look_up(index, now));
        topics
            .answered(
                Answer {
                    index,
                    found: Ok(2),
                },
                now,
            )
            .unwrap();
        let place = |partition| Place {
            topic: index,
            partition,
        };
        assert_eq!(topics.entry(place(0), now), Entry::First);
        topics.sent(place(0), now);
        assert_eq!(topics.entry(place(0), now), Entry::Wait);
        assert_eq!(topics.entry(place(1), now), Entry::First);
        topics.accepted(place(0), now);
        assert_eq!(topics.entry(place(0), now), Entry::Open);
        let later = now + OPEN_FOR + Duration::from_secs(1);
        assert_eq!(topics.entry(place(0), later), Entry::First);
        topics.sent(place(0), now);
        assert_eq!(topics.entry(place(0), later), Entry::Open);
        topics.forget_producer();
        assert_eq!(topics.entry(place(0), now), Entry::First);
    }

    #[test]
    fn a_refusal_is_remembered_for_a_moment() {
        let mut topics = Topics::default();
        let now = Instant::now();
        let index = topics.index("t");
        assert!(topics.wants_look_up(index, now));
        let found = Err(Code::UnknownTopicOrPartition);
        topics.answered(Answer { index, found }, now).unwrap();
        let Route::Refused(Outcome::Rejected(why)) = topics.route(index, now) else {
            panic!("not refused");
        };
        assert_eq!(why.kind, RejectionKind::Unroutable);
        assert!(why.reason.contains("topic `t` does not exist; create it"));
        assert!(!topics.wants_look_up(index, now));
        let later = now + REFUSED_FOR;
        assert!(matches!(topics.route(index, later), Route::NotYet));
        assert!(topics.wants_look_up(index, later));
    }
}
