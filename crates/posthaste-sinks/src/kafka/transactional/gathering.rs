//! What belongs to the next transaction.

use std::{
    collections::{HashMap, HashSet},
    mem,
    time::Instant,
};

use posthaste_engine::{EventRef, Outcome, Record, RejectionKind};

use super::{
    super::{
        batch_limits::BATCH_BYTES_MAX,
        ledger::Waiting,
        message,
        suspects::Trust,
        topics::{self, Place, Route},
    },
    Flying, TRANSACTION_EVENTS_MAX, TransactionalLane, id,
    worker::{Sending, Transaction, Written},
};

/// What becomes of a record that waits while a transaction is gathered.
enum Step {
    /// It belongs to the transaction, and goes to this place; none: it was accepted before.
    Take(Option<Place>),
    /// As `Take`, and nothing else belongs to the transaction.
    Alone(Place),
    Answered(Outcome),
    /// It waits, and so does its key.
    Wait,
    /// It waits for the next transaction, and so does everything behind it.
    WaitAll,
}

/// What a transaction has for partitions of topics that take small batches only: the client makes
/// one batch of it.
#[derive(Default)]
struct Limited(HashMap<Place, usize>);

impl Limited {
    /// Adds a record, unless its batch would become too large.
    fn take(&mut self, place: Place, bytes: usize, batch_bytes_max: usize) -> bool {
        if batch_bytes_max == BATCH_BYTES_MAX {
            return true;
        }
        let taken = self.0.entry(place).or_default();
        let fits = *taken + bytes <= batch_bytes_max;
        *taken += if fits { bytes } else { 0 };
        fits
    }
}

impl TransactionalLane {
    /// Begins a transaction of what may be sent, unless one is open.
    pub(super) fn advance(&mut self) {
        let Some(progress_partition) = self.progress_partition else {
            return;
        };
        if self.ledger.has_ended() {
            return;
        }
        while self.open.is_empty() && !self.ledger.waiting.is_empty() {
            let sending = self.gather();
            if !sending.is_empty() {
                return self.begin(sending, progress_partition);
            }
            // Everything that was taken had been accepted before.
            if self.open.is_empty() {
                return;
            }
            self.committed();
        }
    }

    /// Takes what belongs to the next transaction.
    fn gather(&mut self) -> Vec<Sending> {
        let now = Instant::now();
        let wary = !self.common.suspects.is_empty();
        let mut queue = mem::take(&mut self.ledger.waiting);
        let mut waiting_keys = HashSet::new();
        let mut taken = HashSet::new();
        let mut suppressed = Vec::new();
        let mut sending = Vec::new();
        let mut limited = Limited::default();
        while let Some(mut item) = queue.pop_front() {
            let key = item.record.order_key();
            let is_full = self.alone || taken.len() + suppressed.len() >= TRANSACTION_EVENTS_MAX;
            let step = match key {
                Some(key) if waiting_keys.contains(&key) => Step::Wait,
                // The same event twice: the second one finds the first one accepted.
                _ if is_full || taken.contains(&item.record.event().reference()) => Step::WaitAll,
                _ => self.step(&mut item, &mut limited, now, wary),
            };
            match step {
                Step::Take(None) => suppressed.push(self.flying(&item, None)),
                Step::Take(Some(place)) => {
                    taken.insert(item.record.event().reference());
                    self.open.push(self.flying(&item, Some(place.topic)));
                    sending.push(to(place.partition, item.record));
                }
                Step::Alone(place) if taken.is_empty() && suppressed.is_empty() => {
                    self.alone = true;
                    self.open.push(self.flying(&item, Some(place.topic)));
                    sending.push(to(place.partition, item.record));
                }
                Step::Answered(outcome) => {
                    let ticket = item.record.ticket();
                    self.ledger.refuse(ticket, key, item.batch, outcome);
                }
                Step::Wait => {
                    waiting_keys.extend(key);
                    self.ledger.waiting.push_back(item);
                }
                Step::WaitAll | Step::Alone(_) => {
                    self.ledger.waiting.push_back(item);
                    break;
                }
            }
        }
        self.ledger.waiting.append(&mut queue);
        self.open.append(&mut suppressed);
        sending
    }

    fn step(
        &mut self,
        item: &mut Waiting,
        limited: &mut Limited,
        now: Instant,
        wary: bool,
    ) -> Step {
        if let Some(outcome) = self.ledger.behind_failure(item) {
            return Step::Answered(outcome);
        }
        let record = &item.record;
        if let Some(refused) = self.common.settings.refuse_progress_topic(record) {
            return Step::Answered(refused);
        }
        let event = record.event().reference();
        let partition = self.progress.partition_of(record.event().slot());
        if self.progress.suppresses(partition, event, record.ticket()) {
            return Step::Take(None);
        }
        let (topic, partitions) = match self.topics.route(record.topic(), now) {
            Route::To { topic, partitions } => (topic, partitions),
            Route::NotYet => match item.looked_long_enough(self.publish_timeout, now) {
                None => return Step::Wait,
                Some(outcome) => return Step::Answered(outcome),
            },
            Route::Refused(outcome) => return Step::Answered(outcome),
        };
        if let Some(refused) = message::refusal(record) {
            return Step::Answered(refused);
        }
        let trust = match wary {
            true => self.common.suspects.trust(id(event), record.topic(), now),
            false => Trust::Full(BATCH_BYTES_MAX),
        };
        let place = Place {
            topic,
            partition: topics::place(record, partitions, self.rotation),
        };
        match trust {
            Trust::Denied => {
                let reason = topics::denial(record.topic());
                Step::Answered(Outcome::rejected(RejectionKind::Denied, reason))
            }
            Trust::Alone => Step::Alone(place),
            // If it is refused, it must not take with it what is under way beside it.
            Trust::Full(limit) if message::bytes(record) > limit => Step::Alone(place),
            Trust::Full(limit) if !limited.take(place, message::bytes(record), limit) => Step::Wait,
            Trust::Full(_) => Step::Take(Some(place)),
        }
    }

    fn flying(&self, item: &Waiting, topic: Option<usize>) -> Flying {
        let record = &item.record;
        Flying {
            ticket: record.ticket(),
            order_key: record.order_key(),
            topic,
            batch: item.batch,
            event: record.event().reference(),
            bytes: message::bytes(record),
            partition: self.progress.partition_of(record.event().slot()),
        }
    }

    fn begin(&mut self, records: Vec<Sending>, progress_partition: i32) {
        let mut touched: Vec<(u16, EventRef)> = self
            .open
            .iter()
            .filter(|record| record.topic.is_some())
            .map(|record| (record.partition, record.event))
            .collect();
        touched.sort_unstable_by_key(|&(partition, _)| partition);
        let progress = touched
            .chunk_by(|(one, _), (other, _)| one == other)
            .map(|of_partition| {
                let further: Vec<EventRef> = of_partition.iter().map(|&(_, event)| event).collect();
                let (key, value) = self.progress.record(of_partition[0].0, &further);
                Written {
                    partition: progress_partition,
                    key,
                    value,
                }
            })
            .collect();
        let transaction = Transaction {
            records,
            progress,
            alone: self.alone,
        };
        // Without a receiver, the news that the producer has ended is on its way.
        let _ = self.transactions.send(transaction);
    }
}

fn to(partition: usize, record: Record) -> Sending {
    Sending {
        record,
        // Kafka counts partitions in 31 bits.
        partition: i32::try_from(partition).unwrap_or(i32::MAX),
    }
}
