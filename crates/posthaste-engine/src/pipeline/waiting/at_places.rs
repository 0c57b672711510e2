//! Events that wait for their places.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    time::Duration,
};

use super::{
    super::{place::Place, places::Turn, reports::HeldPlace, ticket::Ticket},
    PausedPart, Waiter, Waiting,
};
use crate::{
    Backoff, DueAt, Moment, Postponement, Record, Router, StoredEvent,
    record::key_hash,
    rule::{Rule, left_out},
};

/// How often the sink is asked anew for the parts of topics of which one is paused.
const PARTS_EVERY: Duration = Duration::from_secs(1);

impl Waiting {
    pub(super) fn place_of(&self, event: &StoredEvent, router: &Router) -> Place {
        let topic = || Place(router.topic_hash(event));
        // A topic that is paused as a whole is one place.
        if self.pauses_places() && self.places.is_paused(topic()) {
            return topic();
        }
        match self.part_of(event, router) {
            // It may go to any of them, or it is not known yet to which.
            None => self.paused_part(topic()).unwrap_or_else(topic),
            Some((record, part)) => Place(mixed(key_hash(record.topic()), part)),
        }
    }

    /// A part of this topic that an operator has paused.
    fn paused_part(&self, topic: Place) -> Option<Place> {
        let mut parts = self.paused_parts.iter();
        parts.find(|part| part.topic == topic).map(|of| of.place)
    }

    /// The place of this name, as [`name_of`](Self::name_of), or a topic with all its parts.
    fn place_named(&self, name: &str) -> Result<PausedPart, Place> {
        let part = name.rsplit_once('/').zip(self.parts.as_ref());
        let part = part.and_then(|((topic, part), parts)| Some((topic, parts.named(part)?)));
        let Some((topic_name, part)) = part else {
            return Err(Place(key_hash(name)));
        };
        let topic = key_hash(topic_name);
        Ok(PausedPart {
            place: Place(mixed(topic, part)),
            topic: Place(topic),
            topic_name: topic_name.to_owned(),
            is_known: false,
        })
    }

    /// Operators want just these places to get nothing. Whether that is news.
    pub(in super::super) fn pause_places(
        &mut self,
        names: &BTreeSet<String>,
        probe: Backoff,
        now: Moment,
    ) -> bool {
        if self.paused_places == *names {
            return false;
        }
        self.paused_places.clone_from(names);
        let (mut wanted, mut parts) = (BTreeMap::new(), Vec::new());
        for name in names {
            let part = self.place_named(name);
            let place = part.as_ref().map_or_else(|topic| *topic, |part| part.place);
            wanted.insert(place, name.as_str());
            parts.extend(part);
        }
        self.places.pause(wanted, probe, now);
        for part in std::mem::replace(&mut self.paused_parts, parts) {
            if !self.places.is_paused(part.place) {
                // Events that may go to any of them waited, too.
                self.places.returns.returned(part.topic, now);
            }
        }
        true
    }

    /// Whether an operator has paused some place.
    pub(in super::super) fn pauses_places(&self) -> bool {
        !self.paused_places.is_empty()
    }

    /// An operator has paused the event's place.
    pub(in super::super) fn is_place_paused(&self, event: &StoredEvent, router: &Router) -> bool {
        self.pauses_places() && self.places.is_paused(self.place_of(event, router))
    }

    /// The event's place has not taken everything for so long.
    pub(in super::super) fn is_held_for(
        &self,
        (event, router): (&StoredEvent, &Router),
        long: Duration,
        now: Moment,
    ) -> bool {
        let since = self.places.since_of(self.place_of(event, router));
        since.is_some_and(|since| now >= since.after(long))
    }

    /// The event's place takes nothing, or has refused this very event: there is no use in waiting
    /// for its next turn.
    pub(in super::super) fn is_stuck(
        &self,
        (event, router): (&StoredEvent, &Router),
        now: Moment,
    ) -> bool {
        let was_tried = self.reasons(Waiter::of(event)).is_some_and(|r| r.tried);
        was_tried || self.places.is_quiet(self.place_of(event, router), now)
    }

    /// The event's record and the part of its topic, where parts fail alone.
    fn part_of(&self, event: &StoredEvent, router: &Router) -> Option<(Record, u32)> {
        let parts = self.parts.as_ref()?;
        let record = router.record(0, event.clone()).ok()?;
        let part = parts.part(&record)?;
        Some((record, part))
    }

    /// The place in words.
    fn name_of(&self, event: &StoredEvent, router: &Router) -> String {
        match self.parts.as_ref().zip(self.part_of(event, router)) {
            None => router.topic_of(event).into_owned(),
            Some((parts, (record, part))) => format!("{}/{}", record.topic(), parts.name(part)),
        }
    }

