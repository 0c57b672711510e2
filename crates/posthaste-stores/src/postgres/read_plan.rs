//! The whole way of one claim: first its groups converge, then the one that is left sweeps. Pure
//! state, no I/O.

use std::{collections::BTreeMap, sync::Arc};

use super::{
    converge::{Converge, Group, Left},
    layout::GroupRow,
    position::Position,
    slots::Slots,
    sweep::{Advance, Answer, Place, Request, Step, Sweep, Unsound},
};

/// An advance under way; made when it is sent.
#[derive(Debug, Clone)]
pub(super) struct Stored {
    pub(super) advance: Advance,
    /// Rows whose place changes, or that take in another one.
    pub(super) places: Vec<(i64, Position)>,
    /// Rows that go, each with the one that takes over its partitions.
    pub(super) merged: Vec<(i64, i64)>,
}

/// Where a claim stands, what its next read asks for and what an advance stores.
#[derive(Debug, Clone)]
pub(super) struct ReadPlan {
    sweep: Sweep,
    /// None: there is one group.
    converge: Option<Converge>,
    slots: Option<Arc<Slots>>,
    /// The rows of the claim, ascending.
    ids: Vec<i64>,
    /// The rows that are left, as they are stored.
    rows: BTreeMap<i64, Position>,
}

impl ReadPlan {
    /// For a model: the one sweep that is left, and the rows as they are stored.
    #[cfg(feature = "model")]
    pub(super) fn parts(&mut self) -> (&mut Sweep, &BTreeMap<i64, Position>) {
        (&mut self.sweep, &self.rows)
    }

    /// Goes on from stored rows. `proven` as for [`Sweep::restore`].
    pub(super) fn restore(
        leaf_bits: u8,
        slots: Option<Slots>,
        first: Group,
        others: Vec<Group>,
        proven: i64,
    ) -> Self {
        let groups = std::iter::once(&first).chain(&others);
        let rows = groups.flat_map(|group| {
            let GroupRow { ids, position } = &group.row;
            ids.iter().map(|id| (*id, position.clone()))
        });
        let rows: BTreeMap<i64, Position> = rows.collect();
        // The least place holds for all of them.
        let stored = rows.values().min_by_key(|row| row.floors.floor_min);
        let stored = stored.unwrap_or(&first.row.position);
        let mut plan = Self {
            sweep: Sweep::restore(leaf_bits, stored, proven),
            converge: None,
            slots: slots.map(Arc::new),
            ids: rows.keys().copied().collect(),
            rows,
        };
        plan.go_on(Converge::set_out(leaf_bits, first, others));
        plan
    }

    /// The one group that is left sweeps.
    fn go_on(&mut self, left: Left) {
        match left {
            Left::One(row) => self.sweep.go_on_from(&row.position),
            Left::Several(converge) => self.converge = Some(converge),
        }
    }

    /// The next read, and whose slots it is about; none: everything.
    pub(super) fn request(&self) -> (Request, Option<Arc<Slots>>) {
        match &self.converge {
            Some(converge) => converge.request(),
            None => (self.sweep.request(), self.slots.clone()),
        }
    }

    /// Takes the answer to `request`.
    pub(super) fn answer(&mut self, request: Request, answer: Answer) -> Result<Step, Unsound> {
        let Some(converge) = self.converge.take() else {
            let mut step = self.sweep.answer(request, answer)?;
            step.wants_advance |= self.is_split();
            return Ok(step);
        };
        let read = self.sweep.receive(&answer)?;
        let (place, left) = converge.answer(read, &answer);
        self.go_on(left);
        let groups = self.converge.as_ref().map_or(1, Converge::len);
        Ok(Step {
            place: Arc::new(place),
            caught_up: false,
            wants_advance: groups < self.rows.len(),
            // A poll is to see what is there when it is asked for.
            unfinished: matches!(self.request().0, Request::Page { .. }),
        })
    }

    /// The advance to behind `seq` of a page; none when that would go back.
    pub(super) fn advance(&self, place: &Place, seq: Option<i64>) -> Option<Stored> {
        let advance = self.sweep.advance(place, seq)?;
        let layout = place.rows(seq).unwrap_or_else(|| {
            vec![GroupRow {
                ids: self.ids.clone(),
                position: advance.position.clone(),
            }]
        });
        let (mut places, mut merged) = (Vec::new(), Vec::new());
        for GroupRow { ids, position } in layout {
            let Some((&rest, gone)) = ids.split_first() else {
                continue;
            };
            let gone = gone.iter().filter(|id| self.rows.contains_key(id));
            let merges = merged.len();
            merged.extend(gone.map(|&id| (id, rest)));
            if merges < merged.len() || self.rows.get(&rest) != Some(&position) {
                places.push((rest, position));
            }
        }
        Some(Stored {
            advance,
            places,
            merged,
        })
    }

    /// The advance was made, and the answer has come.
    pub(super) fn advanced(&mut self, stored: Stored) {
        self.sweep.advanced(&stored.advance);
        for (id, _) in &stored.merged {
            self.rows.remove(id);
        }
        self.rows.extend(stored.places);
    }

    /// Whether one more advance is worth making, as [`Sweep::wants_advance`], or rows are yet to be
    /// merged.
    pub(super) fn wants_advance(&self) -> bool {
        self.sweep.wants_advance() || (self.converge.is_none() && self.is_split())
    }

    /// Whether several rows are stored.
    pub(super) fn is_split(&self) -> bool {
        self.rows.len() > 1
    }
}
