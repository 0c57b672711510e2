use std::{collections::HashMap, sync::Arc};

use uuid::Uuid;

use super::{Checker, Rules};
use crate::seen::{At, Place, Seen};

/// I7: a bad event delays only its key, a dead destination only itself. Judged while that is all that is wrong.
pub struct I7Isolation {
    places: usize,
    delay_max: At,
    poisoned: Option<Arc<str>>,
    away: Option<Place>,
    watching: bool,
    waiting: HashMap<(Place, Uuid), At>,
}

impl I7Isolation {
    pub(super) fn new(rules: &Rules) -> Self {
        Self {
            places: rules.places,
            delay_max: rules.delay_max,
            poisoned: None,
            away: None,
            watching: false,
            waiting: HashMap::new(),
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
        match seen {
            Seen::Poisoned { key } => {
                self.watching = true;
                self.poisoned = Some(Arc::clone(key));
            }
            Seen::Away { place } => {
                self.watching = true;
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
    use super::super::planted::*;
    use super::*;

    #[test]
    fn an_event_that_waits_for_another_key_is_found() {
        let poisoned = |name: &str| Seen::Poisoned { key: name.into() };
        let mut waits = vec![poisoned("bad"), committed(1)];
        waits.extend(vec![Seen::StatusAsked; 6]);
        waits.push(Seen::Healed);
        bad(I7Isolation::new(&rules()), &waits, "waited for the bad one");
        waits[0] = poisoned("k");
        good(I7Isolation::new(&rules()), &waits);
    }
}
