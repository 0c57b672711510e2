//! The links of a session: one for each address, within a bound.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use tokio::time::Instant;

/// Links at the most. Each costs the peer some memory; with more addresses in use, the link that
/// was idle for longest makes room.
const LINKS_MAX: usize = 200;

/// Whether a message may be sent to an address now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Room {
    /// It may be sent on the link of this handle, with so many bytes at the most.
    Yes {
        handle: u32,
        message_bytes_max: Option<u64>,
    },
    /// The peer gives no credit yet, or has not answered.
    No {
        /// When a message was last sent on the link.
        sent: Option<Instant>,
    },
}

/// A link.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) address: Arc<str>,
    state: LinkState,
    /// The peer's number of it, once it has answered.
    peer_handle: Option<u32>,
    message_bytes_max: Option<u64>,
    /// Messages that were sent on it, as both sides count.
    pub(super) delivery_count: u32,
    credit: u32,
    /// Messages without an outcome.
    pub(super) in_flight: usize,
    /// When it was looked for last, in looks.
    used: u64,
    sent: Option<Instant>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LinkState {
    Attaching,
    Attached,
    /// We ended it, and the peer has not answered.
    Detaching,
}

/// All links of a session.
#[derive(Debug)]
pub(super) struct Links {
    all: BTreeMap<u32, Link>,
    by_address: HashMap<Arc<str>, u32>,
    by_peer: HashMap<u32, u32>,
    count_max: usize,
    looks: u64,
}

/// A thing to say, so that an address has a link.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Step {
    Attach(u32),
    Detach(u32),
}

impl Links {
    /// No links yet; the peer takes handles up to this one.
    pub(super) fn new(handle_max: u32) -> Self {
        let handles = usize::try_from(handle_max).map_or(usize::MAX, |max| max.saturating_add(1));
        Self {
            all: BTreeMap::new(),
            by_address: HashMap::new(),
            by_peer: HashMap::new(),
            count_max: handles.min(LINKS_MAX),
            looks: 0,
        }
    }

    /// Looks for the link of an address. Where there is none, the step that makes one.
    pub(super) fn look(&mut self, address: &Arc<str>) -> (Room, Option<Step>) {
        self.looks += 1;
        let link = self.by_address.get(address);
        if let Some((handle, link)) = link.and_then(|handle| {
            let link = self.all.get_mut(handle)?;
            Some((*handle, link))
        }) {
            link.used = self.looks;
            let room = match link.state == LinkState::Attached && link.credit > 0 {
                true => Room::Yes {
                    handle,
                    message_bytes_max: link.message_bytes_max,
                },
                false => Room::No { sent: link.sent },
            };
            return (room, None);
        }
        let step = match self.all.len() < self.count_max {
            true => Some(Step::Attach(self.add(address))),
            false => self.end_an_idle_one().map(Step::Detach),
        };
        (Room::No { sent: None }, step)
    }

    fn add(&mut self, address: &Arc<str>) -> u32 {
        let taken = self.all.keys();
        let gap = (0..).zip(taken).find(|(free, taken)| free != *taken);
        let end = u32::try_from(self.all.len()).unwrap_or(u32::MAX);
        let handle = gap.map_or(end, |(free, _)| free);
        self.by_address.insert(Arc::clone(address), handle);
        let link = Link {
            address: Arc::clone(address),
            state: LinkState::Attaching,
            peer_handle: None,
            message_bytes_max: None,
            delivery_count: 0,
            credit: 0,
            in_flight: 0,
            used: self.looks,
            sent: None,
        };
        self.all.insert(handle, link);
        handle
    }

    /// One at a time: the room of one that is being detached is about to be free.
    fn end_an_idle_one(&mut self) -> Option<u32> {
        let mut all = self.all.values();
        if all.any(|link| link.state == LinkState::Detaching) {
            return None;
        }
        let idle = self.all.iter_mut();
        let idle =
            idle.filter(|(_, link)| link.state == LinkState::Attached && link.in_flight == 0);
        let (handle, link) = idle.min_by_key(|(_, link)| link.used)?;
        link.state = LinkState::Detaching;
        self.by_address.remove(&link.address);
        Some(*handle)
    }

    /// The peer has attached the link of this handle.
    pub(super) fn attached(&mut self, handle: u32, peer: u32, message_bytes_max: Option<u64>) {
        if let Some(link) = self.all.get_mut(&handle) {
            link.peer_handle = Some(peer);
            link.message_bytes_max = message_bytes_max;
            if link.state == LinkState::Attaching {
                link.state = LinkState::Attached;
            }
            self.by_peer.insert(peer, handle);
        }
    }

