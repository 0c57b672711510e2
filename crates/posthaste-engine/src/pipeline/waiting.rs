//! Keys and events that wait, and the reasons.
//!
//! A key waits as a whole, since its order binds what follows; an event without a key waits alone.
//! One map holds all that wait, each with its reasons; several may hold at once:
//!
//! | reason | until |
//! | --- | --- |
//! | *parked*: an event of the key was parked | its side read has joined |
//! | *suspect*: a lane failed over it (`evidence.rs`) | the destination answers about it |
//! | *refused*: it may not be parked yet (`refusals.rs`) | it may, or it is accepted |
//! | *probed*: it was refused again | all others that were refused had their turn |
//! | *tried*: its place refused it for now | all others of the place were tried |
//!
//! It also counts how often one stayed unanswered.
//!
//! A place that is held back is no key: places stand beside the map (`places.rs`).
//!
//! So many parked keys are kept in memory; the rest stand in the store alone, and with each page it
//! is asked which of the page's keys are marked. Only this claim sets and removes its markers, a
//! key is joined only while nothing is read or held, and a key is forgotten only then: an answer of
//! the store about a page holds until the page is handled.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    ops::Bound::{Excluded, Included, Unbounded},
    sync::Arc,
};

use super::{
    place::Place,
    places::Places,
    trials::{Failed, Rank, part},
};
use crate::{
    Marker, Moment, Router, StoredEvent, TopicParts,
    record::key_hash,
    rule::{Rule, left_out},
};

/// A key or an event without one, by a hash. Two of one hash wait for each other, which is
/// harmless; only whether a key is parked is told exactly.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Waiter(u64);

impl Waiter {
    pub(super) fn of(event: &StoredEvent) -> Self {
        Self(match event.order_key() {
            Some(key) => key_hash(key),
            None => event.id().as_u64_pair().1,
        })
    }
}

/// Why one waits.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Reasons {
    /// The keys of this hash that have a marker, durable or about to be: almost always one, or
    /// none.
    parked: Vec<Box<str>>,
    suspect: Option<Rank>,
    refused: bool,
    probed: bool,
    tried: bool,
    /// How often it stayed unanswered while others of its place were taken.
    silences: u32,
}

/// The events of which a batch is gathered.
#[derive(Clone, Copy)]
pub(super) enum Of {
    /// Neither suspects, nor what was refused or is held back.
    Others,
    /// Those that were refused.
    Refused,
    /// Of these, those that had no turn since the others had theirs.
    Probes,
    /// Suspects from the first to the second one.
    Suspects(Rank, Rank),
}

/// A part of a topic that an operator has paused.
#[derive(Debug, Clone)]
struct PausedPart {
    place: Place,
    topic: Place,
    topic_name: String,
    /// The sink knows the topic's parts.
    is_known: bool,
}

#[derive(Debug, Clone)]
pub(super) struct Waiting {
    parts: Option<Arc<dyn TopicParts>>,
    waiters: HashMap<Waiter, Reasons>,
    suspects: BTreeMap<Rank, Waiter>,
    /// The number of the next suspect.
    next_suspect: u64,
    places: Places,
    /// The places that operators have paused, by name.
    paused_places: BTreeSet<String>,
    /// Of these, the parts of topics.
    paused_parts: Vec<PausedPart>,
    /// When the sink is asked anew for the parts of these topics.
    parts_at: Moment,
    /// How many of the map are parked, refused, probed, tried and unanswered.
    parked: usize,
    refused: usize,
    probed: usize,
    tried: usize,
    unanswered: usize,
    /// How many more keys are parked, by the store's markers alone.
    parked_in_the_store: usize,
}

impl Waiting {
    pub(super) fn new(parts: Option<Arc<dyn TopicParts>>, markers: &[Marker]) -> Self {
        let mut waiting = Self {
            parts,
            waiters: HashMap::new(),
            suspects: BTreeMap::new(),
            next_suspect: 0,
            places: Places::default(),
            paused_places: BTreeSet::new(),
            paused_parts: Vec::new(),
            parts_at: Moment::default(),
            parked: 0,
            refused: 0,
            probed: 0,
            tried: 0,
            unanswered: 0,
            parked_in_the_store: 0,
        };
        for marker in markers {
            waiting.keep_parked(&marker.key);
        }
        waiting
    }

