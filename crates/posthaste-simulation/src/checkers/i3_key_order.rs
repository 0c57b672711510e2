use std::collections::{HashMap, HashSet};

use posthaste_engine::OrderBy;
use posthaste_testkit::checker::Checker as Score;
use uuid::Uuid;

use super::{Checker, Rules};
use crate::seen::{At, Seen};

/// I3: first deliveries of a key follow the commit order of writers that serialise, those of any
/// transaction its own order; a repeat is a contiguous replay where the broker fences, or where
/// nobody stood still before a write.
pub struct I3KeyOrder {
    exact: Vec<bool>,
    order_by: Vec<OrderBy>,
    /// By destination, the order that binds each event, and its number there.
    order: HashMap<Uuid, (Vec<Option<String>>, u64, bool)>,
    /// By destination.
    serialised: Vec<Score>,
    others: Vec<Score>,
    /// Of serialised writers too, without the events that the server has lost and those that were
    /// left behind: replays leave these out.
    replays: Vec<Score>,
    delivered: Vec<(usize, Uuid)>,
    may_shuffle: bool,
    /// Events that were left behind, by destination, ...
    left: HashSet<(usize, Uuid)>,
    /// ... of those, which were not sent again since: a queue may have them, and hands them out
    /// whenever it likes, also behind events of their key that went to another one, ...
    sent_before: HashSet<(usize, Uuid)>,
    /// ... and are delivered after all, since a fail-over has forgotten it: behind later events.
    forgotten: HashSet<(usize, Uuid)>,
    /// Events that a crash or fail-over took from the database are not part of the remaining
    /// history.
    lost: HashSet<Uuid>,
    /// Advances were forgotten: what a broker's progress had let go of is repeated, what it keeps
    /// is not.
    forgot: bool,
}

impl I3KeyOrder {
    pub(super) fn new(rules: &Rules) -> Self {
        let scores = || rules.exact.iter().map(|_| Score::new()).collect();
        Self {
            exact: rules.exact.clone(),
            order_by: rules.order_by.clone(),
            order: HashMap::new(),
            serialised: scores(),
            others: scores(),
            replays: scores(),
            delivered: Vec::new(),
            left: HashSet::new(),
            sent_before: HashSet::new(),
            forgotten: HashSet::new(),
            lost: HashSet::new(),
            may_shuffle: false,
            forgot: false,
        }
    }
}

impl Checker for I3KeyOrder {
    fn see(&mut self, _: At, seen: &Seen, _: &mut Vec<String>) {
        self.left.extend(seen.left_behind());
        self.sent_before.extend(seen.left_behind());
        match seen {
            Seen::Committed {
                id,
                topic,
                key,
                n,
                transaction,
                serialised,
            } => {
                let order = |order_by: &OrderBy| {
                    let key = order_by.order_key(topic, key.as_ref()?);
                    Some(match serialised {
                        true => key.into_owned(),
                        false => format!("{key} in transaction {transaction}"),
                    })
                };
                let orders: Vec<_> = self.order_by.iter().map(order).collect();
                let scores = match serialised {
                    true => [&mut self.serialised[..], &mut self.replays[..]],
                    false => [&mut self.others[..], &mut []],
                };
                for scores in scores {
                    for (score, order) in scores.iter_mut().zip(&orders) {
                        score.committed(order.as_deref(), *n, *id);
                    }
                }
                self.order.insert(*id, (orders, *n, *serialised));
            }
            Seen::Delivered { place, id, .. } => {
                let at = (*place, *id);
                let late = self.forgotten.contains(&at) || self.sent_before.contains(&at);
                if !late && !self.lost.contains(id) {
                    self.delivered.push(at);
                }
            }
            Seen::LostByTheServer { id } => {
                self.lost.insert(*id);
            }
            Seen::Submitted { place, id, .. } => {
                self.sent_before.remove(&(*place, *id));
            }
            Seen::RepeatsMayShuffle => self.may_shuffle = true,
            Seen::DatabaseDied { forgets: true } => {
                self.forgot = true;
                self.forgotten.extend(self.left.drain());
            }
            _ => {}
        }
    }