    /// The link that has this number at the peer, and its handle.
    pub(super) fn of_peer(&mut self, peer: u32) -> Option<(u32, &mut Link)> {
        let handle = *self.by_peer.get(&peer)?;
        self.all.get_mut(&handle).map(|link| (handle, link))
    }

    /// Bytes of a message for this address at the most.
    pub(super) fn message_bytes_max(&self, address: &str) -> Option<u64> {
        let handle = self.by_address.get(address)?;
        self.all.get(handle)?.message_bytes_max
    }

    /// The link of this handle is no more. Answers it where the peer was first to end it.
    pub(super) fn ended(&mut self, handle: u32) -> Option<Link> {
        let link = self.all.remove(&handle)?;
        if let Some(peer) = link.peer_handle {
            self.by_peer.remove(&peer);
        }
        if link.state == LinkState::Detaching {
            return None;
        }
        self.by_address.remove(&link.address);
        Some(link)
    }

    /// A message is sent on this link.
    pub(super) fn sent(&mut self, handle: u32, now: Instant) {
        if let Some(link) = self.all.get_mut(&handle) {
            link.sent = Some(now);
            link.delivery_count = link.delivery_count.wrapping_add(1);
            link.credit = link.credit.saturating_sub(1);
            link.in_flight += 1;
        }
    }

    /// A message of this link has its outcome.
    pub(super) fn settled(&mut self, handle: u32) {
        if let Some(link) = self.all.get_mut(&handle) {
            link.in_flight = link.in_flight.saturating_sub(1);
        }
    }
}

impl Link {
    /// The peer gives credit from this count on. Counts of both sides wrap around.
    pub(super) fn give(&mut self, delivery_count: u32, credit: u32) {
        let end = delivery_count.wrapping_add(credit);
        let left = end.wrapping_sub(self.delivery_count);
        // Behind what was sent already, where the peer took some back.
        self.credit = if left > u32::MAX / 2 { 0 } else { left };
    }

    /// Uses up the credit without sending.
    pub(super) fn drain(&mut self) {
        self.delivery_count = self.delivery_count.wrapping_add(self.credit);
        self.credit = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NO: Room = Room::No { sent: None };

    fn attach(links: &mut Links, address: &str) -> u32 {
        let (_, Some(Step::Attach(handle))) = links.look(&address.into()) else {
            panic!("no link is attached");
        };
        links.attached(handle, 100 + handle, Some(7));
        handle
    }

    #[test]
    fn a_link_sends_within_its_credit() {
        let mut links = Links::new(u32::MAX);
        let handle = attach(&mut links, "a");
        let room = |links: &mut Links| links.look(&"a".into());
        let is_full = |found| matches!(found, (Room::No { sent: Some(_) }, None));
        assert_eq!(room(&mut links), (NO, None));
        let (found, link) = links.of_peer(100).unwrap();
        assert_eq!(found, handle);
        link.give(0, 2);
        let yes = Room::Yes {
            handle,
            message_bytes_max: Some(7),
        };
        for _ in 0..2 {
            assert_eq!(room(&mut links), (yes, None));
            links.sent(handle, Instant::now());
        }
        assert!(is_full(room(&mut links)));
        // It was said before the second one came.
        links.of_peer(100).unwrap().1.give(1, 2);
        assert_eq!(room(&mut links), (yes, None));
        links.of_peer(100).unwrap().1.drain();
        assert!(is_full(room(&mut links)));
        let link = links.ended(handle).unwrap();
        assert_eq!((link.delivery_count, link.in_flight), (3, 2));
        assert_eq!(room(&mut links), (NO, Some(Step::Attach(0))));
    }

    #[test]
    fn credit_wraps_around_and_is_taken_back() {
        let mut links = Links::new(0);
        let handle = attach(&mut links, "a");
        let (_, link) = links.of_peer(100 + handle).unwrap();
        link.delivery_count = u32::MAX;
        link.give(u32::MAX - 1, 3);
        assert_eq!(link.credit, 2);
        link.give(u32::MAX - 1, 0);
        assert_eq!(link.credit, 0);
    }

    #[test]
    fn an_idle_link_makes_room() {
        let mut links = Links::new(1);
        let (first, second) = (attach(&mut links, "a"), attach(&mut links, "b"));
        assert_eq!(links.look(&"a".into()), (NO, None));
        links.sent(second, Instant::now());
        let third = "c".into();
        assert_eq!(links.look(&third), (NO, Some(Step::Detach(first))));
        // While the peer has not answered, nothing more is asked.
        assert_eq!(links.look(&third), (NO, None));
        assert!(links.ended(first).is_none());
        assert_eq!(links.look(&third), (NO, Some(Step::Attach(first))));
    }
}
