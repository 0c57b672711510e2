//! A lane: decides what may be sent when, so that a key's order holds whatever is refused, and what a
//! failure means.

mod judging;

use std::{
    collections::HashSet,
    mem,
    sync::Arc,
    time::{Duration, Instant},
};

use async_trait::async_trait;
use posthaste_engine::{Cause, Lane, LaneSpec, Outcome, Record, RejectionKind, SinkError, Verdict};
use rdkafka::{
    producer::{Producer as _, PurgeConfig},
    types::RDKafkaErrorCode as Code,
};

use super::{
    batch_limits::BATCH_BYTES_MAX,
    client::{Client, Producer},
    directory::Directory,
    faults,
    flight::{Flight, Flying},
    ledger::{Ledger, Waiting},
    message,
    options::Settings,
    suspects::{Suspects, Trust},
    topics::{self, Entry, Place, Route, Topics},
};

pub(super) struct KafkaLane {
    settings: Arc<Settings>,
    suspects: Arc<Suspects>,
    number: u64,
    publish_timeout: Duration,
    client: Client,
    topics: Topics,
    ledger: Ledger,
    flight: Flight,
    /// The one record in flight was sent alone, and nothing is sent before it is answered.
    alone: bool,
    /// Refused or thrown away, and not judged before all else in flight is answered: the producer has
    /// ended with the first, but the broker may have taken what was under way to other partitions.
    failing: Vec<(usize, Code)>,
    /// Spreads records that no key binds.
    rotation: usize,
}

/// What became of a record that waited.
enum Step {
    Sent,
    Answered(Outcome),
    /// It waits, and so does its key.
    Wait,
    /// It waits, and so does everything behind it.
    WaitAll,
    /// The lane is to end.
    End(Cause, String),
}

impl KafkaLane {
    /// Makes a producer and proves that the cluster answers it.
    pub(super) async fn open(
        settings: Arc<Settings>,
        suspects: Arc<Suspects>,
        directory: Arc<Directory>,
        spec: LaneSpec,
        limit: Duration,
    ) -> Result<Self, SinkError> {
        let config = settings.producer();
        let client = Client::start(&config, &settings.target, thread_name(spec.number))?;
        client.reach(&settings.target, limit).await?;
        Ok(Self {
            settings,
            suspects,
            number: spec.number,
            publish_timeout: spec.publish_timeout,
            client,
            topics: Topics::new(directory),
            flight: Flight::default(),
            alone: false,
            failing: Vec::new(),
            ledger: Ledger::default(),
            rotation: 0,
        })
    }

    fn is_settled(&self) -> bool {
        self.ledger.waiting.is_empty() && self.flight.is_empty()
    }

    /// Sends what may be sent.
    fn advance(&mut self) {
        // What was sent alone may end the producer, and what fails has ended it.
        if self.ledger.waiting.is_empty() || self.alone || !self.failing.is_empty() {
            return;
        }
        // Without one, the news that it was ended is on its way.
        let Some(producer) = self.client.producer() else {
            return;
        };
        let now = Instant::now();
        let wary = !self.suspects.is_empty();
        let mut queue = mem::take(&mut self.ledger.waiting);
        let mut waiting_keys = HashSet::new();
        while let Some(mut item) = queue.pop_front() {
            let key = item.record.order_key();
            let step = match key {
                Some(key) if waiting_keys.contains(&key) => Step::Wait,
                _ if self.alone => Step::WaitAll,
                _ => self.step(&producer, &mut item, now, wary),
            };
            match step {
                Step::Sent => {}
                Step::Answered(outcome) => {
                    let ticket = item.record.ticket();
                    self.ledger.refuse(ticket, key, item.batch, outcome);
                }
                Step::Wait => {
                    waiting_keys.extend(key);
                    self.ledger.waiting.push_back(item);
                }
                Step::WaitAll => {
                    self.ledger.waiting.push_back(item);
                    break;
                }
                Step::End(cause, reason) => {
                    self.ledger.waiting.push_back(item);
                    self.ledger.waiting.append(&mut queue);
                    return self.end(cause, &reason);
                }
            }
        }
        self.ledger.waiting.append(&mut queue);
    }

