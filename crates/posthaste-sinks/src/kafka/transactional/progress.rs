//! Which events were accepted and are not known to be behind what the store holds.
//!
//! Kept by event, for each of the destination's partitions: by `seq` and id together. A `seq` alone
//! may be issued again after a crash, and an application may emit an id again, which is another
//! event. Every transaction writes the whole set of each partition that it touches to the progress
//! topic, so that the latest record of a partition is all that its next owner needs. An event that
//! is found there was accepted by a committed transaction, whoever wrote it and however long ago:
//! suppressing it is never wrong, and forgetting one too early is a repeat. An event leaves when
//! the store has it behind it.

use std::{
    collections::{BTreeMap, HashMap},
    ops::{Range, RangeInclusive},
};

use posthaste_engine::{EventRef, LaneScope, Partitions};
use uuid::Uuid;

/// Slots of a key's hash.
const SLOTS: u32 = 1 << 14;
/// The first byte of a record's value: ids and `seq`s follow.
const VERSION: u8 = 2;
const EVENT_BYTES: usize = 24;
/// An earlier version's first byte: ids follow.
const VERSION_OF_IDS: u8 = 1;
const ID_BYTES: usize = 16;
/// Stands for the `seq` of an event that a record of ids names. No database issues it.
const ANY_SEQ: i64 = i64::MIN;

/// The progress of one lane's partitions.
pub(super) struct Progress {
    keys: Keys,
    partitions: Partitions,
    /// By partition, then by event, the ticket that stands for the event; none if it was not
    /// submitted on this lane.
    held: HashMap<u16, HashMap<EventRef, Option<u64>>>,
    /// Partition and event by ticket.
    tickets: BTreeMap<u64, (u16, EventRef)>,
}

/// The keys of a destination's records in the progress topic: `store/destination id/first-last`, of
/// slots. Slots, and not the partition's number: so a record is found again when the number of
/// partitions has changed. The id, and not the name: a destination that is made again under a name
/// knows nothing of the former one.
#[derive(Debug, Clone)]
pub(super) struct Keys {
    prefix: String,
}

impl Keys {
    pub(super) fn of(scope: &LaneScope) -> Self {
        let prefix = format!("{}/{}/", scope.store_id, scope.destination_id);
        Self { prefix }
    }

    /// All keys of the destination begin with this.
    pub(super) fn prefix(&self) -> &str {
        &self.prefix
    }

    fn key(&self, slots: &RangeInclusive<u16>) -> String {
        format!("{}{}-{}", self.prefix, slots.start(), slots.end())
    }

    /// The slots of a record; none if it is another destination's.
    pub(super) fn slots(&self, key: &[u8]) -> Option<RangeInclusive<u16>> {
        let slots = std::str::from_utf8(key).ok()?.strip_prefix(&self.prefix)?;
        let (first, last) = slots.split_once('-')?;
        let slots = first.parse().ok()?..=last.parse().ok()?;
        // A key that is not ours to the letter would be another record than the one that we write.
        (self.key(&slots).as_bytes() == key).then_some(slots)
    }
}

impl Progress {
    pub(super) fn new(scope: &LaneScope) -> Self {
        Self {
            keys: Keys::of(scope),
            partitions: scope.partitions.clone(),
            held: HashMap::new(),
            tickets: BTreeMap::new(),
        }
    }

    /// Takes over the latest record of some slots.
    ///
    /// # Errors
    /// Why the record cannot be understood, in words.
    pub(super) fn learn(
        &mut self,
        slots: &RangeInclusive<u16>,
        value: &[u8],
    ) -> Result<(), String> {
        let events = decode(value)?;
        // With another number of partitions a record tells of several of ours, or of a part of one.
        // Which of its events are whose it does not say, and an event too many does no harm.
        for partition in self.partitions.iter() {
            let ours = slots_of(partition, self.partitions.count());
            if ours.start() <= slots.end() && slots.start() <= ours.end() {
                let held = self.held.entry(partition).or_default();
                held.extend(events.iter().map(|&event| (event, None)));
            }
        }
        Ok(())
    }