    fn end(&mut self, wrong: &mut Vec<String>) {
        for (place, id) in self.delivered.drain(..) {
            // An event that never committed is another checker's.
            let Some((orders, n, serialised)) = self.order.get(&id) else {
                continue;
            };
            let order = orders[place].as_deref();
            let scores = match serialised {
                true => &mut self.serialised,
                false => &mut self.others,
            };
            scores[place].delivered(order, *n, id);
            let leaves_out = self.lost.contains(&id) || self.left.contains(&(place, id));
            if *serialised && !leaves_out {
                self.replays[place].delivered(order, *n, id);
            }
        }
        for score in self.serialised.drain(..).chain(self.others.drain(..)) {
            let report = score.finish();
            if report.out_of_order > 0 {
                wrong.push(report.to_string());
            }
        }
        for (place, score) in self.replays.drain(..).enumerate() {
            let contiguous = !self.forgot && (self.exact[place] || !self.may_shuffle);
            let report = score.finish();
            if contiguous && report.broken_replays > 0 {
                wrong.push(report.to_string());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::traces::*;
    use super::*;

    fn trace(numbers: &[u64]) -> Vec<Seen> {
        let committed = (1..=3).map(committed);
        committed
            .chain(numbers.iter().map(|n| delivered(*n)))
            .collect()
    }

    fn timing() -> Rules {
        Rules {
            exact: vec![false],
            ..rules()
        }
    }

    #[test]
    fn swapped_events_are_found() {
        good(I3KeyOrder::new(&rules()), &trace(&[1, 2, 3]));
        bad(
            I3KeyOrder::new(&rules()),
            &trace(&[1, 3, 2]),
            "out of order",
        );
    }

    #[test]
    fn a_replay_may_be_shuffled_only_without_a_fence_and_with_a_reason() {
        let mut shuffled = trace(&[1, 2, 3, 1, 3]);
        good(I3KeyOrder::new(&rules()), &trace(&[1, 2, 3, 2, 3]));
        bad(I3KeyOrder::new(&timing()), &shuffled, "broken replay");
        shuffled.push(Seen::RepeatsMayShuffle);
        good(I3KeyOrder::new(&timing()), &shuffled);
        bad(I3KeyOrder::new(&rules()), &shuffled, "broken replay");
    }

    #[test]
    fn what_was_skipped_may_come_late_where_that_was_forgotten() {
        let skipped = Seen::LeftBehind {
            place: 0,
            id: id(2),
        };
        let forgotten = Seen::DatabaseDied { forgets: true };
        let mut late = trace(&[1, 3]);
        late.insert(3, skipped);
        good(
            I3KeyOrder::new(&rules()),
            &[&late[..], &[forgotten.clone(), delivered(2)]].concat(),
        );
        late.remove(3);
        bad(
            I3KeyOrder::new(&rules()),
            &[&late[..], &[forgotten, delivered(2)]].concat(),
            "out of order",
        );
    }

    #[test]
    fn late_bytes_of_what_the_server_lost_are_in_nobodys_order() {
        let lost = |n| Seen::LostByTheServer { id: id(n) };
        let mut late = trace(&[2, 1]);
        bad(I3KeyOrder::new(&rules()), &late, "out of order");
        late.insert(3, lost(1));
        good(I3KeyOrder::new(&rules()), &late);
        let mut replay = trace(&[1, 2, 1, 3]);
        bad(I3KeyOrder::new(&rules()), &replay, "broken replay");
        replay.insert(5, lost(2));
        good(I3KeyOrder::new(&rules()), &replay);
    }

    /// The broker has it, nobody was told so, and an operator skips it before it is sent again.
    #[test]
    fn what_was_delivered_and_then_skipped_is_left_out_of_replays() {
        let mut replay = trace(&[1, 2, 1, 3]);
        let skipped = Seen::LeftBehind {
            place: 0,
            id: id(2),
        };
        replay.insert(5, skipped);
        good(I3KeyOrder::new(&rules()), &replay);
    }

    #[test]
    fn topics_of_a_key_have_their_own_order_where_a_destination_says_so() {
        let of = |n, topic| Seen::Committed {
            id: id(n),
            topic,
            key: key("k"),
            n,
            transaction: n,
            serialised: true,
        };
        let by_topic = || Rules {
            order_by: vec![OrderBy::KeyAndTopic],
            ..rules()
        };
        let apart = [of(1, "a"), of(2, "b"), delivered(2), delivered(1)];
        good(I3KeyOrder::new(&by_topic()), &apart);
        bad(I3KeyOrder::new(&rules()), &apart, "out of order");
        let together = [of(1, "a"), of(2, "a"), delivered(2), delivered(1)];
        bad(I3KeyOrder::new(&by_topic()), &together, "out of order");
    }

    #[test]
    fn a_transaction_keeps_its_own_order_though_nobody_serialises() {
        let of = |n, transaction| Seen::Committed {
            id: id(n),
            topic: "t",
            key: key("k"),
            n,
            transaction,
            serialised: false,
        };
        let two = [of(1, 1), of(2, 2), delivered(2), delivered(1)];
        good(I3KeyOrder::new(&rules()), &two);
        let one = [of(1, 1), of(2, 1), delivered(2), delivered(1)];
        bad(I3KeyOrder::new(&rules()), &one, "out of order");
    }
}
