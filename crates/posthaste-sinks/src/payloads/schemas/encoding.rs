//! Records whose payloads get the form that a registry's schemas tell.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use posthaste_engine::{Field, Outcome, Record, RejectionKind};
use tokio::{sync::watch, time::Instant};

use super::{
    registry::{Known, Lookup, Registry},
    schema::Nature,
    subject::{Asked, Subjects},
};
use crate::payloads::{
    jobs::{Jobs, Progress},
    lane::{Next, Work},
    patience::Patience,
};

/// The first byte of the registry's wire format. No text in JSON begins so.
const WIRE_FORMAT: u8 = 0;

pub(super) struct Encoding {
    registry: Arc<Registry>,
    subjects: Subjects,
    patience: Patience,
    jobs: Jobs<Encoded>,
    ended: watch::Receiver<u64>,
}

/// A payload in its form, or why it fits no schema.
struct Encoded {
    payload: Result<Bytes, String>,
    schema_asked: Instant,
}

/// The note on a record that waits.
#[derive(Debug)]
pub(super) struct Note {
    /// Its batch was submitted then: from that time on an answer is owed.
    since: Instant,
    progress: Progress,
    /// It does not fit the schema that was known when it came: a newer one may be there.
    is_misfit: bool,
}

impl Default for Note {
    fn default() -> Self {
        Self {
            since: Instant::now(),
            progress: Progress::New,
            is_misfit: false,
        }
    }
}

impl Encoding {
    /// Those of a lane whose records have to be answered within this time.
    pub(super) fn new(registry: Arc<Registry>, subjects: Subjects, limit: Duration) -> Self {
        Self {
            ended: registry.ended.subscribe(),
            registry,
            subjects,
            patience: Patience::new(limit),
            jobs: Jobs::new(),
        }
    }

    fn encode(&mut self, record: &Record, asked: &Asked, note: &mut Note) -> Next {
        let since = note.since;
        let encoded = match note.progress {
            Progress::Begun => self.jobs.result(record),
            Progress::New => match self
                .registry
                .look_up(asked, note.is_misfit.then_some(since))
            {
                Lookup::Known(known) => self.begin(record, known, &mut note.progress),
                Lookup::Fault(fault) => return Next::Answered(fault.outcome()),
                Lookup::Asking => None,
            },
        };
        let Some(encoded) = encoded else {
            return match self.patience.is_over(since) {
                true => Next::Answered(late(asked, note.progress)),
                false => Next::Wait,
            };
        };
        note.progress = Progress::New;
        match encoded.payload {
            Ok(payload) => {
                let bytes = payload.len();
                self.jobs.hold(bytes);
                Next::Ready(record.clone().with_value(Some(payload)), bytes)
            }
            Err(_) if encoded.schema_asked < since && asked.version.is_none() => {
                note.is_misfit = true;
                self.encode(record, asked, note)
            }
            Err(fault) => {
                let subject = &asked.subject;
                let fault = format!(
                    "its payload does not fit the schema of the subject `{subject}`: {fault}"
                );
                Next::Answered(Outcome::rejected(RejectionKind::Invalid, fault))
            }
        }
    }

    fn begin(&mut self, record: &Record, known: Known, progress: &mut Progress) -> Option<Encoded> {
        let payload = record.value_bytes().unwrap_or_default();
        let text = |field| record.event().text(field).map(str::to_owned);
        let nature = Nature {
            content_type: text(Field::ContentType).map(|text| text.to_ascii_lowercase()),
            kind: text(Field::Type),
        };
        let (bytes, is_quick) = (payload.len(), known.schema.is_quick());
        self.jobs
            .run(record, bytes, is_quick, progress, move || Encoded {
                payload: known.schema.encode(&payload, &nature),
                schema_asked: known.asked,
            })
    }
}

impl Work for Encoding {
    type Note = Note;

    fn begin(&mut self) {
        self.jobs.begin();
        self.patience.begin();
    }

    fn step(&mut self, record: &Record, note: &mut Note) -> Next {
        // A tombstone has no form, and who writes the wire format has chosen the schema.
        let is_bare = record
            .value()
            .is_some_and(|value| value.first() != Some(&WIRE_FORMAT));
        let is_binary = record
            .event()
            .text(Field::ContentType)
            .is_some_and(is_binary);
        if record.value().is_none() || !(is_bare || is_binary) {
            return Next::Ready(record.clone(), 0);
        }
        match self.subjects.of(record) {
            Ok(asked) => self.encode(record, &asked, note),
            Err(fault) => Next::Answered(Outcome::rejected(RejectionKind::Invalid, fault)),
        }
    }

    fn end(&mut self) {
        self.jobs.end();
    }

    async fn go_on(&mut self) {
        tokio::select! {
            Ok(()) = self.ended.changed() => {}
            true = self.jobs.go_on() => {}
            () = self.patience.ends() => {}
        }
    }

    fn freed(&mut self, bytes: usize) {
        self.jobs.free(bytes);
    }
}

fn late(asked: &Asked, progress: Progress) -> Outcome {
    let subject = &asked.subject;
    Outcome::later(match progress {
        Progress::New => format!("the schema of the subject `{subject}` is still being asked for"),
        Progress::Begun => format!("it takes long to give it the form of the subject `{subject}`"),
    })
}

/// Whether payloads of this type may begin with a zero.
fn is_binary(content_type: &str) -> bool {
    let content_type = content_type.to_ascii_lowercase();
    content_type.contains("avro") || content_type.contains("protobuf")
}