    pub(in super::super) fn holds_back(&self) -> bool {
        !self.places.is_empty()
    }

    /// Whether the event's place takes it now, and has not refused it already.
    pub(super) fn place_takes(&self, event: &StoredEvent, router: &Router) -> bool {
        if !self.holds_back() {
            return true;
        }
        let place = self.place_of(event, router);
        let was_tried = || self.reasons(Waiter::of(event)).is_some_and(|r| r.tried);
        self.places.takes(place) && !(self.places.is_limited(place) && was_tried())
    }

    /// Whether the event's place takes nothing, and has not just returned.
    pub(in super::super) fn stays_held(&self, event: &StoredEvent, router: &Router) -> bool {
        let held = self.held_place(event, router);
        held.is_some_and(|(place, _)| !self.places.returns.contains(place))
    }

    /// The event's place where that is held back, and its words.
    pub(in super::super) fn held_place(
        &self,
        event: &StoredEvent,
        router: &Router,
    ) -> Option<(Place, &str)> {
        if !self.holds_back() {
            return None;
        }
        let place = self.place_of(event, router);
        Some((place, self.places.held(place)?))
    }

    /// Whether the event's place takes nothing, or not everything.
    pub(in super::super) fn is_limited(&self, event: &StoredEvent, router: &Router) -> bool {
        self.holds_back() && self.places.is_limited(self.place_of(event, router))
    }

    /// Since when some place does not take everything.
    pub(in super::super) fn held_back_since(&self) -> Option<Moment> {
        self.places.since()
    }

    /// The report to operators on the places that are held back.
    pub(in super::super) fn trouble(&self) -> Option<&str> {
        self.places.trouble()
    }