    fn reasons(&self, waiter: Waiter) -> Option<&Reasons> {
        (!self.waiters.is_empty())
            .then(|| self.waiters.get(&waiter))
            .flatten()
    }

    /// Changes the reasons of one, and forgets it when none is left.
    fn change<T>(&mut self, waiter: Waiter, change: impl FnOnce(&mut Reasons) -> T) -> T {
        let reasons = self.waiters.entry(waiter).or_default();
        let changed = change(reasons);
        if *reasons == Reasons::default() {
            self.waiters.remove(&waiter);
        }
        changed
    }
}

/// Parked keys.
impl Waiting {
    /// Whether it is known here that the event's key is parked.
    pub(super) fn is_parked(&self, event: &StoredEvent) -> bool {
        let is_parked = |key: &str| {
            self.reasons(Waiter(key_hash(key)))
                .is_some_and(|reasons| reasons.parked.iter().any(|parked| **parked == *key))
        };
        self.parked > 0 && event.order_key().is_some_and(is_parked)
    }

    /// How many keys are parked, the store's included.
    pub(super) fn parked_keys(&self) -> usize {
        self.parked + self.parked_in_the_store
    }

    /// An event of this key is to be parked. `was_parked`: the key was already, and its side read
    /// sent the event.
    pub(super) fn park(&mut self, key: &str, was_parked: bool) {
        if self.keep_parked(key) && was_parked {
            self.parked_in_the_store = self.parked_in_the_store.saturating_sub(1);
        }
    }

    fn keep_parked(&mut self, key: &str) -> bool {
        let is_new = self.change(Waiter(key_hash(key)), |reasons| {
            let is_new = !reasons.parked.iter().any(|parked| **parked == *key);
            if is_new {
                reasons.parked.push(key.into());
            }
            is_new
        });
        self.parked += usize::from(is_new);
        is_new
    }

    /// The key's marker is gone: the key is the main group's again.
    pub(super) fn joined(&mut self, key: &str) {
        let was_kept = self.change(Waiter(key_hash(key)), |reasons| {
            let before = reasons.parked.len();
            reasons.parked.retain(|parked| **parked != *key);
            before > reasons.parked.len()
        });
        match was_kept {
            true => self.parked -= 1,
            false => self.parked_in_the_store = self.parked_in_the_store.saturating_sub(1),
        }
    }

    /// So many keys are parked besides those whose markers were given.
    pub(super) fn add_parked_in_the_store(&mut self, keys: usize) {
        self.parked_in_the_store += keys;
    }

    /// Whether only the store knows of some parked keys.
    pub(super) fn asks_for_markers(&self) -> bool {
        self.parked_in_the_store > 0
    }

    /// Whether so many parked keys are in memory that some are to be forgotten. They are forgotten
    /// many at a time, since that is possible only now and then.
    pub(super) fn has_too_many_keys(&self, kept: usize) -> bool {
        self.parked > kept.saturating_mul(2).max(kept + 1)
    }

    /// Leaves all parked keys but so many to the store.
    pub(super) fn forget_keys(&mut self, kept: usize) {
        let mut rest = self.parked.saturating_sub(kept);
        self.parked -= rest;
        self.parked_in_the_store += rest;
        self.waiters.retain(|_, reasons| {
            let forgotten = reasons.parked.len().min(rest);
            reasons.parked.truncate(reasons.parked.len() - forgotten);
            rest -= forgotten;
            *reasons != Reasons::default()
        });
    }
}

/// Turns: not all that is ready may go at once.
impl Waiting {
    /// Whether an event may be gathered.
    pub(super) fn has_turn(&self, of: Of, event: &StoredEvent, router: &Router) -> bool {
        if !self.place_takes(event, router) {
            return false;
        }
        let rank = self.rank(event);
        match of {
            Of::Suspects(first, last) => rank.is_some_and(|rank| (first..=last).contains(&rank)),
            _ if rank.is_some() => false,
            Of::Others => !self.was_refused(event) || left_out(Rule::RefusedGoLast),
            Of::Refused => self.was_refused(event),
            Of::Probes => self.was_refused(event) && !self.was_probed(event),
        }
    }

