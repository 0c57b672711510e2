//! The schemas that a registry gave, and those that it is asked for.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use tokio::{sync::watch, time::Instant};

use super::{fault::Fault, schema::Schema, server::Server, subject::Asked};

/// The latest version of a subject is asked for again after this time.
const AGE_MAX: Duration = Duration::from_secs(60);
/// After a fault, a registry is asked again no sooner than this.
const PAUSE: Duration = Duration::from_secs(1);
/// Questions under way at the most.
const QUESTIONS_MAX: usize = 8;
/// Subjects that are remembered; those that were wanted longest ago are forgotten.
const SUBJECTS_MAX: usize = 5_000;

/// A registry with a memory.
#[derive(Debug)]
pub(super) struct Registry {
    pub(super) server: Server,
    memory: Mutex<Memory>,
    /// Questions that were answered, or not.
    pub(super) ended: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct Memory {
    subjects: HashMap<Asked, Entry>,
    questions: usize,
}

#[derive(Debug)]
struct Entry {
    known: Option<Known>,
    /// The fault of the last answer, and its time.
    fault: Option<(Instant, Fault)>,
    is_asked_for: bool,
    wanted: Instant,
}

/// A schema, and when it was asked for.
#[derive(Debug, Clone)]
pub(super) struct Known {
    pub(super) schema: Arc<Schema>,
    pub(super) asked: Instant,
}

/// The answer about a schema.
#[derive(Debug)]
pub(super) enum Lookup {
    Known(Known),
    Fault(Fault),
    /// It is being asked for.
    Asking,
}

impl Registry {
    pub(super) fn new(server: Server) -> Self {
        Self {
            server,
            memory: Mutex::default(),
            ended: watch::Sender::new(0),
        }
    }

    /// The schema as it was at this time or later.
    pub(super) fn look_up(self: &Arc<Self>, asked: &Asked, since: Option<Instant>) -> Lookup {
        let mut memory = self.memory.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        let entry = match memory.subjects.contains_key(asked) {
            true => memory.subjects.get_mut(asked),
            false => memory.entry(asked),
        };
        let Some(entry) = entry else {
            return Lookup::Asking;
        };
        entry.wanted = now;
        let is_for_good = asked.version.is_some();
        let known = entry
            .known
            .as_ref()
            .filter(|known| is_for_good || since.is_none_or(|since| known.asked >= since));
        let known = known.cloned();
        let fault = entry.fault.as_ref().filter(|(at, _)| *at + PAUSE > now);
        let fault = fault.map(|(_, fault)| fault.clone());
        let is_old = |known: &Known| !is_for_good && known.asked + AGE_MAX < now;
        let is_asked_for = entry.is_asked_for;
        let is_wanted = match &known {
            Some(known) => is_old(known) && fault.is_none(),
            None => fault.is_none(),
        };
        let lookup = match (known, fault) {
            (Some(known), _) => Lookup::Known(known),
            (None, Some(fault)) if !is_asked_for => Lookup::Fault(fault),
            (None, _) => Lookup::Asking,
        };
        if is_wanted && !is_asked_for && memory.questions < QUESTIONS_MAX {
            memory.questions += 1;
            if let Some(entry) = memory.subjects.get_mut(asked) {
                entry.is_asked_for = true;
            }
            let (registry, asked) = (Arc::clone(self), asked.clone());
            // It ends by itself, within the server's limit.
            tokio::spawn(async move { registry.ask(asked).await });
        }
        lookup
    }

    async fn ask(&self, asked: Asked) {
        let began = Instant::now();
        let answer = self.server.schema(&asked).await;
        let mut memory = self.memory.lock().unwrap_or_else(PoisonError::into_inner);
        memory.questions -= 1;
        if let Some(entry) = memory.subjects.get_mut(&asked) {
            entry.is_asked_for = false;
            match answer {
                Ok(schema) => {
                    entry.fault = None;
                    entry.known = Some(Known {
                        schema: Arc::new(schema),
                        asked: began,
                    });
                }
                Err(fault) => {
                    // A registry that is away takes nothing back.
                    if matches!(fault, Fault::Refused(..)) {
                        entry.known = None;
                    }
                    entry.fault = Some((Instant::now(), fault));
                }
            }
        }
        drop(memory);
        self.ended.send_modify(|count| *count += 1);
    }
}

impl Memory {
    /// A new entry; none where all others are being asked for.
    fn entry(&mut self, asked: &Asked) -> Option<&mut Entry> {
        if self.subjects.len() >= SUBJECTS_MAX {
            let rest = self
                .subjects
                .iter()
                .filter(|(_, entry)| !entry.is_asked_for);
            let oldest = rest.min_by_key(|(_, entry)| entry.wanted)?.0.clone();
            self.subjects.remove(&oldest);
        }
        Some(self.subjects.entry(asked.clone()).or_insert(Entry {
            known: None,
            fault: None,
            is_asked_for: false,
            wanted: Instant::now(),
        }))
    }
}
