//! A lane without transactions: decides when a record may be sent, so that a key's order holds
//! whatever is refused.

mod failures;
mod leaders;
mod silence;

use std::{
    collections::BTreeSet,
    mem,
    sync::Arc,
    time::{Duration, Instant},
};

use leaders::Leaders;
use posthaste_engine::{
    Acceptance, Cause, Decision, LaneSpec, NextSlot, Outcome, Record, RejectionKind, SinkError,
    Unavailability, WaitingRecord,
};
use rdkafka::{
    producer::{Producer as _, PurgeConfig},
    types::RDKafkaErrorCode as Code,
};

use super::{
    batch_limits::BATCH_BYTES_MAX,
    client::{Client, Producer},
    directory::Directory,
    faults,
    key_partitions::KeyPartitions,
    message,
    options::Settings,
    refusals::{Refusals, SendMode},
    topic_names,
    topics::{Entry, LookUpWait, Route, TopicPartition, Topics},
};
use crate::publisher::{InPlacePublisher, Publisher, RecordsOf};

/// Publishes through an idempotent producer.
pub(super) struct IdempotentPublisher {
    settings: Arc<Settings>,
    refusals: Arc<Refusals>,
    number: u64,
    publish_timeout: Duration,
    client: Client,
    topics: Topics,
    key_partitions: KeyPartitions,
    /// The one record in flight was sent alone, and nothing is sent before it is answered.
    alone: bool,
    /// Slots of records that were refused or thrown away. They are handled when all else in flight
    /// is answered: the producer has ended with the first, but the broker may have taken records
    /// that were under way to other partitions.
    failing: Vec<(usize, Code)>,
    /// Spreads records that no key binds.
    rotation: usize,
    /// How many records were sent.
    sent: u64,
    /// The number of the last one sent that was accepted.
    last_accepted: u64,
    leaders: Leaders,
    /// Why the lane is to end.
    fault: Option<Unavailability>,
}

/// A record that the client library holds. Its slot comes back with the client's report.
pub(super) struct SentRecord {
    slot: usize,
    /// In the order of sending, from 1.
    number: u64,
    at: Instant,
    order_key: Option<u64>,
    place: TopicPartition,
    event: u128,
    bytes: usize,
}

type Records = RecordsOf<IdempotentPublisher>;
type Waiting = WaitingRecord<LookUpWait>;

impl IdempotentPublisher {
    /// Makes a producer and proves that the cluster answers it.
    pub(super) async fn open(
        settings: Arc<Settings>,
        refusals: Arc<Refusals>,
        directory: Arc<Directory>,
        spec: LaneSpec,
        limit: Duration,
    ) -> Result<Self, SinkError> {
        let config = settings.producer();
        let client = Client::start(&config, &settings.target, thread_name(spec.number))?;
        client.reach(&settings.target, limit).await?;
        Ok(Self {
            settings,
            refusals,
            number: spec.number,
            publish_timeout: spec.publish_timeout,
            client,
            topics: Topics::new(directory),
            key_partitions: KeyPartitions::default(),
            alone: false,
            failing: Vec::new(),
            rotation: 0,
            sent: 0,
            last_accepted: 0,
            leaders: Leaders::default(),
            fault: None,
        })
    }

    /// Sends what may be sent.
    fn send_waiting(&mut self, records: &mut Records) {
        // A record that was sent alone may end the producer, and a failure has ended it.
        if !records.has_waiting() || self.alone || !self.failing.is_empty() {
            return;
        }
        // Without one, the news that it was ended is on its way.
        let Some(producer) = self.client.producer() else {
            return;
        };
        let now = Instant::now();
        let has_refusals = !self.refusals.is_empty();
        records.decide(|item, next| match self.alone {
            true => Decision::WaitAll,
            false => self.send(&producer, item, next, now, has_refusals),
        });
        if let Some(fault) = self.fault.take() {
            self.end(records, fault);
        }
    }

