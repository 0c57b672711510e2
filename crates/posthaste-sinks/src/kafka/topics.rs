//! The topics of a lane: their partitions, and the place of a record.
//!
//! The lane chooses the partition, not the client library: only so can it tell which records the
//! broker will keep in order.

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
    time::{Duration, Instant},
};

use posthaste_engine::{Outcome, Record, RejectionKind, TopicParts, WaitingRecord};
use tokio::sync::watch;

use super::{
    batch_limits::BATCH_BYTES_MAX,
    client::{Client, Shared},
    directory::{self, Answer, Directory},
    look_up,
};

/// A partition that took nothing for so long is opened anew: the broker may have forgotten us. Far
/// below the broker's `producer.id.expiration.ms` (a day).
const OPEN_FOR: Duration = Duration::from_secs(60);

/// A topic and a partition of it: within one, the broker keeps the order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct TopicPartition {
    /// Index in [`Topics`].
    pub(super) topic: usize,
    pub(super) partition: usize,
}

/// The topics that a lane has found, as its producer knows them.
pub(super) struct Topics {
    directory: Arc<Directory>,
    changed: watch::Receiver<()>,
    by_name: HashMap<Box<str>, usize>,
    topics: Vec<LaneTopic>,
}

struct LaneTopic {
    name: Box<str>,
    partitions: Vec<Partition>,
    /// Those that take nothing for now.
    leaderless: Arc<BTreeSet<usize>>,
    /// The brokers that lead the partitions.
    leaders: Arc<[i32]>,
    /// When the directory is asked again.
    until: Instant,
}

/// A partition, as this producer knows it.
#[derive(Debug, Clone, Copy, Default)]
struct Partition {
    state: Opened,
    in_flight: usize,
    /// Of those in flight.
    bytes: usize,
}

/// Whether the broker can tell that something is missing in front of what we send to a partition.
///
/// A broker takes *any* first sequence number of a producer that it does not know in a partition.
/// So until a partition has accepted a record of this producer, a second batch can be accepted
/// although the first was refused: a single record goes ahead and opens the partition.
#[derive(Debug, Clone, Copy, Default)]
enum Opened {
    #[default]
    No,
    /// The first record is under way.
    Opening,
    /// It took a record at this time.
    Yes(Instant),
}

/// The destination of a record, as far as it is known.
pub(super) enum Route {
    To(TopicPartition),
    /// To this one, which has no leader, and takes nothing for now.
    Leaderless(TopicPartition),
    /// Being looked up, or to be looked up.
    NotYet,
    /// Nowhere.
    Refused(Outcome),
}

/// A topic, as far as it is known.
enum Found {
    /// Index in [`Topics`].
    Topic(usize),
    NotYet,
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

/// Since when a record waits for its topic to be looked up.
#[derive(Debug, Default)]
pub(super) struct LookUpWait(Option<Instant>);

impl LookUpWait {
    /// Whether it has lasted too long, which happens only where more topics wait than the cluster
    /// can be asked for. Half of the record's time is left for sending: a record that waited on
    /// would make its lane late.
    pub(super) fn is_over(&mut self, limit: Duration, now: Instant) -> bool {
        let since = *self.0.get_or_insert(now);
        now.duration_since(since) >= limit
    }
}

impl Topics {
    pub(super) fn new(directory: Arc<Directory>) -> Self {
        Self {
            changed: directory.subscribe(),
            directory,
            by_name: HashMap::new(),
            topics: Vec::new(),
        }
    }

    pub(super) fn name(&self, index: usize) -> &str {
        &self.topics[index].name
    }

