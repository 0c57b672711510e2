use std::{collections::HashMap, sync::Arc};

use uuid::Uuid;

use super::{Checker, Rules};
use crate::seen::{At, DestinationIndex, Seen};

/// How often an event has to be sent before it is held against it that it failed without having
/// been refused.
pub(crate) const ALONE_MIN: u32 = 6;

/// I7: a bad event delays only its key, a dead destination only itself. Judged while that is all
/// that is wrong. And what is not at fault is not taken for a bad event, whatever is wrong: an
/// outage burns no attempt.
pub struct I7Isolation {
    places: usize,
    /// Of what is wrong now.
    delay_max: At,
    poisoned: Option<Arc<str>>,
    away: Option<DestinationIndex>,
    watching: bool,
    waiting: HashMap<(DestinationIndex, Uuid), At>,
    attempts: HashMap<(DestinationIndex, Uuid), Attempts>,
}

/// Counts against an event for which no failed attempt is stored yet.
#[derive(Default)]
struct Attempts {
    refused: u32,
    sent: u32,
}

impl I7Isolation {
    pub(super) fn new(rules: &Rules) -> Self {
        Self {
            places: rules.places,
            delay_max: At::ZERO,
            poisoned: None,
            away: None,
            watching: false,
            waiting: HashMap::new(),
            attempts: HashMap::new(),
        }
    }

    fn count(&mut self, seen: &Seen, wrong: &mut Vec<String>) {
        match *seen {
            Seen::Submitted { place, id, .. } => {
                self.attempts.entry((place, id)).or_default().sent += 1;
            }
            Seen::Refused { place, id } => {
                self.attempts.entry((place, id)).or_default().refused += 1;
            }
            Seen::AttemptFailed { place, id, alone } => {
                let Attempts { refused, sent } = self.attempts.entry((place, id)).or_default();
                if alone && *sent < ALONE_MIN {
                    wrong.push(format!(
                        "an outage burned an attempt: {id} was sent {sent} times"
                    ));
                } else if !alone && *refused == 0 {
                    wrong.push(format!("an outage burned an attempt: nobody refused {id}"));
                }
                (*sent, *refused) = (0, refused.saturating_sub(u32::from(!alone)));
            }
            _ => {}
        }
    }

    fn late(&self, at: At, wrong: &mut Vec<String>) {
        let late = self
            .waiting
            .values()
            .filter(|since| at - **since > self.delay_max);
        let late = late.count();
        if late > 0 {
            wrong.push(format!("{late} events of others waited for the bad one"));
        }
    }
}

impl Checker for I7Isolation {
    fn see(&mut self, at: At, seen: &Seen, wrong: &mut Vec<String>) {
        self.count(seen, wrong);
        match seen {
            Seen::Poisoned { key, delay_max } => {
                self.watching = true;
                self.delay_max = *delay_max;
                self.poisoned = Some(Arc::clone(key));
            }
            Seen::Away { place, delay_max } => {
                self.watching = true;
                self.delay_max = *delay_max;
                self.away = Some(*place);
            }
            Seen::Committed { id, key, .. } if self.watching => {
                if key.is_some() && *key == self.poisoned {
                    return;
                }
                for place in (0..self.places).filter(|place| Some(*place) != self.away) {
                    self.waiting.insert((place, *id), at);
                }
            }
            Seen::Delivered { place, id, .. } if self.watching => {
                if let Some(since) = self.waiting.remove(&(*place, *id))
                    && at - since > self.delay_max
                {
                    wrong.push(format!("{id} waited {:?} for a bad one", at - since));
                }
            }
            Seen::Healed | Seen::LastDeath if self.watching => {
                self.late(at, wrong);
                (self.watching, self.poisoned, self.away) = (false, None, None);
                self.waiting.clear();
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::traces::*;
    use super::*;

    #[test]
    fn an_event_that_waits_for_another_key_is_found() {
        let poisoned = |name: &str| Seen::Poisoned {
            key: name.into(),
            delay_max: At::from_secs(5),
        };
        let mut waits = vec![poisoned("bad"), committed(1)];
        waits.extend(vec![Seen::StatusAsked; 6]);
        waits.push(Seen::Healed);
        bad(I7Isolation::new(&rules()), &waits, "waited for the bad one");
        waits[0] = poisoned("k");
        good(I7Isolation::new(&rules()), &waits);
    }

    fn sent() -> Seen {
        Seen::Submitted {
            place: 0,
            id: id(1),
            epoch: 1,
            registration: id(9),
        }
    }

    fn attempt(alone: bool) -> Seen {
        let (place, id) = (0, id(1));
        Seen::AttemptFailed { place, id, alone }
    }

    #[test]
    fn an_attempt_that_an_outage_burned_is_found() {
        let (place, id) = (0, id(1));
        let refused = Seen::Refused { place, id };
        let mut trace = vec![sent(), refused.clone(), attempt(false)];
        good(I7Isolation::new(&rules()), &trace);
        trace.extend([sent(), attempt(false)]);
        bad(I7Isolation::new(&rules()), &trace, "nobody refused");
        // Refused twice where the answer of one was lost.
        trace[0] = refused;
        good(I7Isolation::new(&rules()), &trace);
    }

    #[test]
    fn an_attempt_that_failed_alone_once_is_found() {
        let mut trace = vec![sent(); 6];
        trace.push(attempt(true));
        good(I7Isolation::new(&rules()), &trace);
        trace.remove(0);
        bad(I7Isolation::new(&rules()), &trace, "sent 5 times");
    }
}
