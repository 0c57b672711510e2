//! Claims: how they are opened, what a lost one may still ask, and what is reported under one.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

use posthaste_engine::{Claim, Claimed, Cursor, StoredEvent};

use super::{
    operation::Fate,
    parking::parking,
    state::{Both, Driver, Holding, Label, agreed, pick},
};
use crate::store_suite::bench::PLENTY;

impl Driver {
    /// Opens a claim: everything that is read under it starts here.
    pub(super) async fn open(&mut self, slot: usize, destination: &str, claim: Both<Claim>) {
        let claimed = Both {
            subject: self.worlds.subject.store.open(&claim.subject).await,
            reference: self.worlds.reference.store.open(&claim.reference).await,
        };
        let claimed = Both {
            subject: claimed.subject.expect("the newest claim opens"),
            reference: claimed.reference.expect("the newest claim opens"),
        };
        let markers = Both {
            subject: markers(&*claimed.subject).await,
            reference: markers(&*claimed.reference).await,
        };
        assert_eq!(
            markers.subject, markers.reference,
            "markers of {destination}"
        );
        let aside = claimed
            .subject
            .set_aside()
            .await
            .expect("what is set aside");
        let page = claimed.reference.next(PLENTY).await.expect("a first page");
        let marked: BTreeSet<String> = markers.subject.into_keys().collect();
        let mut holding = Holding {
            slot,
            destination: destination.to_owned(),
            claim,
            claimed,
            seen: Vec::new(),
            references: HashMap::new(),
            reference_end: page.end.clone(),
            given: VecDeque::new(),
            read: Vec::new(),
            end: None,
            aside: aside
                .again
                .iter()
                .map(|event| self.label_of(event.id))
                .collect(),
            marked_before: marked.clone(),
            marked,
            copies: BTreeMap::new(),
            sides: BTreeMap::new(),
        };
        self.note_reference_page(&mut holding, &page);
        let shadow = &self.shadows[destination];
        for label in &shadow.aside {
            let slot = posthaste::slot(&self.order_text(*label));
            assert!(
                !holding.claim.subject.partitions.contains_slot(slot)
                    || holding.aside.contains(label),
                "event {label} is set aside and may be read again, and {:?} does not say so",
                holding.aside
            );
        }
        self.holdings.push(holding);
    }

    /// The text from which the event's slot is made.
    fn order_text(&self, label: Label) -> String {
        let id = self.events[label].id.to_string();
        self.key(label).map_or(id, str::to_owned)
    }

    pub(super) fn note_reference_page(&self, holding: &mut Holding, page: &posthaste_engine::Page) {
        for event in &page.events {
            let label = self.label_of(event.id());
            holding.seen.push(label);
            let at = page.cursor_at(event);
            holding.references.insert(label, (event.clone(), at));
        }
        holding.reference_end = page.end.clone();
    }

    /// Takes a holding that works out of the list, to be put back.
    pub(super) fn take_holding(&mut self, number: u8) -> Option<Holding> {
        let works = |holding: &Holding| {
            let relay = self.relays[holding.slot].as_ref();
            relay.is_some_and(|relay| relay.state == "live")
        };
        let working: Vec<usize> = (0..self.holdings.len())
            .filter(|&at| works(&self.holdings[at]))
            .collect();
        let at = working[pick(working.len(), number)?];
        Some(self.holdings.swap_remove(at))
    }

    /// A relay that lost its claim must not change anything with it.
    pub(super) async fn zombie(&mut self, which: u8, call: u8) -> bool {
        let Some(at) = pick(self.lost.len(), which) else {
            return false;
        };
        let lost = &self.lost[at];
        let (subject, reference) = (&lost.claimed.subject, &lost.claimed.reference);
        let copy = pick(lost.copies.len(), which).and_then(|at| lost.copies.values().nth(at));
        let delivered = posthaste_engine::Settlement::Delivered;
        let answers = match (call % 4, copy, lost.given.front(), &lost.end) {
            (0, Some(copy), _, _) => Both {
                subject: subject.settle(copy.subject, &delivered).await,
                reference: reference.settle(copy.reference, &delivered).await,
            },
            (1, _, Some(given), _) => {
                let parking = |event: &StoredEvent, at: &Cursor| parking(event, at, Fate::Dead);
                let Some((event, at)) = lost.references.get(&given.label) else {
                    return false;
                };
                Both {
                    subject: subject.park(&[parking(&given.event, &given.at)]).await,
                    reference: reference.park(&[parking(event, at)]).await,
                }
            }
            (2, _, _, Some((end, true))) => Both {
                subject: subject.join(&["key-0".into()], end).await,
                reference: reference.join(&["key-0".into()], &lost.reference_end).await,
            },
            (_, _, _, Some((end, _))) => Both {
                subject: subject.advance(end, &[]).await.map(drop),
                reference: reference.advance(&lost.reference_end, &[]).await.map(drop),
            },
            _ => return false,
        };
        assert!(
            answers.subject.is_err() && answers.reference.is_err(),
            "a claim that was lost changes something: {answers:?}"
        );
        agreed("a lost claim", answers.subject, answers.reference);
        true
    }

    pub(super) async fn report(&mut self, holding: u8, breaker: u8) -> bool {
        let Some(holding) = self.take_holding(holding) else {
            return false;
        };
        // The engine reports no others: a breaker on trial is open to operators.
        let (breaker, error) = match breaker % 2 {
            0 => ("open", Some("the broker is away")),
            _ => ("closed", None),
        };
        let claimed = &holding.claimed;
        claimed
            .subject
            .report(breaker, error)
            .await
            .expect("report");
        let reported = claimed.reference.report(breaker, error).await;
        reported.expect("report");
        self.holdings.push(holding);
        true
    }

    pub(super) async fn fences_taken(&mut self, holding: u8) -> bool {
        let Some(holding) = self.take_holding(holding) else {
            return false;
        };
        let (claim, claimed) = (&holding.claim, &holding.claimed);
        let taken = claimed.subject.fences_taken(&claim.subject.former).await;
        taken.expect("fences taken");
        let taken = claimed.reference.fences_taken(&claim.reference.former);
        taken.await.expect("fences taken");
        self.holdings.push(holding);
        true
    }
}

/// Each marked key, and whether nothing holds it any longer.
pub(super) async fn markers(claimed: &dyn Claimed) -> BTreeMap<String, bool> {
    let markers = claimed.markers(None, 1_000).await.expect("markers");
    markers
        .into_iter()
        .map(|marker| (marker.key, marker.released))
        .collect()
}
