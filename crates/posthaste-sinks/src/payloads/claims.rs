//! The payloads that a lane stores before it hands their events on.
//!
//! An event that waits for longer than an answer may take is put off, and its payload goes on being
//! stored: it is sent when its turn comes again.

use std::{collections::HashMap, panic::resume_unwind, sync::Arc, time::Duration};

use posthaste_engine::{EventRef, Outcome, Record};
use tokio::{task::JoinSet, time::Instant};

use super::{
    claim::{Claim, ClaimCheck, Unstored},
    patience::Patience,
    storage::Fault,
};

/// Objects that are written at once: as many as hide the time of an answer.
const AT_ONCE_MAX: usize = 8;
/// Bytes of these payloads; a larger one is alone.
const BYTES_MAX: usize = 16 << 20;
/// Ends that are remembered until their event comes again.
const ENDED_MAX: usize = 1_000;
/// For how long. It must be nothing beside the age at which somebody removes objects.
const ENDED_FOR: Duration = Duration::from_secs(600);

/// The next step of a record.
pub(super) enum Step {
    /// It is handed on with this claim.
    Ready(Claim),
    /// It is not sent.
    Answered(Outcome),
    Wait,
}

pub(super) struct Claims {
    check: Arc<ClaimCheck>,
    destination: Arc<str>,
    patience: Patience,
    uploads: JoinSet<(EventRef, Result<Claim, Fault>)>,
    /// Payloads that are being stored, with their bytes.
    under_way: HashMap<EventRef, usize>,
    bytes: usize,
    /// The payload for which there was no room, with its bytes. No other one begins before it:
    /// smaller ones would take its room for ever. Its event may have been put off meanwhile.
    next: Option<(EventRef, Unstored, usize)>,
    ended: HashMap<EventRef, (Instant, Result<Claim, Fault>)>,
    /// Since when records wait, by ticket.
    since: HashMap<u64, Instant>,
}

impl Claims {
    /// Those of a lane whose records have to be answered within this time.
    pub(super) fn new(check: Arc<ClaimCheck>, destination: &str, limit: Duration) -> Self {
        Self {
            check,
            destination: destination.into(),
            patience: Patience::new(limit),
            uploads: JoinSet::new(),
            under_way: HashMap::new(),
            bytes: 0,
            next: None,
            ended: HashMap::new(),
            since: HashMap::new(),
        }
    }

    /// Notes the time of those whose payload is to be stored.
    pub(super) fn submitted(&mut self, batch: &[Record]) {
        let now = Instant::now();
        if self.since.len() > ENDED_MAX {
            // Those that were answered behind a failure.
            self.since.retain(|_, since| now - *since < ENDED_FOR);
        }
        let wanted = batch.iter().filter(|record| self.check.wants(record));
        self.since
            .extend(wanted.map(|record| (record.ticket(), now)));
    }

    /// A round of steps begins.
    pub(super) fn begin(&mut self) {
        self.patience.begin();
    }

    /// The next step of a record; none if its payload is not to be stored.
    pub(super) fn step(&mut self, record: &Record) -> Option<Step> {
        if !self.check.wants(record) {
            return None;
        }
        let now = Instant::now();
        let step = self.step_at(record, now);
        if !matches!(step, Step::Wait) {
            self.since.remove(&record.ticket());
        }
        Some(step)
    }

    fn step_at(&mut self, record: &Record, now: Instant) -> Step {
        let event = record.event().reference();
        match self.ended.get(&event) {
            Some((at, Ok(claim))) if now - *at < ENDED_FOR => {
                return Step::Ready(claim.clone());
            }
            Some((_, Err(_))) => {
                if let Some((_, Err(fault))) = self.ended.remove(&event) {
                    return Step::Answered(fault.outcome());
                }
            }
            _ => {}
        }
        let is_next = self.next.as_ref().is_some_and(|(next, ..)| *next == event);
        let is_under_way =
            is_next || self.under_way.contains_key(&event) || self.store(event, record);
        let since = self.since.get(&record.ticket()).copied().unwrap_or(now);
        if !self.patience.is_over(since) {
            return Step::Wait;
        }
        let size = record.value().map_or(0, <[u8]>::len);
        Step::Answered(Outcome::later(match is_under_way {
            true => format!("its payload of {size} bytes is still being stored"),
            false => format!("its payload of {size} bytes waits until others are stored"),
        }))
    }