    /// Where a record goes; `rotation` spreads those that no key binds. One whose topic is not
    /// looked up in time goes nowhere.
    pub(super) fn route(
        &mut self,
        item: &mut WaitingRecord<LookUpWait>,
        rotation: usize,
        publish_timeout: Duration,
        now: Instant,
    ) -> Route {
        let name = item.record.topic();
        let limit = publish_timeout / 2;
        match self.find(name, now) {
            Found::Topic(index) => {
                let topic = &self.topics[index];
                let count = topic.partitions.len();
                if let Some(given) = item.record.partition()
                    && given as usize >= count
                {
                    let reason = format!(
                        "topic `{name}` has {count} partitions, and no partition {given}; give it \
                         more, or route the event to another one"
                    );
                    let refused = Outcome::rejected(RejectionKind::Unroutable, reason);
                    return Route::Refused(refused);
                }
                let partition = place(&item.record, count, &topic.leaderless, rotation);
                let place = TopicPartition {
                    topic: index,
                    partition,
                };
                if !topic.leaderless.contains(&partition) {
                    Route::To(place)
                // An older answer would put off what the partition takes by now.
                } else if now < topic.until || item.note.is_over(limit, now) {
                    Route::Leaderless(place)
                } else {
                    Route::NotYet
                }
            }
            Found::NotYet if item.note.is_over(limit, now) => {
                let reason = format!(
                    "topic `{name}`: the cluster has not told within {limit:?} whether it exists, \
                     so many others are asked for"
                );
                Route::Refused(Outcome::rejected(RejectionKind::Unroutable, reason))
            }
            Found::NotYet => Route::NotYet,
            Found::Refused(outcome) => Route::Refused(outcome),
        }
    }

    /// The broker that leads the partition, as far as is known.
    pub(super) fn leader(&self, place: TopicPartition) -> Option<i32> {
        let leaders = &self.topics[place.topic].leaders;
        leaders.get(place.partition).copied()
    }

    /// The words for the operator about a partition that has no leader.
    pub(super) fn leaderless(&self, place: TopicPartition) -> String {
        format!(
            "partition {} of topic `{}` has no leader: start the brokers again that hold its \
             replicas, or assign it to others",
            place.partition,
            self.name(place.topic)
        )
    }

    /// The topic, as far as it is known.
    fn find(&mut self, name: &str, now: Instant) -> Found {
        let known = self.by_name.get(name).copied();
        if let Some(topic) = known
            && now < self.topics[topic].until
        {
            return Found::Topic(topic);
        }
        match self.directory.answer(name, now) {
            Answer::Known(layout, until) => {
                let index = known.unwrap_or_else(|| self.add(name, now));
                let topic = &mut self.topics[index];
                let partition = Partition::default();
                topic.partitions.resize(layout.partitions, partition);
                topic.leaderless = layout.leaderless;
                topic.leaders = layout.leaders;
                topic.until = until;
                Found::Topic(index)
            }
            Answer::NotYet => Found::NotYet,
            Answer::Refused(outcome) => {
                // If it is there again later, it is another one.
                if let Some(topic) = known {
                    self.topics[topic].partitions.clear();
                }
                Found::Refused(outcome)
            }
        }
    }

    fn add(&mut self, name: &str, now: Instant) -> usize {
        self.topics.push(LaneTopic {
            name: name.into(),
            partitions: Vec::new(),
            leaderless: Arc::default(),
            leaders: Arc::default(),
            until: now,
        });
        self.by_name.insert(name.into(), self.topics.len() - 1);
        self.topics.len() - 1
    }

    /// Has the cluster asked what [`route`](Self::route) did not know.
    pub(super) fn look_up(&self, client: &Client, publish_timeout: Duration, now: Instant) {
        let limit = directory::question_limit(publish_timeout);
        for question in self.directory.questions(now) {
            look_up::answer(client, &self.directory, question, limit);
        }
    }

    /// Waits for news of the producer, or for an answer of the cluster.
    pub(super) async fn changed(&mut self, producer: Arc<Shared>) {
        tokio::select! {
            () = producer.changed() => {}
            // The directory is ours too, so that its end is never told.
            _ = self.changed.changed() => {}
        }
    }

    /// The producer is another one: no partition knows it.
    pub(super) fn forget_producer(&mut self) {
        for topic in &mut self.topics {
            topic.partitions.fill(Partition::default());
        }
    }

