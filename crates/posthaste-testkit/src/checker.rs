//! The checker of what was delivered, against what was committed.
//!
//! Truth comes from the business table, never from the outbox or from counters of the code under
//! test. The delivered side is fed one event at a time, so that a file of millions of lines is
//! never held in memory; truth costs about 60 bytes an event.

use std::collections::HashMap;
use std::fmt::Write;
use uuid::Uuid;

/// How many bad events a report names; the counts are complete.
const EXAMPLES_MAX: usize = 20;

/// The committed events, in commit order for each key; then the delivered ones, in delivery order.
#[derive(Debug, Default)]
pub struct Checker {
    events: Vec<Event>,
    by_id: HashMap<Uuid, usize>,
    keys: HashMap<String, usize>,
    states: Vec<KeyState>,
    repeat_run: u64,
    repeats_in_life: u64,
    report: Report,
}

/// The result. Counts of events, unless said otherwise.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Report {
    /// Committed, from the business table.
    pub committed: u64,
    /// Committed and delivered at least once.
    pub delivered: u64,
    /// Deliveries after the first of the same event (I4 bounds them).
    pub duplicates: u64,
    /// Committed and never delivered (I1).
    pub lost: u64,
    /// First deliveries after that of a later event of the same key (I3).
    pub out_of_order: u64,
    /// Deliveries of what never committed, or not under this key and number (I2).
    pub phantom: u64,
    /// Places where the repeats of a key are no contiguous replay: an event of the replay is left
    /// out, or the replay ends before the point that the key had reached (I3, repeats).
    pub broken_replays: u64,
    /// Keys whose last delivery is a repeat of an earlier event: whoever keeps only the newest
    /// value of a key ends with an old one. Where nothing but time fences a lane, this may come of
    /// a process that stood still; each is a broken replay too.
    pub stale_last: u64,
    /// Most repeats in unbroken succession, whatever their keys.
    pub longest_repeat_run: u64,
    /// Most repeats between two calls of [`Checker::restarted`] (I4: the in-flight window).
    pub most_repeats_in_one_life: u64,
    /// The first bad events in words.
    pub examples: Vec<String>,
}

#[derive(Debug)]
struct Event {
    /// Index into `states`; none for an event without key, for which no order is promised.
    key: Option<usize>,
    n: u64,
    /// Place in its key's commit order.
    position: usize,
    seen: bool,
}

#[derive(Debug, Default)]
struct KeyState {
    name: String,
    /// Indexes into `events`, in commit order.
    events: Vec<usize>,
    last: Option<usize>,
    highest: Option<usize>,
}

impl Checker {
    /// A checker that knows of no committed event yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Notes a committed event; those of one key must come in their commit order.
    ///
    /// `n` is the business row's own number, which the payload carries, so that an id under the
    /// wrong content is found.
    ///
    /// # Panics
    ///
    /// When the id was committed before: then the truth itself is wrong.
    pub fn committed(&mut self, key: Option<&str>, n: u64, id: Uuid) {
        let index = self.events.len();
        assert!(
            self.by_id.insert(id, index).is_none(),
            "event {id} is twice in the truth"
        );
        let key = key.map(|name| self.key_index(name));
        let position = key.map_or(0, |key| {
            self.states[key].events.push(index);
            self.states[key].events.len() - 1
        });
        self.events.push(Event {
            key,
            n,
            position,
            seen: false,
        });
        self.report.committed += 1;
    }

    /// Notes a delivery. All committed events must be known by now.
    pub fn delivered(&mut self, key: Option<&str>, n: u64, id: Uuid) {
        let Some(index) = self.by_id.get(&id).copied() else {
            self.report.phantom += 1;
            self.report
                .example(|| format!("phantom: {id} (key {key:?}, n {n}) never committed"));
            return;
        };
        let event = &mut self.events[index];
        let true_key = event.key.map(|key| self.states[key].name.as_str());
        if (true_key, event.n) != (key, n) {
            self.report.phantom += 1;
            let committed = event.n;
            self.report.example(|| {
                format!(
                    "phantom: {id} committed as key {true_key:?}, n {committed}, \
                     delivered as {key:?}, {n}"
                )
            });
            return;
        }
        let first = !std::mem::replace(&mut event.seen, true);
        if first {
            self.report.delivered += 1;
            self.repeat_run = 0;
        } else {
            self.report.duplicates += 1;
            self.repeat_run += 1;
            self.repeats_in_life += 1;
            self.report.longest_repeat_run = self.report.longest_repeat_run.max(self.repeat_run);
            self.report.most_repeats_in_one_life = self
                .report
                .most_repeats_in_one_life
                .max(self.repeats_in_life);
        }
        if let Some(key) = event.key {
            let position = event.position;
            self.score_order(key, position, n, first);
        }
    }

