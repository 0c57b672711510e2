//! Whether the leaders of partitions still answer that accept nothing for long.
//!
//! The news that a record was accepted can be missing because the whole cluster is away: only an
//! answer that came since says that it is not.

use std::{
    collections::BTreeSet,
    future,
    time::{Duration, Instant},
};

use rdkafka::producer::Producer as _;
use tokio::sync::oneshot;

use crate::kafka::{client::Client, topics::TopicPartition};

/// A question at a time, to the leaders of all that was in flight.
#[derive(Default)]
pub(super) struct Leaders {
    ask_at: Option<Instant>,
    asked: Option<Asked>,
}

struct Asked {
    at: Instant,
    limit: Duration,
    answer: oneshot::Receiver<BTreeSet<TopicPartition>>,
}

/// The leaders that have answered the last question.
pub(super) struct Answers {
    asked_at: Option<Instant>,
    places: BTreeSet<TopicPartition>,
}

impl Leaders {
    /// Waits until it may be time to ask.
    pub(super) async fn are_to_be_asked(&self) {
        match self.ask_at {
            Some(at) => tokio::time::sleep_until(at.into()).await,
            None => future::pending().await,
        }
    }

    /// Whether it is time to ask, where that is `due`.
    pub(super) fn is_time(&mut self, due: Option<Instant>, now: Instant) -> bool {
        let asked = self.asked.as_ref();
        let due = due.filter(|due| asked.is_none_or(|asked| asked.at < *due));
        self.ask_at = due.map(|due| asked.map_or(due, |asked| due.max(asked.at + asked.limit)));
        self.ask_at.take_if(|at| *at <= now).is_some()
    }

    /// Asks the leaders of these partitions, each in its turn. An answer counts that comes within
    /// `limit`: what waited for its broker's return has time left to be accepted.
    pub(super) fn ask(
        &mut self,
        client: &Client,
        places: Vec<(TopicPartition, Box<str>)>,
        limit: Duration,
    ) {
        let producer = client.weak();
        let (answers, answer) = oneshot::channel();
        let at = Instant::now();
        self.asked = Some(Asked { at, limit, answer });
        tokio::task::spawn_blocking(move || {
            let left = || (at + limit).saturating_duration_since(Instant::now());
            let answers_in_time = |(place, topic): &(TopicPartition, Box<str>)| {
                // A broker that is silent leaves time for the others.
                let limit = left().min(limit / 2);
                let Ok(partition) = i32::try_from(place.partition) else {
                    return false;
                };
                producer.upgrade().is_some_and(|producer| {
                    let asking = producer.client();
                    asking.fetch_watermarks(topic, partition, limit).is_ok()
                })
            };
            let in_time = places.iter().take_while(|_| !left().is_zero());
            let answering = in_time.filter(|of| answers_in_time(of));
            // A lane that has ended wants no answer.
            let _ = answers.send(answering.map(|of| of.0).collect());
        });
    }

    pub(super) fn answers(&mut self) -> Answers {
        let places = self.asked.as_mut().map(|asked| asked.answer.try_recv());
        Answers {
            asked_at: self.asked.as_ref().map(|asked| asked.at),
            places: places.and_then(Result::ok).unwrap_or_default(),
        }
    }
}

impl Answers {
    /// Whether the partition's leader answered while a record waited that was sent at `at`.
    pub(super) fn came_since(&self, place: TopicPartition, at: Instant) -> bool {
        self.asked_at.is_some_and(|asked| asked > at) && self.places.contains(&place)
    }
}