    /// Whether the partition takes a record of so many bytes now, of which no more than
    /// `batch_bytes_max` may be under way.
    pub(super) fn entry(
        &self,
        place: TopicPartition,
        bytes: usize,
        batch_bytes_max: usize,
        now: Instant,
    ) -> Entry {
        let partition = self.topics[place.topic].partitions.get(place.partition);
        let is_full = |partition: &Partition| {
            batch_bytes_max < BATCH_BYTES_MAX
                && partition.in_flight > 0
                && partition.bytes + bytes > batch_bytes_max
        };
        match partition {
            Some(partition) if !is_full(partition) => partition.entry(now),
            _ => Entry::Wait,
        }
    }

    /// A record is under way to the partition.
    pub(super) fn sent(&mut self, place: TopicPartition, bytes: usize, now: Instant) {
        if let Some(partition) = self.partition(place) {
            if partition.entry(now) == Entry::First {
                partition.state = Opened::Opening;
            }
            partition.in_flight += 1;
            partition.bytes += bytes;
        }
    }

    /// The partition took a record.
    pub(super) fn accepted(&mut self, place: TopicPartition, bytes: usize, now: Instant) {
        if let Some(partition) = self.partition(place) {
            partition.state = Opened::Yes(now);
            partition.in_flight = partition.in_flight.saturating_sub(1);
            partition.bytes = partition.bytes.saturating_sub(bytes);
        }
    }

    /// The partitions of these topics may be wrong: this lane and those to come look them up anew.
    pub(super) fn doubt(&mut self, topics: &BTreeSet<usize>, now: Instant) {
        for &index in topics {
            let topic = &mut self.topics[index];
            topic.until = topic.until.min(now);
            self.directory.forget(&topic.name);
        }
    }

    /// Has these topics asked for, which are believed until the answer comes.
    pub(super) fn ask_again(&self, topics: &BTreeSet<usize>) {
        for &index in topics {
            self.directory.ask_again(&self.topics[index].name);
        }
    }

    /// Some partition's leader does not answer. Others may have been on the same broker: lanes to
    /// come look before they send.
    pub(super) fn doubt_leaders(&self) {
        self.directory.doubt_leaders();
    }

    fn partition(&mut self, place: TopicPartition) -> Option<&mut Partition> {
        self.topics[place.topic].partitions.get_mut(place.partition)
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

/// The partition of a record. Where any will do, `rotation` chooses one that has a leader.
fn place(record: &Record, count: usize, leaderless: &BTreeSet<usize>, rotation: usize) -> usize {
    match bound_to(record, count) {
        Some(partition) => partition,
        None if leaderless.is_empty() => rotation % count,
        None => {
            let led = count.saturating_sub(leaderless.len()).max(1);
            let mut all = (0..count).filter(|partition| !leaderless.contains(partition));
            all.nth(rotation % led).unwrap_or(rotation % count)
        }
    }
}

/// The partition that a record is bound to: the one that it is for, else as Java's default
/// partitioner chooses it for a record with a key. Without one, a key of order keeps to one of
/// them.
fn bound_to(record: &Record, count: usize) -> Option<usize> {
    match (record.partition(), record.key(), record.order_key()) {
        (Some(given), ..) => usize::try_from(given).ok(),
        (None, Some(key), _) => Some(partition_of(key, count)),
        (None, None, Some(order)) => Some(partition_of(&order.to_le_bytes(), count)),
        (None, None, None) => None,
    }
}

impl std::fmt::Debug for Directory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Directory").finish_non_exhaustive()
    }
}

impl TopicParts for Directory {
    fn part(&self, record: &Record) -> Option<u32> {
        let partitions = self.partitions_or_ask(record.topic())?;
        u32::try_from(bound_to(record, partitions)?).ok()
    }

    fn knows(&self, topic: &str) -> bool {
        self.partitions_or_ask(topic).is_some()
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
mod tests;