    /// Begins to store the payload, or puts it next in line; none where another one is.
    fn store(&mut self, event: EventRef, record: &Record) -> bool {
        let bytes = record.value().map_or(0, <[u8]>::len);
        if self.next.is_some() {
            return false;
        }
        self.next = Some((event, self.check.unstored(record), bytes));
        self.begin_next();
        true
    }

    /// Begins to store the next payload once there is room.
    fn begin_next(&mut self) {
        let has_room = |bytes: usize| {
            self.under_way.is_empty()
                || self.under_way.len() < AT_ONCE_MAX && self.bytes + bytes <= BYTES_MAX
        };
        let Some((event, unstored, bytes)) = self.next.take_if(|(_, _, bytes)| has_room(*bytes))
        else {
            return;
        };
        self.bytes += bytes;
        self.under_way.insert(event, bytes);
        let (check, destination) = (Arc::clone(&self.check), Arc::clone(&self.destination));
        self.uploads.spawn(async move {
            let stored = check.store(&destination, unstored).await;
            (event, stored)
        });
    }

    /// Waits until another step of some record is possible. Cancel safe.
    pub(super) async fn changed(&mut self) {
        tokio::select! {
            Some(ended) = self.uploads.join_next() => match ended {
                Ok((event, stored)) => self.end(event, stored),
                // A bug, and none that more events would survive.
                Err(broken) => resume_unwind(broken.into_panic()),
            },
            () = self.patience.ends() => {}
        }
    }

    fn end(&mut self, event: EventRef, stored: Result<Claim, Fault>) {
        self.bytes -= self.under_way.remove(&event).unwrap_or_default();
        self.begin_next();
        let now = Instant::now();
        if self.ended.len() >= ENDED_MAX {
            self.ended.retain(|_, (at, _)| now - *at < ENDED_FOR);
        }
        if self.ended.len() >= ENDED_MAX
            && let Some(one) = self.ended.keys().next().copied()
        {
            self.ended.remove(&one);
        }
        self.ended.insert(event, (now, stored));
    }
}

#[cfg(test)]
mod tests {
    use posthaste_testkit::sink_suite::{SuiteEvent, records};
    use tempfile::TempDir;

    use super::*;
    use crate::payloads::storage::Storage;

    /// A small payload would fit beside the first one, the large one before it does not.
    #[tokio::test]
    async fn a_payload_without_room_is_next_in_line() {
        let folder = TempDir::new().unwrap();
        let check = ClaimCheck {
            storage: Storage::open(&format!("file://{}", folder.path().display())).unwrap(),
            bytes_max: 0,
            compressing: None,
        };
        let mut claims = Claims::new(Arc::new(check), "d", Duration::from_secs(3_600));
        let sizes = [BYTES_MAX - 1_000, 2_000, 10];
        let events = sizes.map(|size| SuiteEvent::new(None, "x".repeat(size)));
        let records = records(&events, 0);
        claims.submitted(&records);
        claims.begin();
        for record in &records {
            assert!(matches!(claims.step(record), Some(Step::Wait)));
        }
        let under_way: Vec<_> = claims.under_way.keys().copied().collect();
        assert_eq!(under_way, [records[0].event().reference()]);
        let mut open = records;
        while !open.is_empty() {
            claims.changed().await;
            claims.begin();
            open.retain(|record| !matches!(claims.step(record), Some(Step::Ready(_))));
        }
    }
}