    /// How many places do not take everything, and the first of them. `undone`: the events in
    /// memory that are not finished.
    pub(in super::super) fn held_places<'a>(
        &self,
        most: usize,
        undone: impl Iterator<Item = &'a StoredEvent>,
        router: &Router,
        now: Moment,
    ) -> (usize, Vec<HeldPlace>) {
        let mut in_memory = HashMap::new();
        if most > 0 && self.holds_back() {
            for event in undone {
                *in_memory.entry(self.place_of(event, router)).or_default() += 1;
            }
        }
        let first = self.places.first(most, &in_memory, now);
        (self.places.len(), first)
    }

    /// As `Places::wait_of_copy`.
    pub(in super::super) fn wait_of_copy(
        &mut self,
        (event, router): (&StoredEvent, &Router),
        retry: Backoff,
        random: f64,
    ) -> Duration {
        let place = self.place_of(event, router);
        self.places.wait_of_copy(place, retry, random)
    }

    /// As `Returns::look_for_former`.
    pub(in super::super) fn look_for_former(&mut self) {
        self.places.returns.look_for_former();
    }

    /// As `Returns::next_look`.
    pub(in super::super) fn next_look(&self) -> Option<(Option<DueAt>, usize)> {
        self.places.returns.next_look()
    }

    /// As `Returns::looked`.
    pub(in super::super) fn looked(&mut self, after: Option<DueAt>, last: Option<DueAt>) {
        self.places.returns.looked(after, last);
    }

    /// The event's place took a copy of it.
    pub(in super::super) fn took_copy(
        &mut self,
        event: &StoredEvent,
        router: &Router,
        now: Moment,
    ) {
        if self.holds_back() || self.places.returns.has_refused() {
            self.places.took_copy(self.place_of(event, router), now);
        }
    }

    /// These copies were found.
    pub(in super::super) fn found<'a>(
        &mut self,
        copies: impl Iterator<Item = &'a StoredEvent>,
        router: &Router,
    ) {
        if self.holds_back() {
            for event in copies {
                self.places.returns.found(self.place_of(event, router));
            }
        }
    }

    /// The look begins anew.
    pub(in super::super) fn look_anew(&mut self) {
        self.places.returns.look_anew();
    }

    /// Whether the event waits for its place alone, and that, or its whole topic, has returned.
    pub(in super::super) fn has_returned(&self, event: &StoredEvent, router: &Router) -> bool {
        let silent = self.reasons(Waiter::of(event)).map(|r| r.silences);
        if silent.is_some_and(|silences| silences > 0) {
            return false;
        }
        let returns = &self.places.returns;
        // It may have been paused as a whole topic.
        returns.contains(Place(router.topic_hash(event)))
            || returns.contains(self.place_of(event, router))
            || returns.looks_for_former() && self.held_place(event, router).is_none()
    }

    /// An event that waits for its place leaves the window.
    pub(in super::super) fn sets_aside(&mut self, place: Place) {
        self.places.sets_aside(place);
    }

    /// Whether as many keys wait as may, and how many these are.
    pub(in super::super) fn has_no_room(&mut self, no_room: Option<usize>) {
        self.places.has_no_room(no_room);
    }

    /// Lets places have their turn whose wait is over. Whether more may be sent than before.
    pub(in super::super) fn places_turn(&mut self, now: Moment) -> bool {
        match self.places.turn(now) {
            // The sink may know parts by now that it did not know.
            Turn::Same if !self.paused_parts.is_empty() && now >= self.parts_at => {
                self.parts_at = now.after(PARTS_EVERY);
                self.find_out(now);
                true
            }
            Turn::Same => false,
            Turn::Open => true,
            Turn::Unused => {
                self.forget_tried();
                true
            }
        }
    }

    /// Once the sink knows the parts of a topic, events wait no longer that are for another part
    /// than the paused one.
    fn find_out(&mut self, now: Moment) {
        let Self {
            parts,
            paused_parts,
            places,
            ..
        } = self;
        for part in paused_parts {
            let is_known = parts.as_ref().is_none_or(|of| of.knows(&part.topic_name));
            if is_known && !part.is_known {
                places.returns.returned(part.topic, now);
            }
            part.is_known = is_known;
        }
    }

    /// When the next place has its turn.
    pub(in super::super) fn next_place_at(&self) -> Option<Moment> {
        let parts = (!self.paused_parts.is_empty()).then_some(self.parts_at);
        self.places.next_turn().into_iter().chain(parts).min()
    }

    /// An event is handed to the lane.
    pub(in super::super) fn sends(&mut self, event: &StoredEvent, ticket: Ticket, router: &Router) {
        if self.holds_back() {
            self.places.sends(self.place_of(event, router), ticket);
        }
    }

    /// The event's place took it; `all` may be in flight where nothing is wrong. Whether more may
    /// be sent than before.
    pub(in super::super) fn place_took(&mut self, ticket: Ticket, all: usize, now: Moment) -> bool {
        let more = self.holds_back() && self.places.accepted(ticket, all, now);
        if more && !self.holds_back() {
            self.forget_tried();
        }
        more
    }

    /// An event was answered otherwise.
    pub(in super::super) fn place_answered(&mut self, ticket: Ticket) {
        self.places.answered(ticket);
    }

    /// The event's place refused it for now. False: so many places do that the destination takes
    /// nothing.
    pub(in super::super) fn put_off(
        &mut self,
        (event, ticket): (&StoredEvent, Ticket),
        why: &Postponement,
        router: &Router,
        probe: Backoff,
        now: Moment,
        random: f64,
    ) -> bool {
        let rotates = !left_out(Rule::ProbesRotate);
        let was = self.change(Waiter::of(event), |reasons| {
            std::mem::replace(&mut reasons.tried, rotates)
        });
        self.tried += usize::from(rotates && !was);
        let place = self.place_of(event, router);
        let name = (!self.places.is_limited(place)).then(|| self.name_of(event, router));
        let of = (place, ticket);
        self.places.refused(of, name, why, probe, now, random)
    }

    /// The event stayed unanswered while others were answered. How often it did so although its
    /// place took others; none where that takes nothing either.
    pub(in super::super) fn silent(&mut self, event: &StoredEvent, router: &Router) -> Option<u32> {
        if self.places.silent(self.place_of(event, router)) {
            return None;
        }
        let silences = self.change(Waiter::of(event), |reasons| {
            reasons.silences += 1;
            reasons.silences
        });
        self.unanswered += usize::from(silences == 1);
        Some(silences)
    }

    /// The destination took the event, or it counts as refused: it is silent no more.
    pub(in super::super) fn answered(&mut self, event: &StoredEvent) {
        if self.unanswered == 0 {
            return;
        }
        let silences = self.change(Waiter::of(event), |reasons| {
            std::mem::take(&mut reasons.silences)
        });
        self.unanswered -= usize::from(silences > 0);
    }

    /// The event's place took it.
    pub(in super::super) fn clear_of_doubt(&mut self, event: &StoredEvent, router: &Router) {
        if self.places.has_doubts() {
            self.places.took(self.place_of(event, router));
        }
    }

    fn forget_tried(&mut self) {
        if std::mem::take(&mut self.tried) > 0 {
            self.change_all(|reasons| reasons.tried = false);
        }
    }

    /// The lane ended.
    pub(in super::super) fn lane_ended(&mut self) {
        self.places.lane_ended();
    }
}

/// Another place for each part of a topic.
fn mixed(topic: u64, part: u32) -> u64 {
    (topic ^ (u64::from(part) + 1)).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}
