//! Payloads that are compressed, or stored elsewhere.

#[cfg(feature = "claim-check")]
use std::future::pending;
use std::time::Duration;

use bytes::Bytes;
use posthaste_engine::Record;
use tokio::time::Instant;

#[cfg(feature = "claim-check")]
use super::claims::{Claims, Step};
use super::{
    compressing::Compressing,
    jobs::{Jobs, Progress},
    lane::{Next, Work},
    patience::Patience,
};

/// The changes of payloads.
pub(super) struct Packing {
    /// Payloads that are not stored elsewhere are compressed so.
    compressing: Option<Compressing>,
    #[cfg(feature = "claim-check")]
    claims: Option<Claims>,
    /// Their results: none for payloads that stay as they are.
    pub(super) jobs: Jobs<Option<Bytes>>,
    patience: Patience,
}

/// The note on a record that waits.
#[derive(Debug)]
pub(super) struct Note {
    since: Instant,
    progress: Progress,
}

impl Default for Note {
    fn default() -> Self {
        Self {
            since: Instant::now(),
            progress: Progress::New,
        }
    }
}

impl Packing {
    /// Those of a lane whose records have to be answered within this time.
    pub(super) fn new(compressing: Option<Compressing>, publish_timeout: Duration) -> Self {
        Self {
            compressing,
            #[cfg(feature = "claim-check")]
            claims: None,
            jobs: Jobs::new(),
            patience: Patience::new(publish_timeout),
        }
    }

    /// The same, with large payloads stored.
    #[cfg(feature = "claim-check")]
    pub(super) fn with_claims(mut self, claims: Option<Claims>) -> Self {
        self.claims = claims;
        self
    }

    fn compressed(&mut self, record: &Record, payload: Option<Bytes>) -> Next {
        let record = record.clone();
        let Some((compressing, payload)) = self.compressing.zip(payload) else {
            return Next::Ready(record, 0);
        };
        let bytes = payload.len();
        self.jobs.hold(bytes);
        Next::Ready(compressing.apply(record, payload), bytes)
    }
}

impl Work for Packing {
    type Note = Note;

    #[cfg(feature = "claim-check")]
    fn submitted(&mut self, batch: &[Record]) {
        if let Some(claims) = &mut self.claims {
            claims.submitted(batch);
        }
    }

    fn begin(&mut self) {
        self.jobs.begin();
        self.patience.begin();
        #[cfg(feature = "claim-check")]
        if let Some(claims) = &mut self.claims {
            claims.begin();
        }
    }

    fn step(&mut self, record: &Record, note: &mut Note) -> Next {
        #[cfg(feature = "claim-check")]
        if let Some(claims) = &mut self.claims
            && let Some(step) = claims.step(record)
        {
            return match step {
                Step::Ready(claim) => Next::Ready(claim.apply(record.clone()), 0),
                Step::Answered(outcome) => Next::Answered(outcome),
                Step::Wait => Next::Wait,
            };
        }
        let result = match note.progress {
            Progress::Begun => self.jobs.result(record),
            Progress::New => {
                let wanted = self
                    .compressing
                    .and_then(|of| Some((of, of.wants(record)?)));
                let Some((compressing, payload)) = wanted else {
                    return Next::Ready(record.clone(), 0);
                };
                let bytes = payload.len();
                self.jobs
                    .run(record, bytes, true, &mut note.progress, move || {
                        compressing.compress(&payload)
                    })
            }
        };
        match result {
            Some(payload) => self.compressed(record, payload),
            // Consumers look at each record: better so than too late.
            None if self.patience.is_over(note.since) => Next::Ready(record.clone(), 0),
            None => Next::Wait,
        }
    }

    fn end(&mut self) {
        self.jobs.end();
    }

    async fn go_on(&mut self) {
        #[cfg(feature = "claim-check")]
        let claims = async {
            match &mut self.claims {
                Some(claims) => claims.changed().await,
                None => pending().await,
            }
        };
        #[cfg(not(feature = "claim-check"))]
        let claims = std::future::pending();
        tokio::select! {
            () = claims => {}
            true = self.jobs.go_on() => {}
            () = self.patience.ends() => {}
        }
    }

    fn freed(&mut self, bytes: usize) {
        self.jobs.free(bytes);
    }
}