    fn send(
        &mut self,
        producer: &Producer,
        item: &mut Waiting,
        next: NextSlot,
        now: Instant,
        has_refusals: bool,
    ) -> Decision<SentRecord> {
        if let Some(refused) = self.settings.refuse_progress_topic(&item.record) {
            return Decision::Answered(refused);
        }
        let (rotation, limit) = (self.rotation, self.publish_timeout);
        let place = match self.topics.route(item, rotation, limit, now) {
            Route::To(place) => place,
            // The client would keep it until the lane is late.
            Route::Leaderless(place) => {
                return Decision::Answered(Outcome::later(self.topics.leaderless(place)));
            }
            Route::NotYet => return Decision::Wait,
            Route::Refused(outcome) => return Decision::Answered(outcome),
        };
        let record = &item.record;
        if self.key_partitions.divides(record.order_key(), place) {
            return Decision::Wait;
        }
        let mode = match has_refusals {
            true => self.refusals.mode(id(record), record.topic(), now),
            false => SendMode::WithOthers(BATCH_BYTES_MAX),
        };
        let bytes = message::bytes(record);
        let mut batch_bytes_max = BATCH_BYTES_MAX;
        let alone = match mode {
            SendMode::Denied => {
                let reason = topic_names::denial(record.topic());
                return Decision::Answered(Outcome::rejected(RejectionKind::Denied, reason));
            }
            SendMode::Alone => true,
            // It would be alone in its batch anyway; and if it is refused, it must not take with it
            // what is under way beside it.
            SendMode::WithOthers(limit) => {
                batch_bytes_max = limit;
                bytes > limit
            }
        };
        if alone && next.in_flight > 0 {
            return Decision::WaitAll;
        }
        if self.topics.entry(place, bytes, batch_bytes_max, now) == Entry::Wait {
            return Decision::Wait;
        }
        let sent = SentRecord {
            slot: next.slot,
            number: self.sent + 1,
            at: now,
            order_key: record.order_key(),
            place,
            event: id(record),
            bytes,
        };
        let decision = self.hand_to_client(producer, item, next, sent);
        if let Decision::Sent(sent) = &decision {
            self.sent += 1;
            self.topics.sent(place, bytes, now);
            self.key_partitions.sent(sent.order_key, place);
            self.alone = alone;
        }
        decision
    }

    fn hand_to_client(
        &mut self,
        producer: &Producer,
        item: &Waiting,
        next: NextSlot,
        sent: SentRecord,
    ) -> Decision<SentRecord> {
        let Ok(partition) = i32::try_from(sent.place.partition) else {
            let reason = "a partition's number is no 32 bits".to_owned();
            self.fault = Some(Unavailability::new(Cause::Unknown, reason));
            return Decision::WaitAll;
        };
        let message = match message::message(&item.record, partition, next.slot) {
            Ok(message) => message,
            Err(rejected) => return Decision::Answered(rejected),
        };
        let refusal = || producer.send(message).err().map(|(error, _)| error);
        let error = match self.client.hand_over(refusal) {
            Some(None) => return Decision::Sent(sent),
            Some(Some(error)) => error,
            // The news of it is on its way.
            None => return Decision::WaitAll,
        };
        match error.rdkafka_error_code().unwrap_or(Code::Unknown) {
            Code::QueueFull if next.in_flight > 0 => Decision::WaitAll,
            Code::MessageSizeTooLarge => Decision::Answered(Outcome::rejected(
                RejectionKind::TooLarge,
                format!("{} bytes are more than the Kafka client takes", sent.bytes),
            )),
            Code::UnknownPartition | Code::UnknownTopic | Code::UnknownTopicOrPartition => {
                let topic = BTreeSet::from([sent.place.topic]);
                self.topics.doubt(&topic, Instant::now());
                Decision::Wait
            }
            // The reports of what made it so are on their way, and say more.
            Code::Fatal if next.in_flight > 0 => Decision::WaitAll,
            code => {
                self.fault = Some(self.trouble(code, &error.to_string()));
                Decision::WaitAll
            }
        }
    }

