//! Copies that were put off are looked for, and sent before they are due, where their places have
//! returned or are to be tried. Each has its own time, which may be minutes away.

use std::{
    collections::{BTreeSet, HashMap},
    time::Duration,
};

use super::place::{PLACES_MAX, Place};
use crate::{Backoff, DueAt, Moment};

/// How long no copies of a place are looked for that refused those that were found last: others of
/// its events may go where that takes all.
const AGAIN: Backoff = Backoff {
    first: Duration::from_secs(1),
    max: Duration::from_secs(300),
    jitter: 0.25,
};
/// Of the first look, few: the place may refuse them.
const FIRST_LOOK: usize = 10;
/// Most may be of other places, which are held back.
const LOOK: usize = 500;

/// Places whose copies are looked for, all in one read of what was put off.
#[derive(Debug, Clone, Default)]
pub(super) struct Returns {
    places: BTreeSet<Place>,
    /// Places that are to be tried: one copy of each is enough.
    to_try: BTreeSet<Place>,
    /// All places whose copies were put off before this pipeline began: they may have returned
    /// since, and nobody has seen it.
    former: bool,
    /// So far it has come.
    after: Option<DueAt>,
    /// A place returned meanwhile: it may have copies among those that were seen.
    is_late: bool,
    /// How often in a row places refused what was found, and until when nothing is looked for.
    refused: HashMap<Place, (u32, Moment)>,
}

impl Returns {
    /// Copies were put off before this pipeline began.
    pub(super) fn look_for_former(&mut self) {
        self.former = true;
    }

    /// Whether the copies of all places that are not held back are looked for.
    pub(super) fn looks_for_former(&self) -> bool {
        self.former
    }

    fn is_empty(&self) -> bool {
        self.places.is_empty() && self.to_try.is_empty() && !self.former
    }

    /// The place takes events again.
    pub(super) fn returned(&mut self, place: Place, now: Moment) {
        let refused = self.refused.get(&place);
        if refused.is_none_or(|(_, until)| *until <= now) && self.places.insert(place) {
            self.is_late |= self.after.is_some();
        }
    }

    /// The place is to be tried.
    pub(super) fn looks_for_one(&mut self, place: Place) {
        if self.to_try.insert(place) {
            self.is_late |= self.after.is_some();
        }
    }

    /// A copy of this place was found.
    pub(super) fn found(&mut self, place: Place) {
        self.to_try.remove(&place);
    }

    /// The place takes nothing any more. Whether its copies were looked for.
    pub(super) fn gone(&mut self, place: Place) -> bool {
        let was_looked_for = self.places.remove(&place);
        self.to_try.remove(&place);
        if self.is_empty() {
            self.look_anew();
        }
        was_looked_for
    }

    /// The place has refused an event.
    pub(super) fn held(&mut self, place: Place, now: Moment, random: f64) {
        if self.gone(place) && self.refused.len() < PLACES_MAX {
            let (times, until) = self.refused.entry(place).or_default();
            *times += 1;
            *until = now.after(AGAIN.delay(*times, random));
        }
    }

    pub(super) fn has_refused(&self) -> bool {
        !self.refused.is_empty()
    }

    /// The place took a copy, or an operator has ended its pause.
    pub(super) fn took(&mut self, place: Place) {
        self.refused.remove(&place);
    }

    /// Whether the place's copies are looked for.
    pub(super) fn contains(&self, place: Place) -> bool {
        self.places.contains(&place) || self.to_try.contains(&place)
    }

    /// Behind which copy the next look begins, where one is needed, and how many it brings.
    pub(super) fn next_look(&self) -> Option<(Option<DueAt>, usize)> {
        let limit = if self.after.is_some() {
            LOOK
        } else {
            FIRST_LOOK
        };
        (!self.is_empty()).then_some((self.after, limit))
    }

    /// The look begins anew.
    pub(super) fn look_anew(&mut self) {
        (self.after, self.is_late) = (None, false);
    }

    /// A look behind this copy came so far; none: there was nothing more.
    pub(super) fn looked(&mut self, after: Option<DueAt>, last: Option<DueAt>) {
        // Else it was one of places that are held back again.
        if after != self.after || self.is_empty() {
            return;
        }
        match last {
            Some(last) => self.after = Some(last),
            None if self.is_late => self.look_anew(),
            None => {
                self.places.clear();
                self.to_try.clear();
                self.former = false;
                self.look_anew();
            }
        }
    }

    #[cfg(feature = "model")]
    pub(super) fn describe(&self, out: crate::model::Out<'_>) {
        use crate::model::{Part, number};
        let Self {
            places,
            to_try,
            former,
            after,
            is_late,
            // Only the length of a wait hangs on it, and no time passes.
            refused: _,
        } = self;
        out(number(places.len()));
        places.iter().for_each(|place| out(Part::Number(place.0)));
        out(number(to_try.len()));
        to_try.iter().for_each(|place| out(Part::Number(place.0)));
        out(Part::Text(&format!("{former} {after:?} {is_late}")));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Moment {
        Moment::default().after(Duration::from_secs(seconds))
    }

    #[test]
    fn a_place_that_returns_during_a_look_is_looked_for_from_the_beginning() {
        let (first, second) = (Some(DueAt(7, 1)), Some(DueAt(7, 2)));
        let mut returns = Returns::default();
        assert_eq!(returns.next_look(), None);
        returns.returned(Place(1), at(0));
        assert_eq!(returns.next_look(), Some((None, FIRST_LOOK)));
        returns.looked(None, first);
        returns.returned(Place(2), at(0));
        assert_eq!(returns.next_look(), Some((first, LOOK)));
        returns.looked(first, None);
        assert_eq!(
            returns.next_look(),
            Some((None, FIRST_LOOK)),
            "for the second place"
        );
        returns.looked(None, second);
        returns.looked(second, None);
        assert_eq!(returns.next_look(), None);
    }

    #[test]
    fn the_look_of_a_place_that_is_held_back_again_says_nothing_to_another() {
        let first = Some(DueAt(7, 1));
        let mut returns = Returns::default();
        returns.returned(Place(1), at(0));
        returns.looked(None, first);
        returns.held(Place(1), at(0), 0.5);
        assert_eq!(returns.next_look(), None);
        returns.returned(Place(2), at(0));
        returns.looked(first, None);
        assert_eq!(returns.next_look(), Some((None, FIRST_LOOK)));
        assert!(returns.contains(Place(2)) && !returns.contains(Place(1)));
    }

    #[test]
    fn a_place_that_refuses_what_is_found_is_looked_for_ever_more_seldom() {
        let mut returns = Returns::default();
        let mut now = 0;
        for wait in [1, 2, 4, 8] {
            returns.returned(Place(1), at(now));
            assert!(returns.contains(Place(1)));
            returns.held(Place(1), at(now), 0.5);
            returns.returned(Place(1), at(now + wait - 1));
            assert!(!returns.contains(Place(1)));
            now += wait;
        }
        returns.took(Place(1));
        returns.returned(Place(1), at(now - 1));
        assert!(returns.contains(Place(1)));
    }
}