    fn step(&mut self, producer: &Producer, item: &mut Waiting, now: Instant, wary: bool) -> Step {
        if let Some(outcome) = self.ledger.behind_failure(item) {
            return Step::Answered(outcome);
        }
        if let Some(refused) = self.settings.refuse_progress_topic(&item.record) {
            return Step::Answered(refused);
        }
        let (topic, partitions) = match self.topics.route(item.record.topic(), now) {
            Route::To { topic, partitions } => (topic, partitions),
            Route::NotYet => match item.looked_long_enough(self.publish_timeout, now) {
                None => return Step::Wait,
                Some(outcome) => return Step::Answered(outcome),
            },
            Route::Refused(outcome) => return Step::Answered(outcome),
        };
        let record = &item.record;
        let place = Place {
            topic,
            partition: topics::place(record, partitions, self.rotation),
        };
        if self.flight.divides(record.order_key(), place) {
            return Step::Wait;
        }
        let trust = match wary {
            true => self.suspects.trust(id(record), record.topic(), now),
            false => Trust::Full(BATCH_BYTES_MAX),
        };
        let bytes = message::bytes(record);
        let mut batch_bytes_max = BATCH_BYTES_MAX;
        let alone = match trust {
            Trust::Denied => {
                let reason = topics::denial(record.topic());
                return Step::Answered(Outcome::rejected(RejectionKind::Denied, reason));
            }
            Trust::Alone => true,
            // It would be alone in its batch anyway; and if it is refused, it must not take with it
            // what is under way beside it.
            Trust::Full(limit) => {
                batch_bytes_max = limit;
                bytes > limit
            }
        };
        if alone && !self.flight.is_empty() {
            return Step::WaitAll;
        }
        if self.topics.entry(place, bytes, batch_bytes_max, now) == Entry::Wait {
            return Step::Wait;
        }
        let step = self.send(producer, item, place, bytes);
        if matches!(step, Step::Sent) {
            self.topics.sent(place, bytes, now);
            self.alone = alone;
        }
        step
    }

    fn send(&mut self, producer: &Producer, item: &Waiting, place: Place, bytes: usize) -> Step {
        let record = &item.record;
        let Ok(partition) = i32::try_from(place.partition) else {
            return Step::End(
                Cause::Unknown,
                "a partition's number is no 32 bits".to_owned(),
            );
        };
        let message = match message::message(record, partition, self.flight.next()) {
            Ok(message) => message,
            Err(rejected) => return Step::Answered(rejected),
        };
        let Err((error, _)) = producer.send(message) else {
            self.flight.add(Flying {
                ticket: record.ticket(),
                order_key: record.order_key(),
                place,
                batch: item.batch,
                event: id(record),
                bytes,
            });
            return Step::Sent;
        };
        match error.rdkafka_error_code().unwrap_or(Code::Unknown) {
            Code::QueueFull if !self.flight.is_empty() => Step::WaitAll,
            Code::MessageSizeTooLarge => Step::Answered(Outcome::rejected(
                RejectionKind::TooLarge,
                format!("{bytes} bytes are more than the Kafka client takes"),
            )),
            Code::UnknownPartition | Code::UnknownTopic | Code::UnknownTopicOrPartition => {
                self.topics.doubt(place.topic, Instant::now());
                Step::Wait
            }
            // The reports of what made it so are on their way, and say more.
            Code::Fatal if !self.flight.is_empty() => Step::WaitAll,
            code => {
                let (cause, reason) = self.trouble(code, &error.to_string());
                Step::End(cause, reason)
            }
        }
    }

    /// Cause and words of a fault, from the client's complaint if there is one.
    fn trouble(&self, code: Code, words: &str) -> (Cause, String) {
        if let Some((code, words)) = self.client.fatal() {
            return (faults::cause(code), format!("{words}{}", faults::fix(code)));
        }
        match self.client.trouble() {
            Some(trouble) => (
                faults::cause(trouble.code),
                format!("{}{}", trouble.words, faults::fix(trouble.code)),
            ),
            None => (faults::cause(code), format!("{words}{}", faults::fix(code))),
        }
    }

