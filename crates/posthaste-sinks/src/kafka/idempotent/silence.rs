//! Partitions that accept nothing while others do, and whose leaders answer: too few replicas are
//! in sync. Their records are put off, and hold up no other place. Where the leader is silent too,
//! its broker may be away, or all are: then the lane ends, and the next one looks who leads.
//!
//! The lane ends, too, where a connection to the leader ended meanwhile: it may be a record over
//! which each one ends. Put off as silent, the others of its partition would be accepted one after
//! another, and none be left to show that the destination is there when that record fails alone.

use std::{
    collections::{BTreeSet, HashMap},
    time::Instant,
};

use posthaste_engine::{Cause, Decision, Outcome, Postponement, Unavailability};

use super::{IdempotentPublisher, Records, SentRecord};
use crate::{
    kafka::topics::{Route, TopicPartition},
    publisher::InPlacePublisher as _,
};

impl IdempotentPublisher {
    /// Has the leaders asked of all that is in flight, when it is time.
    pub(super) fn ask_leaders(&mut self, records: &Records, now: Instant) {
        let due = records
            .oldest()
            .map(|oldest| oldest + self.publish_timeout / 2);
        if self.leaders.is_time(due, now) {
            let places: BTreeSet<_> = records.in_flight().map(|sent| sent.place).collect();
            let name = |place: TopicPartition| (place, self.topics.name(place.topic).into());
            let places = places.into_iter().map(name).collect();
            self.leaders
                .ask(&self.client, places, self.publish_timeout * 3 / 10);
        }
    }

    /// Answers the records of partitions that are silent by themselves, now that an answer is
    /// overdue and all was purged. Answers the words for it, where there are any.
    pub(super) fn answer_silent(&mut self, records: &mut Records, now: Instant) -> Option<String> {
        let places = self.silent(records, now);
        let place = *places.first()?;
        let is_silent = |sent: &&SentRecord| places.contains(&sent.place);
        let mut silent: Vec<_> = records.in_flight().filter(is_silent).collect();
        silent.sort_unstable_by_key(|sent| sent.number);
        let silent: Vec<_> = silent.iter().map(|sent| (sent.slot, sent.place)).collect();
        for (slot, place) in silent {
            // Bytes that were under way may still arrive, over another connection than that of the
            // place's next record.
            let outcome = Outcome::Later(Box::new(Postponement {
                wait: Some(self.publish_timeout / 2),
                is_silent: true,
                ..Postponement::new(self.words(place))
            }));
            if let Some(sent) = records.answer(slot, outcome) {
                self.key_partitions.answered(sent.order_key);
            }
        }
        self.put_off_waiting(records, &places, now);
        // They may be led by another broker by now.
        let topics = places.iter().map(|place| place.topic).collect();
        self.topics.doubt(&topics, now);
        Some(self.words(place))
    }

    /// Records that wait for these partitions have waited long, too: sent now they would be overdue
    /// at once.
    fn put_off_waiting(
        &mut self,
        records: &mut Records,
        places: &BTreeSet<TopicPartition>,
        now: Instant,
    ) {
        records.decide(|item, _| {
            let (rotation, limit) = (self.rotation, self.publish_timeout);
            match self.topics.route(item, rotation, limit, now) {
                Route::To(place) if places.contains(&place) => {
                    Decision::Answered(Outcome::later(self.words(place)))
                }
                _ => Decision::Wait,
            }
        });
    }

    /// The partitions whose first record in flight has waited long, although their leader answers,
    /// over a connection that lasts, and one that was sent behind it was accepted. That one went to
    /// another partition: in one, answers keep the order.
    fn silent(&mut self, records: &Records, now: Instant) -> BTreeSet<TopicPartition> {
        let mut first: HashMap<TopicPartition, (u64, Instant)> = HashMap::new();
        for sent in records.in_flight() {
            let entry = first.entry(sent.place).or_insert((u64::MAX, now));
            *entry = (*entry).min((sent.number, sent.at));
        }
        let long = self.publish_timeout / 2;
        let leaders = self.leaders.answers();
        let is_silent = |place: TopicPartition, (number, at): (u64, Instant)| {
            let has_waited = number < self.last_accepted && now.duration_since(at) >= long;
            has_waited && leaders.came_since(place, at) && !self.may_have_lost_leader(place, at)
        };
        let silent = first
            .into_iter()
            .filter(|(of, first)| is_silent(*of, *first));
        silent.map(|(place, _)| place).collect()
    }

    fn may_have_lost_leader(&self, place: TopicPartition, since: Instant) -> bool {
        let leader = self.topics.leader(place);
        leader.is_some_and(|leader| self.client.may_have_lost(leader, since))
    }

    fn words(&self, place: TopicPartition) -> String {
        format!(
            "partition {} of topic `{}` answered nothing within {:?}, and others did: look whether \
             it has as many replicas in sync as min.insync.replicas asks for",
            place.partition,
            self.topics.name(place.topic),
            self.publish_timeout
        )
    }

    /// The records of silent partitions are answered, and all else in flight was purged with them:
    /// it is sent again by the next lane, or there is none.
    pub(super) fn go_on_without(&mut self, records: &mut Records, silent: String, now: Instant) {
        let mut failures = std::mem::take(&mut self.failing);
        failures.retain(|(slot, _)| records.get(*slot).is_some());
        if !failures.is_empty() {
            self.failed(records, &failures, now);
        } else if records.in_flight_count() == 0 {
            self.begin_anew(records);
        } else {
            self.end(records, Unavailability::new(Cause::LaneEnded, silent));
        }
    }
}
