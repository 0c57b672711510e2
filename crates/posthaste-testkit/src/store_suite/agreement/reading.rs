//! The main group: pages, and the cursor behind what is finished.

use posthaste_engine::{Budget, Cursor, Page};

use super::{
    operation::Operation,
    state::{Driver, Given, Holding, Label, Shadow},
};
use crate::store_suite::bench::PLENTY;

/// A few of the larger events.
const SOME_BYTES: usize = 3_000;

impl Driver {
    pub(super) async fn read_or_advance(&mut self, operation: &Operation) -> bool {
        let (Operation::Read { holding, .. } | Operation::Advance { holding, .. }) = *operation
        else {
            unreachable!("neither read nor advance")
        };
        let Some(mut holding) = self.take_holding(holding) else {
            return false;
        };
        let done = match *operation {
            Operation::Read { events, bytes, .. } => {
                let budget = Budget {
                    events: usize::from(events),
                    bytes: if bytes { SOME_BYTES } else { PLENTY.bytes },
                };
                self.read(&mut holding, budget).await;
                true
            }
            Operation::Advance {
                count, to_the_end, ..
            } => {
                let count = usize::from(count).min(holding.given.len());
                self.advance(&mut holding, count, to_the_end).await
            }
            _ => unreachable!("neither read nor advance"),
        };
        self.holdings.push(holding);
        done
    }

    /// One page. The reference reads all there is first, so that it has seen what the page may
    /// bring.
    pub(super) async fn read(&mut self, holding: &mut Holding, budget: Budget) -> bool {
        let page = holding.claimed.reference.next(PLENTY).await;
        let page = page.expect("the reference reads");
        self.note_reference_page(holding, &page);
        let page = holding.claimed.subject.next(budget).await;
        let page = page.expect("the owner reads");
        assert_within(&page, budget);
        let last = page.events.len().wrapping_sub(1);
        for (at, event) in page.events.iter().enumerate() {
            let label = self.label_of(event.id());
            assert!(
                self.committed.contains(&label),
                "event {label} was read and never committed"
            );
            let emitted = &self.events[label];
            emitted.event.assert_stored_as(emitted.id, event);
            // A log brings the events of a blocked key too, to pass them over.
            if !holding.is_marked(self.order_key(&holding.destination, label)) {
                holding.read.push(label);
            }
            holding.given.push_back(Given {
                label,
                at: page.cursor_at(event),
                end: (at == last).then(|| page.end.clone()),
                event: event.clone(),
                accepted: false,
                finished: false,
            });
        }
        self.assert_read_agrees(holding, page.caught_up);
        holding.end = Some((page.end, page.joinable));
        page.caught_up
    }

    /// The subject has read under this claim the same as the reference: of each key a
    /// beginning, and everything once it says so.
    fn assert_read_agrees(&self, holding: &Holding, caught_up: bool) {
        // Events that were set aside, or are the side read's, may be read again by a log, and not
        // by the reference.
        let counts = |label: &&Label| {
            let key = self.order_key(&holding.destination, **label);
            !holding.aside.contains(label)
                && key.is_none_or(|key| !holding.marked_before.contains(&key))
        };
        let read: Vec<Label> = holding.read.iter().filter(counts).copied().collect();
        let seen: Vec<Label> = holding.seen.iter().filter(counts).copied().collect();
        for key in self.orders(&holding.destination).keys() {
            let of = |labels: &[Label]| -> Vec<Label> {
                let of_key = |label: &&Label| {
                    let of = self.locked_order_key(&holding.destination, **label);
                    of.as_ref() == Some(key)
                };
                labels.iter().filter(of_key).copied().collect()
            };
            let (read, seen) = (of(&read), of(&seen));
            assert!(
                seen.starts_with(&read),
                "{key} is read as {read:?}, by the reference as {seen:?}"
            );
        }
        let sorted = |mut labels: Vec<Label>| {
            labels.sort_unstable();
            labels
        };
        let (read, seen) = (sorted(read), sorted(seen));
        let unknown: Vec<_> = read.iter().filter(|label| !seen.contains(label)).collect();
        assert!(unknown.is_empty(), "read, but finished before: {unknown:?}");
        assert!(
            read.windows(2).all(|two| two[0] != two[1]),
            "read twice: {read:?}"
        );
        if caught_up {
            assert_eq!(read, seen, "all that is there was read");
        }
    }

    /// Finishes the next `count` events and moves the cursor behind them.
    pub(super) async fn advance(
        &mut self,
        holding: &mut Holding,
        count: usize,
        to_the_end: bool,
    ) -> bool {
        let Some((end, _)) = holding.end.clone() else {
            return false;
        };
        let passed: Vec<Given> = holding.given.drain(..count).collect();
        let up_to: Cursor = match passed.last() {
            None if holding.given.is_empty() => end,
            // The cursor stands before the rest already.
            None => return false,
            Some(last) => match &last.end {
                // Of the newest page the end; it may lie further on than the last event.
                Some(page_end) if to_the_end => page_end.clone(),
                _ => last.at.clone(),
            },
        };
        let mut finished = Vec::new();
        for given in &passed {
            if !given.finished && !self.is_anothers(holding, given.label) {
                finished.push(given.label);
            }
        }
        self.finish(holding, &finished).await;
        let seqs: Vec<i64> = passed.iter().map(|given| given.event.seq()).collect();
        let advanced = holding.claimed.subject.advance(&up_to, &seqs).await;
        advanced.expect("the owner advances");
        let shadow = self.shadow(&holding.destination);
        for given in passed {
            shadow.passed.insert(given.label);
            shadow.aside.remove(&given.label);
            shadow.ahead.remove(&given.label);
        }
        true
    }

    /// Whether the main group has nothing to do with the event: it was set aside before, or its key
    /// is blocked.
    pub(super) fn is_anothers(&self, holding: &Holding, label: Label) -> bool {
        holding.aside.contains(&label)
            || holding.is_marked(self.order_key(&holding.destination, label))
    }

    /// These events were accepted. The subject learns it by its cursor.
    pub(super) async fn finish(&mut self, holding: &Holding, labels: &[Label]) {
        let seqs = holding.reference_seqs(labels);
        assert_eq!(seqs.len(), labels.len(), "the reference saw {labels:?}");
        let reference = &holding.claimed.reference;
        let advanced = reference.advance(&holding.reference_end, &seqs).await;
        advanced.expect("the reference advances");
        let shadow = self.shadow(&holding.destination);
        shadow.delivered.extend(labels);
    }

    pub(super) fn shadow(&mut self, destination: &str) -> &mut Shadow {
        let shadow = self.shadows.get_mut(destination);
        shadow.expect("what is held exists")
    }
}

fn assert_within(page: &Page, budget: Budget) {
    let bytes: usize = page.events.iter().map(|event| event.footprint()).sum();
    assert!(
        page.events.len() <= budget.events && (bytes <= budget.bytes || page.events.len() == 1),
        "{} events and {bytes} bytes in a page of {budget:?}",
        page.events.len()
    );
}
