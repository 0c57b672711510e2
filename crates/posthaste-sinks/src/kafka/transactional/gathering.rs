//! Gathers the records of the next transaction.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::Instant,
};

use posthaste_engine::{
    Decision, EventRef, NextSlot, Outcome, Record, RejectionKind, Unavailability, WaitingRecord,
};
use rdkafka::types::RDKafkaErrorCode as Code;

use super::{
    super::{
        batch_limits::BATCH_BYTES_MAX,
        faults, message,
        refusals::SendMode,
        topic_names,
        topics::{LookUpWait, Route, TopicPartition},
    },
    InTransaction, Records, TRANSACTION_EVENTS_MAX, TransactionalPublisher, id,
    slow::Slow,
    worker::{Sending, Transaction, Written},
};
use crate::publisher::InPlacePublisher as _;

/// The next transaction so far.
#[derive(Default)]
struct Gathered {
    sending: Vec<Sending>,
    events: HashSet<EventRef>,
    limited: Limited,
    /// Records wait for their topics to be looked up.
    looks_up: bool,
    /// Records wait for a leader of their partitions.
    holds_back: bool,
    /// One of these has waited too long.
    is_late: bool,
}

/// Bytes for partitions of topics that take small batches only: the client makes one batch of a
/// transaction's records for a partition.
#[derive(Default)]
struct Limited(HashMap<TopicPartition, usize>);

impl Limited {
    /// Adds a record, unless its batch would become too large.
    fn take(&mut self, place: TopicPartition, bytes: usize, batch_bytes_max: usize) -> bool {
        if batch_bytes_max == BATCH_BYTES_MAX {
            return true;
        }
        let taken = self.0.entry(place).or_default();
        let fits = *taken + bytes <= batch_bytes_max;
        *taken += if fits { bytes } else { 0 };
        fits
    }
}

impl TransactionalPublisher {
    /// Begins a transaction of what may be sent, unless one is open.
    pub(super) fn begin_transaction(&mut self, records: &mut Records) {
        let Some(progress_partition) = self.progress_partition else {
            return;
        };
        while records.in_flight_count() == 0 && records.has_waiting() {
            let gathered = self.gather(records);
            if !gathered.sending.is_empty() {
                return self.begin(records, gathered.sending, progress_partition);
            }
            if records.in_flight_count() == 0 {
                if gathered.is_late || gathered.holds_back && !gathered.looks_up {
                    self.give_up_leaderless(records);
                }
                return;
            }
            // Everything that was taken had been accepted before.
            self.committed(records);
        }
    }

    /// Takes what belongs to the next transaction.
    fn gather(&mut self, records: &mut Records) -> Gathered {
        let now = Instant::now();
        let has_refusals = !self.context.refusals.is_empty();
        let mut gathered = Gathered::default();
        records.decide(|item, next| {
            let is_full = self.alone || next.in_flight >= TRANSACTION_EVENTS_MAX;
            // The same event twice: the second one finds the first one accepted.
            match is_full || gathered.events.contains(&item.record.event().reference()) {
                true => Decision::WaitAll,
                false => self.take(item, next, &mut gathered, now, has_refusals),
            }
        });
        gathered
    }

    fn take(
        &mut self,
        item: &mut WaitingRecord<LookUpWait>,
        next: NextSlot,
        gathered: &mut Gathered,
        now: Instant,
        has_refusals: bool,
    ) -> Decision<InTransaction> {
        if let Some(refused) = self.context.settings.refuse_progress_topic(&item.record) {
            return Decision::Answered(refused);
        }
        let record = &item.record;
        let event = record.event().reference();
        let partition = self.progress.partition_of(record.event().slot());
        if self.progress.suppresses(partition, event, record.ticket()) {
            return Decision::Sent(self.in_transaction(record, None));
        }
        let (rotation, limit) = (self.rotation, self.publish_timeout);
        let place = match self.topics.route(item, rotation, limit, now) {
            Route::To(place) => place,
            Route::Leaderless(_) => return self.hold_back(item, gathered, now),
            Route::NotYet => {
                gathered.looks_up = true;
                return Decision::Wait;
            }
            Route::Refused(outcome) => return Decision::Answered(outcome),
        };
        let record = &item.record;
        if let Some(refused) = message::refusal(record) {
            return Decision::Answered(refused);
        }
        let mode = match has_refusals {
            true => self.context.refusals.mode(id(event), record.topic(), now),
            false => SendMode::WithOthers(BATCH_BYTES_MAX),
        };
        let bytes = message::bytes(record);
        let alone = match mode {
            SendMode::Denied => {
                let reason = topic_names::denial(record.topic());
                return Decision::Answered(Outcome::rejected(RejectionKind::Denied, reason));
            }
            SendMode::Alone => true,
            // If it is refused, it must not take with it what is under way beside it.
            SendMode::WithOthers(limit) if bytes > limit => true,
            SendMode::WithOthers(limit) if !gathered.limited.take(place, bytes, limit) => {
                return Decision::Wait;
            }
            SendMode::WithOthers(_) => false,
        };
        if alone && next.in_flight > 0 {
            return Decision::WaitAll;
        }
        self.alone = alone;
        self.sent.push(next.slot);
        gathered.events.insert(event);
        let in_transaction = self.in_transaction(record, Some(place.topic));
        gathered.sending.push(to(place.partition, record.clone()));
        Decision::Sent(in_transaction)
    }

    /// A record for a partition without a leader: all others go first, for half of its time. Kafka
    /// could not end a transaction with it, and would refuse this relay's next lane, until the
    /// partition has a leader again.
    fn hold_back(
        &self,
        item: &mut WaitingRecord<LookUpWait>,
        gathered: &mut Gathered,
        now: Instant,
    ) -> Decision<InTransaction> {
        gathered.holds_back = true;
        gathered.is_late = item.note.is_over(self.publish_timeout / 2, now);
        match gathered.is_late {
            true => Decision::WaitAll,
            false => Decision::Wait,
        }
    }

    /// Nothing is under way, and nothing but records that are held back can go: the lane ends over
    /// the first of them. *Later* is no answer of a lane that keeps progress: an event whose fate
    /// is unknown may leave the window for it.
    fn give_up_leaderless(&mut self, records: &mut Records) {
        let now = Instant::now();
        let mut fault = None;
        records.decide(|item, _| {
            if fault.is_some() {
                return Decision::WaitAll;
            }
            match self
                .topics
                .route(item, self.rotation, self.publish_timeout, now)
            {
                Route::Leaderless(place) => {
                    let reason = self.topics.leaderless(place);
                    let why = Unavailability::new(faults::cause(Code::LeaderNotAvailable), reason);
                    fault = Some(why.clone());
                    Decision::Answered(Outcome::Unavailable(Arc::new(why)))
                }
                _ => Decision::Wait,
            }
        });
        if let Some(fault) = fault {
            self.end(records, fault);
        }
    }

    fn in_transaction(&self, record: &Record, topic: Option<usize>) -> InTransaction {
        InTransaction {
            ticket: record.ticket(),
            topic,
            event: record.event().reference(),
            bytes: message::bytes(record),
            partition: self.progress.partition_of(record.event().slot()),
        }
    }

    fn begin(&mut self, records: &Records, sending: Vec<Sending>, progress_partition: i32) {
        let mut touched: Vec<(u16, EventRef)> = records
            .in_flight()
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
            records: sending,
            progress,
            alone: self.alone,
        };
        self.slow = Some(Slow::begin(Instant::now()));
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