    /// Marks a crash or restart of the relay: repeats are counted anew.
    pub fn restarted(&mut self) {
        self.repeat_run = 0;
        self.repeats_in_life = 0;
    }

    /// The verdict, after the last delivery.
    #[must_use]
    pub fn finish(mut self) -> Report {
        for event in self.events.iter().filter(|event| !event.seen) {
            self.report.lost += 1;
            let key = event.key.map(|key| self.states[key].name.as_str());
            self.report
                .example(|| format!("lost: key {key:?}, n {}", event.n));
        }
        for state in self
            .states
            .iter()
            .filter(|state| state.last != state.highest)
        {
            self.report.broken_replays += 1;
            self.report.stale_last += 1;
            self.report
                .example(|| format!("broken replay: key {} ends in its midst", state.name));
        }
        self.report
    }

    fn key_index(&mut self, name: &str) -> usize {
        if let Some(index) = self.keys.get(name) {
            return *index;
        }
        let index = self.states.len();
        self.states.push(KeyState {
            name: name.to_owned(),
            ..KeyState::default()
        });
        self.keys.insert(name.to_owned(), index);
        index
    }

    fn score_order(&mut self, key: usize, position: usize, n: u64, first: bool) {
        let state = &mut self.states[key];
        if first && state.highest.is_some_and(|highest| position < highest) {
            self.report.out_of_order += 1;
            let name = &state.name;
            self.report
                .example(|| format!("out of order: key {name}, n {n} after a later one"));
        }
        // A step forward may pass over what was never delivered (that is a loss, or comes out of
        // order later), but not over what was: then a repeat was left out of a replay. A step back
        // begins a replay.
        if let Some(last) = state.last
            && position > last + 1
            && state.events[last + 1..position]
                .iter()
                .any(|&i| self.events[i].seen)
        {
            self.report.broken_replays += 1;
            let name = &state.name;
            self.report
                .example(|| format!("broken replay: key {name} jumps to n {n}"));
        }
        state.last = Some(position);
        state.highest = state.highest.max(Some(position));
    }
}

impl Report {
    /// Whether nothing was lost, invented or out of order, and repeats were contiguous replays.
    #[must_use]
    pub fn is_good(&self) -> bool {
        (
            self.lost,
            self.phantom,
            self.out_of_order,
            self.broken_replays,
        ) == (0, 0, 0, 0)
    }

    /// Asserts [`Self::is_good`].
    ///
    /// # Panics
    ///
    /// When it is not, with all counts and the first bad events.
    pub fn assert_good(&self) {
        assert!(self.is_good(), "{self}");
    }

    fn example(&mut self, words: impl FnOnce() -> String) {
        if self.examples.len() < EXAMPLES_MAX {
            self.examples.push(words());
        }
    }
}

impl std::fmt::Display for Report {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut words = String::new();
        for (name, count) in [
            ("committed", self.committed),
            ("delivered", self.delivered),
            ("duplicates", self.duplicates),
            ("lost", self.lost),
            ("out of order", self.out_of_order),
            ("phantom", self.phantom),
            ("broken replays", self.broken_replays),
            ("stale last", self.stale_last),
            ("longest run of repeats", self.longest_repeat_run),
            ("most repeats in one life", self.most_repeats_in_one_life),
        ] {
            write!(words, "{name} {count}, ")?;
        }
        f.write_str(words.trim_end_matches(", "))?;
        self.examples
            .iter()
            .try_for_each(|example| write!(f, "\n  {example}"))
    }
}

#[cfg(test)]
mod tests;