    /// Takes in what the client has told since.
    fn take_news(&mut self) {
        let news = self.client.news();
        if self.ledger.has_ended() {
            return;
        }
        let now = Instant::now();
        for at in news.delivered {
            self.accepted(at, now);
        }
        if let Some((name, code)) = news.not_looked_up.first() {
            let words = format!("topic `{name}` could not be looked up: {code}");
            let (cause, reason) = self.trouble(*code, &words);
            return self.end(cause, &reason);
        }
        self.failing.extend(news.failures);
        let is_all = self.failing.len() == self.flight.len();
        if !self.failing.is_empty() && (is_all || news.overdue) {
            let failures = mem::take(&mut self.failing);
            self.judge(&failures, now);
        } else if news.overdue {
            let words = format!("no answer within {:?}", self.publish_timeout);
            let (cause, reason) = self.trouble(Code::OperationTimedOut, &words);
            self.end(cause, &reason);
        }
        self.go_on();
    }

    /// Sends what may be sent, and has looked up what that needs.
    fn go_on(&mut self) {
        self.advance();
        if !self.ledger.has_ended() {
            self.topics
                .look_up(&self.client, self.publish_timeout, Instant::now());
        }
        self.watch();
    }

    fn accepted(&mut self, at: usize, now: Instant) {
        let Some(record) = self.flight.remove(at) else {
            return;
        };
        self.topics.accepted(record.place, record.bytes, now);
        self.ledger.accept(record.ticket, record.batch);
        if mem::take(&mut self.alone) {
            let topic = self.topics.name(record.place.topic);
            self.suspects.acquit(record.event, topic, true);
        }
    }

    /// Ends the lane: what the client holds is purged, and everything is answered.
    fn end(&mut self, cause: Cause, reason: &str) {
        self.purge();
        self.client.end();
        let under_way = self.take_flight().into_iter();
        let under_way = under_way.map(|record| (record.ticket, record.order_key));
        self.ledger.end(under_way, cause, reason);
    }

    /// Takes what is in flight. Its topics may be gone, and the client waits for those: the next
    /// lane looks first.
    fn take_flight(&mut self) -> Vec<Flying> {
        let now = Instant::now();
        let all = self.flight.take_all();
        for record in &all {
            self.topics.doubt(record.place.topic, now);
        }
        all
    }

    fn purge(&self) {
        if let Some(producer) = self.client.producer() {
            producer.purge(PurgeConfig::default().queue().inflight());
        }
    }

    /// Lets the client's thread know until when it may owe an answer.
    fn watch(&self) {
        let overdue_at = self.ledger.oldest().map(|at| at + self.publish_timeout);
        self.client.set_overdue_at(overdue_at);
    }
}

fn thread_name(lane: u64) -> String {
    format!("kafka-lane-{lane}")
}

fn id(record: &Record) -> u128 {
    record.event().id().as_u128()
}

#[async_trait]
impl Lane for KafkaLane {
    fn cluster(&self) -> Option<&str> {
        self.client.cluster()
    }

    async fn submit(&mut self, batch: Vec<Record>) {
        if batch.is_empty() {
            return;
        }
        self.ledger.submit(batch);
        if self.ledger.has_ended() {
            return;
        }
        self.rotation = self.rotation.wrapping_add(1);
        self.go_on();
    }

    async fn outcomes(&mut self) -> Vec<Verdict> {
        loop {
            self.take_news();
            let ready = self.ledger.take_ready();
            if !ready.is_empty() {
                return ready;
            }
            let client = self.client.shared();
            tokio::select! {
                () = client.changed() => {}
                () = self.topics.changed() => {}
            }
        }
    }

    async fn abort(mut self: Box<Self>) {
        self.take_flight();
        self.purge();
        self.client.destroy().await;
    }

    async fn close(mut self: Box<Self>, limit: Duration) -> Vec<Verdict> {
        let mut verdicts = Vec::new();
        // Running out of time is an end as good as the other: what is left is answered below.
        let _ = tokio::time::timeout(limit, async {
            while !self.is_settled() {
                verdicts.append(&mut self.outcomes().await);
            }
        })
        .await;
        if !self.is_settled() {
            self.end(Cause::LaneEnded, "not answered within the time for closing");
        }
        verdicts.append(&mut self.ledger.take_ready());
        verdicts
    }
}
