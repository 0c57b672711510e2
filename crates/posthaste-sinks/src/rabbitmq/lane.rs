//! The relay's end of a lane. A task of its own drives the connection, so that confirms are taken and
//! heartbeats sent whatever the relay does.

use std::{collections::HashSet, future::pending, mem, time::Duration};

use async_trait::async_trait;
use posthaste_engine::{Cause, Lane, Outcome, Record, Verdict};
use tokio::{
    sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel},
    task::JoinHandle,
    time::timeout,
};

use super::driver::Driver;

const BROKEN: &str = "the lane's task broke down (a bug)";

pub(super) struct RabbitMqLane {
    records: Option<UnboundedSender<Vec<Record>>>,
    verdicts: UnboundedReceiver<Vec<Verdict>>,
    /// Tickets without a verdict.
    in_flight: HashSet<u64>,
    task: JoinHandle<()>,
}

impl RabbitMqLane {
    /// Starts the task. The channels are unbounded, since the engine keeps to the sink's
    /// `in_flight_events_max`.
    pub(super) fn start(driver: Driver) -> Self {
        let (records, incoming) = unbounded_channel();
        let (outgoing, verdicts) = unbounded_channel();
        Self {
            records: Some(records),
            verdicts,
            in_flight: HashSet::new(),
            task: tokio::spawn(driver.run(incoming, outgoing)),
        }
    }

    fn take(&mut self, verdicts: Vec<Verdict>) -> Vec<Verdict> {
        for verdict in &verdicts {
            self.in_flight.remove(&verdict.ticket);
        }
        verdicts
    }

    /// Answers everything that has no verdict.
    fn give_up(&mut self, cause: Cause, reason: &str) -> Vec<Verdict> {
        let outcome = Outcome::unavailable(cause, reason);
        let mut tickets: Vec<u64> = mem::take(&mut self.in_flight).into_iter().collect();
        tickets.sort_unstable();
        tickets
            .into_iter()
            .map(|ticket| Verdict {
                ticket,
                outcome: outcome.clone(),
            })
            .collect()
    }

    /// Drops what the task holds, the socket with it, and waits until that is done.
    async fn destroy(&mut self) {
        self.task.abort();
        // It answers that it was cancelled, or has ended by itself.
        let _ = (&mut self.task).await;
    }
}

#[async_trait]
impl Lane for RabbitMqLane {
    async fn submit(&mut self, batch: Vec<Record>) {
        if batch.is_empty() {
            return;
        }
        self.in_flight.extend(batch.iter().map(Record::ticket));
        if let Some(records) = &self.records {
            // A task that is gone has closed `verdicts` too, and `outcomes` answers for it.
            let _ = records.send(batch);
        }
    }

    async fn outcomes(&mut self) -> Vec<Verdict> {
        if self.in_flight.is_empty() {
            pending::<()>().await;
        }
        let Some(verdicts) = self.verdicts.recv().await else {
            return self.give_up(Cause::Unknown, BROKEN);
        };
        let mut all = self.take(verdicts);
        while let Ok(verdicts) = self.verdicts.try_recv() {
            all.append(&mut self.take(verdicts));
        }
        all
    }

    async fn abort(mut self: Box<Self>) {
        self.destroy().await;
    }

    async fn close(mut self: Box<Self>, limit: Duration) -> Vec<Verdict> {
        self.records = None;
        let mut all = Vec::with_capacity(self.in_flight.len());
        let drained = timeout(limit, async {
            while let Some(verdicts) = self.verdicts.recv().await {
                all.append(&mut self.take(verdicts));
            }
        });
        let drained = drained.await;
        self.destroy().await;
        all.append(&mut match drained {
            Ok(()) => self.give_up(Cause::Unknown, BROKEN),
            Err(_) => self.give_up(
                Cause::LaneEnded,
                "not confirmed by the broker within the time for closing",
            ),
        });
        all
    }
}

impl Drop for RabbitMqLane {
    /// A lane that is dropped is aborted, as far as this can be without waiting.
    fn drop(&mut self) {
        self.task.abort();
    }
}
