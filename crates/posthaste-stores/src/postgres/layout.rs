//! Where the groups of a claim stand while they come to one place.

use super::position::Position;

/// Where a group stands, and the stored rows that came to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct GroupRow {
    /// Ascending; the first stays.
    pub(super) ids: Vec<i64>,
    pub(super) position: Position,
}

/// Where all groups stand at a page of one of them.
#[derive(Debug)]
pub(super) struct GroupLayout {
    /// The group that is read comes first.
    pub(super) before: Vec<GroupRow>,
    pub(super) after: Vec<GroupRow>,
}

impl GroupLayout {
    /// With the group that is read at this place of the page; none: behind the page.
    pub(super) fn rows(&self, within: Option<Position>) -> Vec<GroupRow> {
        let Some(position) = within else {
            return self.after.clone();
        };
        let mut rows = self.before.clone();
        if let Some(row) = rows.first_mut() {
            row.position = position;
        }
        rows
    }

    /// Whether all groups have become one behind the page, at a whole snapshot.
    pub(super) fn is_one(&self) -> bool {
        matches!(&self.after[..], [row] if row.position.within.is_none())
    }
}
