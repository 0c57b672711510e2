//! The markers of blocked keys.

use uuid::Uuid;

use super::Tables;
use crate::{Cursor, Marker, audit};

/// A marker.
#[derive(Debug, Clone)]
pub struct MarkerRow<P> {
    pub slot: u16,
    /// Everything of the key up to there is done with.
    pub position: P,
    pub since: i64,
}

impl<P> Tables<P> {
    /// Those of the slots that are owned, by key.
    pub fn markers_of(
        &self,
        destination_id: i64,
        owns: impl Fn(u16) -> bool,
    ) -> Vec<(&str, &MarkerRow<P>)> {
        let all = self.markers.range((destination_id, String::new())..);
        all.take_while(|((of, _), _)| *of == destination_id)
            .filter(|(_, row)| owns(row.slot))
            .map(|((_, key), row)| (key.as_str(), row))
            .collect()
    }

    /// As [`crate::ClaimMarkers::markers`].
    pub fn markers(
        &self,
        destination_id: i64,
        (after, limit): (Option<&str>, usize),
        owns: impl Fn(u16) -> bool,
        cursor: impl Fn(&P) -> Cursor,
    ) -> Vec<Marker> {
        let mut ours = self.markers_of(destination_id, owns);
        ours.retain(|(key, _)| after.is_none_or(|after| *key > after));
        let held = self.held_keys(destination_id);
        let marker = |(key, row): (&str, &MarkerRow<P>)| Marker {
            key: key.to_owned(),
            at: cursor(&row.position),
            released: !held.contains(key),
        };
        ours.into_iter().take(limit).map(marker).collect()
    }

    pub fn is_marked(&self, destination_id: i64, key: &str) -> bool {
        self.markers.contains_key(&(destination_id, key.to_owned()))
    }

    /// The keys of these that have a marker.
    pub fn marked(&self, destination_id: i64, keys: &[String]) -> Vec<String> {
        let marked = keys
            .iter()
            .filter(|key| self.is_marked(destination_id, key));
        marked.cloned().collect()
    }

    /// Removes the markers of these keys that no parked event holds. Answers how many.
    pub fn join(&mut self, (id, by): (i64, Uuid), keys: Vec<String>, now: i64) -> usize {
        let mut joined = 0;
        for key in keys {
            if !self.holds(id, &key) && self.markers.remove(&(id, key)).is_some() {
                joined += 1;
            }
        }
        if joined > 0 {
            self.note(now, Some(by), audit::JOIN, Some(id), &[&joined]);
        }
        joined
    }
}
