//! The links of a session: one for each address, within a bound.

use std::{
    collections::{BTreeMap, HashMap, HashSet, VecDeque},
    sync::Arc,
    time::Duration,
};

use tokio::time::Instant;

/// Links at the most. Each costs the peer some memory; with more addresses in use, idle ones make
/// room: those without credit first, and then those that were idle for longest.
const LINKS_MAX: usize = 200;
/// Links that make room at once, for as many addresses: each takes two ways to the peer and back.
const DETACHING_MAX: usize = 16;
/// A link on which nothing was sent yet is left alone for so long: addresses without credit would
/// take each other's links, and those of others, without an end.
const FIRST_CREDIT: Duration = Duration::from_secs(1);

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
    /// When we asked the peer for its state.
    since: Instant,
    /// The peer wants all that waits for it, and no credit left behind that.
    pub(super) drains: bool,
    /// It makes room for an address that waits for a link.
    makes_room: bool,
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
    /// The addresses that wait for a link, each once, in the order in which they came: else those
    /// without credit would take each place before the others.
    queue: VecDeque<Arc<str>>,
    queued: HashSet<Arc<str>>,
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
            queue: VecDeque::new(),
            queued: HashSet::new(),
            count_max: handles.min(LINKS_MAX),
            looks: 0,
        }
    }

    /// Looks for the link of an address. Where there is none, the step that makes one.
    pub(super) fn look(&mut self, address: &Arc<str>, now: Instant) -> (Room, Option<Step>) {
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
            true => Some(Step::Attach(self.add(address, now))),
            false => {
                if self.queued.insert(Arc::clone(address)) {
                    self.queue.push_back(Arc::clone(address));
                }
                self.end_an_idle_one(now).map(Step::Detach)
            }
        };
        (Room::No { sent: None }, step)
    }

    /// A link for the address that waits for one longest, where there is room: it is to be attached
    /// under this handle.
    pub(super) fn next_in_queue(&mut self, now: Instant) -> Option<(u32, Arc<str>)> {
        if self.all.len() >= self.count_max {
            return None;
        }
        let address = self.queue.pop_front()?;
        self.queued.remove(&address);
        Some((self.add(&address, now), address))
    }

    fn add(&mut self, address: &Arc<str>, now: Instant) -> u32 {
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
            since: now,
            drains: false,
            makes_room: false,
        };
        self.all.insert(handle, link);
        handle
    }

    /// One for each address that waits.
    fn end_an_idle_one(&mut self, now: Instant) -> Option<u32> {
        let detaching = self.all.values().filter(|link| link.makes_room).count();
        if detaching >= self.queue.len().min(DETACHING_MAX) {
            return None;
        }
        let idle = self.all.iter_mut().filter(|(_, link)| link.is_idle(now));
        let (handle, link) = idle.min_by_key(|(_, link)| (link.credit > 0, link.used))?;
        link.detach(now);
        link.makes_room = true;
        self.by_address.remove(&link.address);
        Some(*handle)
    }

    /// Gives up the attaches that were not answered in this time, so that their addresses may have
    /// another link. None: the peer does not answer our detaches either, and has too few handles
    /// left.
    pub(super) fn give_up(&mut self, limit: Duration, now: Instant) -> Option<Vec<u32>> {
        let (mut given_up, mut unanswered) = (Vec::new(), 0);
        for (handle, link) in &mut self.all {
            if now < link.since + limit {
                continue;
            }
            match link.state {
                LinkState::Attached => {}
                LinkState::Attaching => {
                    self.by_address.remove(&link.address);
                    link.detach(now);
                    given_up.push(*handle);
                }
                LinkState::Detaching => {
                    link.makes_room = false;
                    unanswered += 1;
                }
            }
        }
        (unanswered == 0 || unanswered <= self.count_max / 2).then_some(given_up)
    }

    /// When an attach or a detach is answered too late.
    pub(super) fn late_at(&self, limit: Duration) -> Option<Instant> {
        let asked = self.all.values();
        let asked = asked.filter(|link| match link.state {
            LinkState::Attached => false,
            LinkState::Attaching => true,
            LinkState::Detaching => link.makes_room,
        });
        asked.map(|link| link.since + limit).min()
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

    /// Uses up the credit of links whose peers have asked for that, and answers their handles and
    /// delivery counts.
    pub(super) fn drained(&mut self) -> Vec<(u32, u32)> {
        let draining = self.all.iter_mut().filter(|(_, link)| link.drains);
        let drained = draining.map(|(handle, link)| {
            link.drain();
            (*handle, link.delivery_count)
        });
        drained.collect()
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
    /// Whether it may make room for another one.
    fn is_idle(&self, now: Instant) -> bool {
        let is_new = self.sent.is_none() && now < self.since + FIRST_CREDIT;
        self.state == LinkState::Attached && self.in_flight == 0 && !is_new
    }

    fn detach(&mut self, now: Instant) {
        self.state = LinkState::Detaching;
        self.since = now;
    }

    /// The peer gives credit from this count on. Counts of both sides wrap around.
    pub(super) fn give(&mut self, delivery_count: u32, credit: u32) {
        let end = delivery_count.wrapping_add(credit);
        let left = end.wrapping_sub(self.delivery_count);
        // Behind what was sent already, where the peer took some back.
        self.credit = if left > u32::MAX / 2 { 0 } else { left };
    }

    /// Uses up the credit without sending.
    fn drain(&mut self) {
        self.drains = false;
        self.delivery_count = self.delivery_count.wrapping_add(self.credit);
        self.credit = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NO: Room = Room::No { sent: None };

    fn look(links: &mut Links, address: &str, now: Instant) -> (Room, Option<Step>) {
        links.look(&address.into(), now)
    }

    fn attach(links: &mut Links, address: &str) -> u32 {
        let (_, Some(Step::Attach(handle))) = look(links, address, Instant::now()) else {
            panic!("no link is attached");
        };
        links.attached(handle, 100 + handle, Some(7));
        handle
    }

    #[test]
    fn a_link_sends_within_its_credit() {
        let mut links = Links::new(u32::MAX);
        let handle = attach(&mut links, "a");
        let room = |links: &mut Links| look(links, "a", Instant::now());
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
        let later = Instant::now() + FIRST_CREDIT;
        assert_eq!(look(&mut links, "a", later), (NO, None));
        links.sent(second, later);
        let third = |links: &mut Links| look(links, "c", later);
        assert_eq!(third(&mut links), (NO, Some(Step::Detach(first))));
        // While the peer has not answered, nothing more is asked for it.
        links.settled(second);
        assert_eq!(third(&mut links), (NO, None));
        assert_eq!(
            look(&mut links, "d", later),
            (NO, Some(Step::Detach(second)))
        );
        assert_eq!(links.next_in_queue(later), None);
        for (handle, address) in [(second, "c"), (first, "d")] {
            assert!(links.ended(handle).is_none());
            assert_eq!(
                links.next_in_queue(later),
                Some((handle, address.into())),
                "in the order in which they came"
            );
        }
        assert_eq!(links.next_in_queue(later), None);
    }

    /// Those that had lost theirs were asked for before others that had none yet, again and again.
    #[test]
    fn addresses_without_credit_do_not_starve_one_that_comes_behind_them() {
        let mut links = Links::new(1);
        let mut now = Instant::now();
        let addresses = ["a", "b", "c", "d", "good"];
        let mut had_one = HashSet::new();
        for _ in 0..4 {
            for address in addresses {
                let (_, step) = look(&mut links, address, now);
                match step {
                    Some(Step::Attach(handle)) => links.attached(handle, 100 + handle, None),
                    Some(Step::Detach(handle)) => {
                        assert!(links.ended(handle).is_none());
                        let (handle, address) = links.next_in_queue(now).unwrap();
                        links.attached(handle, 100 + handle, None);
                        had_one.insert(address);
                    }
                    None => {}
                }
            }
            now += FIRST_CREDIT;
        }
        assert!(had_one.contains("good"), "{had_one:?}");
    }

    #[test]
    fn a_link_without_credit_makes_room_before_one_that_has_some() {
        let mut links = Links::new(1);
        let (good, bad) = (attach(&mut links, "good"), attach(&mut links, "bad"));
        links.of_peer(100 + good).unwrap().1.give(0, 10);
        let later = Instant::now() + FIRST_CREDIT;
        look(&mut links, "bad", later);
        assert_eq!(look(&mut links, "c", later), (NO, Some(Step::Detach(bad))));
    }

    /// Thousands of attaches a second came of it, and good links had the same fate before they had
    /// any credit.
    #[test]
    fn links_without_credit_do_not_chase_each_other() {
        let mut links = Links::new(1);
        let now = Instant::now();
        let (first, _) = (attach(&mut links, "a"), attach(&mut links, "b"));
        assert_eq!(look(&mut links, "c", now), (NO, None));
        let later = now + 2 * FIRST_CREDIT;
        assert_eq!(
            look(&mut links, "c", later),
            (NO, Some(Step::Detach(first)))
        );
    }

    /// Nothing went to its address any more, also once the peer answered again.
    #[test]
    fn an_attach_without_an_answer_is_given_up() {
        let mut links = Links::new(3);
        let (began, limit) = (Instant::now(), Duration::from_secs(4));
        assert_eq!(look(&mut links, "a", began), (NO, Some(Step::Attach(0))));
        assert_eq!(links.late_at(limit), Some(began + limit));
        assert_eq!(links.give_up(limit, began), Some(Vec::new()));
        assert_eq!(links.give_up(limit, began + limit), Some(vec![0]));
        let again = began + limit;
        assert_eq!(look(&mut links, "a", again), (NO, Some(Step::Attach(1))));
        links.attached(1, 101, None);
        assert_eq!(links.late_at(limit), None);
        assert_eq!(links.give_up(limit, again + limit), Some(Vec::new()));
        // A peer that answers nothing at all is left.
        for handle in [2, 3] {
            let address = handle.to_string();
            let step = Some(Step::Attach(handle));
            assert_eq!(look(&mut links, &address, again), (NO, step));
        }
        let given_up = links.give_up(limit, again + limit);
        assert_eq!(given_up, Some(vec![2, 3]));
        assert_eq!(links.give_up(limit, again + 2 * limit), None);
    }
}