    fn rank(&self, event: &StoredEvent) -> Option<Rank> {
        let rank = || self.reasons(Waiter::of(event))?.suspect;
        self.has_suspects().then(rank).flatten()
    }

    /// Whether a lane failed over it, and nothing else was in flight.
    pub(super) fn has_failed_alone(&self, event: &StoredEvent) -> bool {
        let rank = self.rank(event);
        rank.is_some_and(|rank| rank.failed > Failed::AmongOthers)
    }

    pub(super) fn has_suspects(&self) -> bool {
        !self.suspects.is_empty()
    }

    fn untried(&self) -> impl Iterator<Item = &Rank> {
        self.suspects
            .keys()
            .take_while(|rank| rank.failed == Failed::AmongOthers)
    }

    /// How many suspects have not failed alone; counted up to so many.
    pub(super) fn untried_suspects(&self, most: usize) -> usize {
        self.untried().take(most).count()
    }

    /// The first and the last of so many suspects that are tried next: behind this one, or behind a
    /// part of those that have not failed alone ([`part`]). `in_doubt`: one that has.
    pub(super) fn next_suspects(
        &self,
        behind: Result<Rank, u32>,
        most: usize,
        in_doubt: bool,
    ) -> Option<(Rank, Rank)> {
        let mut alone = self
            .suspects
            .keys()
            .filter(|rank| rank.failed > Failed::AmongOthers);
        if let (true, Some(rank)) = (in_doubt, alone.next()) {
            return Some((*rank, *rank));
        }
        let mut next = match behind {
            Ok(rank) => self.suspects.range((Excluded(rank), Unbounded)),
            Err(number) => {
                let first = self.untried().nth(part(self.untried().count(), number));
                let first = first.map_or(Unbounded, |first| Included(*first));
                self.suspects.range((first, Unbounded))
            }
        };
        let first = next.next().or_else(|| self.suspects.iter().next())?.0;
        // One that is at fault would take others with it.
        let beside = next.take_while(|(rank, _)| {
            first.failed < Failed::BesideAnswers && rank.failed == first.failed
        });
        let last = beside.take(most.saturating_sub(1)).last();
        Some((*first, last.map_or(*first, |(last, _)| *last)))
    }

    /// A lane failed over this event, or it may have: others are tried before it.
    pub(super) fn suspect(&mut self, event: &StoredEvent, failed: Failed) {
        if left_out(Rule::SuspectGoesLast) {
            return;
        }
        let (waiter, number) = (Waiter::of(event), self.next_suspect);
        let rank = Rank { failed, number };
        let (former, rank) = self.change(waiter, |reasons| {
            let former = reasons.suspect;
            let is_among_others = failed == Failed::AmongOthers;
            let rank = former.filter(|_| is_among_others).unwrap_or(rank);
            reasons.suspect = Some(rank);
            (former, rank)
        });
        if let Some(former) = former {
            self.suspects.remove(&former);
        }
        self.suspects.insert(rank, waiter);
        self.next_suspect += 1;
    }

    /// The destination answered about this event, or found it to be at fault.
    pub(super) fn clear(&mut self, event: &StoredEvent) {
        if self.has_suspects() {
            self.clear_waiter(Waiter::of(event));
        }
    }

    fn clear_waiter(&mut self, waiter: Waiter) {
        let rank = self.change(waiter, |reasons| reasons.suspect.take());
        if let Some(rank) = rank {
            self.suspects.remove(&rank);
        }
    }

    pub(super) fn all_suspects(&self) -> Option<(Rank, Rank)> {
        let (first, _) = self.suspects.first_key_value()?;
        let (last, _) = self.suspects.last_key_value()?;
        Some((*first, *last))
    }

    /// Nothing of these suspects is ready: they were answered otherwise.
    pub(super) fn clear_suspects(&mut self, (first, last): (Rank, Rank)) {
        let cleared: Vec<Waiter> = self
            .suspects
            .range(first..=last)
            .map(|(_, of)| *of)
            .collect();
        for waiter in cleared {
            self.clear_waiter(waiter);
        }
    }