    /// A fault in the words of the client's complaint, if there is one.
    fn trouble(&self, code: Code, words: &str) -> Unavailability {
        let (code, words) = match (self.client.fatal(), self.client.trouble()) {
            (Some(fatal), _) => fatal,
            (None, Some(trouble)) => (trouble.code, trouble.words),
            (None, None) => (code, words.to_owned()),
        };
        Unavailability::new(faults::cause(code), format!("{words}{}", faults::fix(code)))
    }

    /// Takes in what the client has told since.
    fn take_news(&mut self, records: &mut Records) {
        let news = self.client.news();
        if records.has_ended() {
            return;
        }
        let now = Instant::now();
        for (slot, offset) in news.delivered {
            self.accepted(records, slot, offset, now);
        }
        if let Some((name, code)) = news.not_looked_up.first() {
            let words = format!("topic `{name}` could not be looked up: {code}");
            return self.end(records, self.trouble(*code, &words));
        }
        self.failing.extend(news.failures);
        if news.overdue {
            self.topics.doubt_leaders();
            if let Some(fault) = self.answer_silent(records, now) {
                return self.go_on_without(records, fault, now);
            }
        }
        let is_all = self.failing.len() == records.in_flight_count();
        if !self.failing.is_empty() && (is_all || news.overdue) {
            let failures = mem::take(&mut self.failing);
            self.failed(records, &failures, now);
        } else if news.overdue {
            let words = format!("no answer within {:?}", self.publish_timeout);
            self.end(records, self.trouble(Code::OperationTimedOut, &words));
        }
    }

    fn accepted(&mut self, records: &mut Records, slot: usize, offset: Option<u64>, now: Instant) {
        let acceptance = Acceptance {
            receipt: offset,
            is_duplicate: false,
        };
        let Some(sent) = records.answer(slot, Outcome::Accepted(acceptance)) else {
            return;
        };
        self.last_accepted = self.last_accepted.max(sent.number);
        self.topics.accepted(sent.place, sent.bytes, now);
        self.key_partitions.answered(sent.order_key);
        if mem::take(&mut self.alone) {
            let topic = self.topics.name(sent.place.topic);
            self.refusals.accepted_alone(sent.event, topic);
        }
    }

    /// The topics of what is in flight may be gone, and the client waits for those: the next lane
    /// looks first.
    fn doubt_topics(&mut self, records: &Records) {
        let topics = records.in_flight().map(|sent| sent.place.topic);
        self.topics.doubt(&topics.collect(), Instant::now());
    }

    fn purge(&self) {
        if let Some(producer) = self.client.producer() {
            producer.purge(PurgeConfig::default().queue().inflight());
        }
    }
}

impl Publisher for IdempotentPublisher {
    type InFlight = SentRecord;
    type Note = LookUpWait;

    fn advance(&mut self, records: &mut Records) {
        self.take_news(records);
        self.send_waiting(records);
        if !records.has_ended() {
            let now = Instant::now();
            self.topics.look_up(&self.client, self.publish_timeout, now);
            self.ask_leaders(records, now);
        }
        // A little less than the relay waits for any answer, which could not say what place is
        // silent.
        self.client
            .owes_since(records.oldest(), self.publish_timeout * 9 / 10);
    }

    async fn changed(&mut self) {
        tokio::select! {
            () = self.topics.changed(self.client.shared()) => {}
            () = self.leaders.are_to_be_asked() => {}
        }
    }
}

impl InPlacePublisher for IdempotentPublisher {
    async fn take_over(&mut self) -> Result<Option<String>, SinkError> {
        Ok(self.client.cluster().map(str::to_owned))
    }

    fn submitting(&mut self, _batch: &[Record], _records: &mut Records) {
        self.rotation = self.rotation.wrapping_add(1);
    }

    /// Purges the client.
    fn end(&mut self, records: &mut Records, fault: Unavailability) {
        self.purge();
        self.client.end();
        self.doubt_topics(records);
        records.end(fault);
    }

    async fn abort(mut self, records: Records) {
        self.doubt_topics(&records);
        self.purge();
        self.client.destroy().await;
    }
}

fn thread_name(lane: u64) -> String {
    format!("kafka-lane-{lane}")
}

fn id(record: &Record) -> u128 {
    record.event().id().as_u128()
}