    pub(super) fn partition_of(&self, slot: u16) -> u16 {
        self.partitions.partition_of(slot)
    }

    /// Whether the event was accepted before; then this ticket stands for it from now on.
    pub(super) fn suppresses(&mut self, partition: u16, event: EventRef, ticket: u64) -> bool {
        let Some(held) = self.held.get_mut(&partition) else {
            return false;
        };
        let of_id = EventRef {
            seq: ANY_SEQ,
            ..event
        };
        // One event only: from now on it has its `seq`.
        if !held.contains_key(&event) && held.remove(&of_id).is_none() {
            return false;
        }
        if let Some(former) = held.insert(event, Some(ticket)).flatten() {
            self.tickets.remove(&former);
        }
        self.tickets.insert(ticket, (partition, event));
        true
    }

    /// The event was accepted by a transaction.
    pub(super) fn accepted(&mut self, partition: u16, event: EventRef, ticket: u64) {
        let held = self.held.entry(partition).or_default();
        held.insert(event, Some(ticket));
        self.tickets.insert(ticket, (partition, event));
    }

    /// The record of a partition for a transaction with these further events: key and value.
    pub(super) fn record(&self, partition: u16, further: &[EventRef]) -> (String, Vec<u8>) {
        let held = self.held.get(&partition);
        let count = held.map_or(0, HashMap::len) + further.len();
        let mut value = Vec::with_capacity(1 + count * EVENT_BYTES);
        value.push(VERSION);
        for event in held.into_iter().flat_map(HashMap::keys).chain(further) {
            value.extend_from_slice(event.id.as_bytes());
            value.extend_from_slice(&event.seq.to_be_bytes());
        }
        let slots = slots_of(partition, self.partitions.count());
        (self.keys.key(&slots), value)
    }

    /// The store has what bears these tickets behind it.
    pub(super) fn stored(&mut self, tickets: Range<u64>) {
        let mut rest = self.tickets.split_off(&tickets.start);
        let mut behind = rest.split_off(&tickets.end);
        std::mem::swap(&mut behind, &mut rest);
        for (partition, event) in behind.into_values() {
            if let Some(held) = self.held.get_mut(&partition) {
                held.remove(&event);
            }
        }
        self.tickets.append(&mut rest);
    }

    /// Events that were learned and not submitted since never will be.
    pub(super) fn caught_up(&mut self) {
        for held in self.held.values_mut() {
            held.retain(|_, ticket| ticket.is_some());
        }
    }
}

fn slots_of(partition: u16, count: u16) -> RangeInclusive<u16> {
    let first = |partition: u32| partition * SLOTS / u32::from(count);
    let (first, end) = (first(u32::from(partition)), first(u32::from(partition) + 1));
    let slot = |slot: u32| u16::try_from(slot).unwrap_or(u16::MAX);
    slot(first)..=slot(end.saturating_sub(1))
}

fn decode(value: &[u8]) -> Result<Vec<EventRef>, String> {
    let (&version, mut rest) = value.split_first().ok_or("it is empty")?;
    let has_seqs = match version {
        VERSION => true,
        VERSION_OF_IDS => false,
        _ => {
            return Err(format!(
                "it has version {version}, this Posthaste knows {VERSION}: a newer one wrote it"
            ));
        }
    };
    let size = if has_seqs { EVENT_BYTES } else { ID_BYTES };
    let mut events = Vec::with_capacity(rest.len() / size);
    while let Some((id, behind)) = rest.split_first_chunk::<ID_BYTES>() {
        let (seq, behind) = match has_seqs {
            true => match behind.split_first_chunk() {
                Some((seq, behind)) => (i64::from_be_bytes(*seq), behind),
                None => break,
            },
            false => (ANY_SEQ, behind),
        };
        let id = Uuid::from_bytes(*id);
        events.push(EventRef { seq, id });
        rest = behind;
    }
    if !rest.is_empty() {
        return Err(format!(
            "it ends within an event, after {} bytes",
            value.len()
        ));
    }
    Ok(events)
}

#[cfg(test)]
mod tests;