    /// The destination refused this event, and it may not be parked yet.
    pub(super) fn refuse(&mut self, event: &StoredEvent) {
        let (refused, probed) = self.change(Waiter::of(event), |reasons| {
            let was = (reasons.refused, reasons.probed);
            (reasons.refused, reasons.probed) = (true, true);
            was
        });
        self.refused += usize::from(!refused);
        self.probed += usize::from(!probed);
    }

    pub(super) fn has_refused(&self) -> bool {
        self.refused > 0
    }

    pub(super) fn was_refused(&self, event: &StoredEvent) -> bool {
        self.has_refused() && self.reasons(Waiter::of(event)).is_some_and(|r| r.refused)
    }

    fn was_probed(&self, event: &StoredEvent) -> bool {
        self.probed > 0 && self.reasons(Waiter::of(event)).is_some_and(|r| r.probed)
    }

    /// This one is to be parked after all.
    pub(super) fn forget_refusal(&mut self, event: &StoredEvent) {
        if !self.has_refused() {
            return;
        }
        let (refused, probed) = self.change(Waiter::of(event), |reasons| {
            let take = std::mem::take::<bool>;
            (take(&mut reasons.refused), take(&mut reasons.probed))
        });
        self.refused -= usize::from(refused);
        self.probed -= usize::from(probed);
    }

    /// Whether something changes when an event is accepted.
    pub(super) fn looks_for_taken(&self) -> bool {
        self.has_refused() || self.unanswered > 0 || self.places.has_doubts()
    }

    /// One that was refused was accepted: all may go.
    pub(super) fn forget_refusals(&mut self) {
        (self.refused, self.probed) = (0, 0);
        self.change_all(|reasons| (reasons.refused, reasons.probed) = (false, false));
    }

    /// All that were refused had their turn: each may have another one.
    pub(super) fn forget_probes(&mut self) {
        self.probed = 0;
        self.change_all(|reasons| reasons.probed = false);
    }

    fn change_all(&mut self, mut change: impl FnMut(&mut Reasons)) {
        self.waiters.retain(|_, reasons| {
            change(reasons);
            *reasons != Reasons::default()
        });
    }
}

#[cfg(feature = "model")]
impl Waiting {
    pub(super) fn suspects_up_to(&self, last: Rank) -> usize {
        self.suspects.range(..=last).count()
    }

    pub(super) fn describe(&self, out: crate::model::Out<'_>) {
        use crate::model::{Part, number};
        let Self {
            // Never changes.
            parts: _,
            waiters,
            suspects,
            // Only the order of suspects is asked, which is told.
            next_suspect: _,
            places,
            // No operator is in the model.
            paused_places: _,
            paused_parts: _,
            parts_at: _,
            // Counted over the map.
            parked: _,
            refused: _,
            probed: _,
            tried: _,
            unanswered: _,
            parked_in_the_store,
        } = self;
        let mut waiters: Vec<_> = waiters.iter().collect();
        waiters.sort_unstable_by_key(|(waiter, _)| **waiter);
        out(number(waiters.len()));
        for (waiter, reasons) in waiters {
            let Reasons {
                parked,
                suspect,
                refused,
                probed,
                tried,
                silences,
            } = reasons;
            out(Part::Number(waiter.0));
            let mut parked: Vec<_> = parked.iter().collect();
            parked.sort_unstable();
            out(number(parked.len()));
            parked.iter().for_each(|key| out(Part::Text(key)));
            let failed = suspect.map_or(0, |rank| 1 + rank.failed as u64);
            out(Part::Number(failed));
            for is in [*refused, *probed, *tried] {
                out(Part::Number(is.into()));
            }
            out(Part::Number((*silences).into()));
        }
        out(number(suspects.len()));
        suspects.values().for_each(|of| out(Part::Number(of.0)));
        places.describe(out);
        out(number(*parked_in_the_store));
    }
}

mod at_places;
#[cfg(test)]
mod tests;
