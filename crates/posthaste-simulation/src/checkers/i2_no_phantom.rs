use std::{collections::HashMap, sync::Arc};

use uuid::Uuid;

use super::Checker;
use crate::seen::{At, Seen};

type Content = (Option<Arc<str>>, u64);

/// I2: what is delivered was committed before, as it is.
#[derive(Default)]
pub struct I2NoPhantom {
    committed: HashMap<Uuid, Content>,
}

impl Checker for I2NoPhantom {
    fn see(&mut self, _: At, seen: &Seen, wrong: &mut Vec<String>) {
        match seen {
            Seen::Committed { id, key, n, .. } => {
                self.committed.insert(*id, (key.clone(), *n));
            }
            Seen::Delivered { id, key, n, .. } => match self.committed.get(id) {
                None => wrong.push(format!("{id} (key {key:?}, n {n}) never committed")),
                Some(content) if (&content.0, content.1) != (key, *n) => {
                    wrong.push(format!("{id} arrived as {key:?}, {n}, not {content:?}"));
                }
                Some(_) => {}
            },
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::traces::*;
    use super::*;

    #[test]
    fn an_invented_event_and_a_changed_one_are_found() {
        good(I2NoPhantom::default(), &[committed(1), delivered(1)]);
        bad(I2NoPhantom::default(), &[delivered(1)], "never committed");
        let early = [delivered(1), committed(1)];
        bad(I2NoPhantom::default(), &early, "never committed");
        let changed = Seen::Delivered {
            place: 0,
            id: id(1),
            key: key("another"),
            n: 1,
        };
        bad(
            I2NoPhantom::default(),
            &[committed(1), changed],
            "arrived as",
        );
    }
}
