//! A window beside a list that does the same in the plainest way, through random histories.

use std::collections::BTreeSet;

use proptest::prelude::*;
use uuid::Uuid;

use super::*;
use crate::{Field, PageBuilder, RejectionKind, StoredFields};

/// Where the list has an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Is {
    Ready,
    Sent,
    Failed,
    Parking,
    Done(bool),
}

struct Listed {
    key: Option<u8>,
    is: Is,
    maybe_sent: bool,
}

struct PageListed {
    number: usize,
    /// The first ticket behind it.
    to: usize,
    /// Whether its end alone is worth storing.
    wanted: bool,
    /// The page whose end it takes: the last of the empty ones behind it.
    end: usize,
}

struct Trial {
    order: KeyOrder,
    window: Window,
    /// By ticket; the ticket is the `seq` too.
    list: Vec<Listed>,
    pages: VecDeque<PageListed>,
    pages_made: usize,
    /// Tickets below are taken out.
    taken: usize,
    finished: Vec<i64>,
}

fn page(number: usize, keys: impl Iterator<Item = Option<u8>>, first: usize, wanted: bool) -> Page {
    let mut page = PageBuilder::default();
    for (seq, key) in (first..).zip(keys) {
        let key = key.map(|key| key.to_string());
        let mut texts = [None; 9];
        texts[Field::Key as usize] = key.as_deref();
        let fields = StoredFields {
            seq: i64::try_from(seq).unwrap(),
            id: Uuid::nil(),
            occurred_at: 0,
            inserted_at: 0,
            slot: 0,
            texts,
            payload: None,
        };
        page.push(&fields, std::iter::empty()).unwrap();
    }
    Page {
        joinable: false,
        store_end: wanted,
        ..Page::up_to(Arc::new(number), page.finish())
    }
}

impl Trial {
    fn new(order: KeyOrder) -> Self {
        Self {
            order,
            window: Window::new(order, 0),
            list: Vec::new(),
            pages: VecDeque::new(),
            pages_made: 0,
            taken: 0,
            finished: Vec::new(),
        }
    }

    fn tickets(&self, wanted: impl Fn(Is) -> bool) -> Vec<usize> {
        let tickets = self.taken..self.list.len();
        tickets
            .filter(|&ticket| wanted(self.list[ticket].is))
            .collect()
    }

    fn one(&self, is: Is, pick: u8) -> Option<usize> {
        let tickets = self.tickets(|own| own == is);
        (!tickets.is_empty()).then(|| tickets[usize::from(pick) % tickets.len()])
    }

    /// Whether nothing of its key before it is open.
    fn is_first_open(&self, ticket: usize) -> bool {
        let key = self.list[ticket].key;
        key.is_none()
            || !self.list[self.taken..ticket]
                .iter()
                .any(|other| other.key == key && !matches!(other.is, Is::Done(_)))
    }

    fn step(&mut self, what: u8, pick: u8) {
        match what % 12 {
            0 | 1 => self.push(pick),
            2..=4 => self.send(pick),
            5 | 6 => {
                if let Some(ticket) = self.one(Is::Sent, pick) {
                    self.finish(ticket, true);
                }
            }
            7 => {
                if let Some(ticket) = self.one(Is::Sent, pick) {
                    self.list[ticket].is = Is::Failed;
                    let rejection = Rejection {
                        kind: RejectionKind::Invalid,
                        reason: String::new(),
                    };
                    self.entry(ticket).state = State::Failed(Box::new(rejection));
                }
            }
            8 => self.park(pick),
            9 => {
                if let Some(ticket) = self.one(Is::Sent, pick) {
                    let unknown = pick.is_multiple_of(2);
                    self.list[ticket].is = Is::Ready;
                    self.list[ticket].maybe_sent |= unknown;
                    self.window.unsend(ticket as u64, unknown);
                }
            }
            10 if pick < 60 => {
                self.window.unsend_all();
                for ticket in self.tickets(|is| is == Is::Sent) {
                    self.list[ticket].is = Is::Ready;
                    self.list[ticket].maybe_sent = true;
                }
            }
            _ => self.take(),
        }
        self.compare();
    }

    fn push(&mut self, pick: u8) {
        let first = self.list.len();
        let count = usize::from(pick % 4);
        let key = |at: usize| match (usize::from(pick) + at) % 4 {
            0 => None,
            key => u8::try_from(key).ok(),
        };
        let page = page(self.pages_made, (0..count).map(key), first, pick > 200);
        let (number, wanted) = (self.pages_made, pick > 200);
        match self.pages.back_mut() {
            Some(last) if count == 0 => {
                last.end = number;
                last.wanted |= wanted;
            }
            _ => self.pages.push_back(PageListed {
                number,
                to: first + count,
                wanted,
                end: number,
            }),
        }
        self.pages_made += 1;
        // Some are no destination's, or their key is blocked.
        let passed = |at: usize| match (usize::from(pick) / 4 + at) % 9 {
            0 => Some(true),
            1 => Some(false),
            _ => None,
        };
        let mut at = 0;
        let (events, _) = self.window.push(page, |_| {
            at += 1;
            passed(at - 1).map(|finished| State::Done { finished })
        });
        assert_eq!(events, count);
        self.list.extend((0..count).map(|at| Listed {
            key: key(at),
            is: passed(at).map_or(Is::Ready, Is::Done),
            maybe_sent: false,
        }));
    }

    /// The events that may be sent are offered, and no others: of a key always the first, and with
    /// one at a time none beside another.
    fn send(&mut self, pick: u8) {
        for _ in 0..pick % 4 {
            let ready = self.tickets(|is| is == Is::Ready);
            let offered = self.window.peek_ready();
            let offered = offered.map(|(ticket, _)| usize::try_from(ticket).unwrap());
            match (self.order, offered) {
                (KeyOrder::Pipelined, _) => assert_eq!(offered, ready.first().copied()),
                (KeyOrder::OneAtATime, Some(ticket)) => {
                    assert!(
                        ready.contains(&ticket) && self.is_first_open(ticket),
                        "{ticket}"
                    );
                }
                (KeyOrder::OneAtATime, None) => {
                    assert!(!ready.into_iter().any(|ticket| self.is_first_open(ticket)));
                }
            }
            let Some(ticket) = offered else { return };
            self.window.pop_ready();
            let repeats = self.window.sent(ticket as u64, u64::from(pick));
            assert_eq!(repeats, self.list[ticket].maybe_sent);
            self.list[ticket].is = Is::Sent;
        }
    }

    fn entry(&mut self, ticket: usize) -> &mut Entry {
        self.window.entry_mut(ticket as u64).unwrap()
    }

    fn finish(&mut self, ticket: usize, finished: bool) {
        self.window.finish(ticket as u64, finished);
        self.list[ticket].is = Is::Done(finished);
    }

    /// An event is parked when the fate of every earlier one of its key is known.
    fn park(&mut self, pick: u8) {
        let parkable: BTreeSet<usize> = self
            .window
            .parkable()
            .into_iter()
            .map(|ticket| usize::try_from(ticket).unwrap())
            .collect();
        let expected = self.tickets(|is| is == Is::Failed);
        let expected = expected
            .into_iter()
            .filter(|&ticket| self.is_first_open(ticket));
        assert_eq!(parkable, expected.collect());
        for ticket in parkable {
            self.list[ticket].is = Is::Parking;
            self.entry(ticket).state = State::Parking;
        }
        if let Some(ticket) = self.one(Is::Parking, pick) {
            self.finish(ticket, false);
        }
    }

    /// All done events at the front are stored, and no others.
    fn take(&mut self) {
        let done = |listed: &&Listed| matches!(listed.is, Is::Done(_));
        let events = self.list[self.taken..].iter().take_while(done).count();
        let to = self.taken + events;
        let mut ended = None;
        let mut wanted = events > 0;
        while let Some(page) = self.pages.pop_front_if(|page| page.to <= to) {
            ended = Some((page.end, page.to));
            wanted |= page.wanted;
        }
        let expected = match ended {
            Some((number, end)) if end == to || events == 0 => Some((number, None)),
            _ if events > 0 => Some((self.pages[0].number, Some(i64::try_from(to - 1).unwrap()))),
            _ => None,
        };
        let passed = self.window.take_passed();
        let up_to = passed.as_ref().map(|passed| {
            let page = passed.up_to.base::<usize>().unwrap();
            (*page, passed.up_to.seq())
        });
        assert_eq!(up_to, expected);
        if let Some(passed) = passed {
            assert_eq!((passed.events, passed.wanted), (events, wanted));
            self.finished.extend(passed.finished);
        }
        self.taken = to;
    }

    fn compare(&mut self) {
        let open = |is| !matches!(is, Is::Done(_));
        assert_eq!(self.window.first(), self.taken as u64);
        assert_eq!(self.window.is_done(), self.tickets(open).is_empty());
        assert_eq!(self.window.has_sent(), self.one(Is::Sent, 0).is_some());
        let failed = self.tickets(|is| is == Is::Failed).len();
        let states = self.window.entries.iter().map(|entry| &entry.state);
        let is_failed = |state: &&State| matches!(state, State::Failed(_));
        assert_eq!(states.filter(is_failed).count(), failed);
        if let Some(ticket) = self.tickets(open).first() {
            let at = self.window.cursor_at(*ticket as u64).unwrap();
            let page = self.pages.iter().find(|page| *ticket < page.to).unwrap();
            assert_eq!(at.base::<usize>(), Some(&page.number));
            assert_eq!(at.seq(), Some(i64::try_from(*ticket).unwrap()));
        }
    }

    /// After the last fault everything is sent, answered and stored.
    fn drain(&mut self) {
        for _ in 0..4 * self.list.len() + 4 {
            self.send(3);
            while let Some(ticket) = self.one(Is::Sent, 0) {
                self.finish(ticket, true);
            }
            self.park(0);
            while let Some(ticket) = self.one(Is::Parking, 0) {
                self.finish(ticket, false);
            }
            self.take();
            self.compare();
        }
        assert!(self.window.is_empty(), "{:?}", self.window);
        let finished = (0_i64..)
            .zip(&self.list)
            .filter(|(_, listed)| listed.is == Is::Done(true));
        let finished: Vec<i64> = finished.map(|(seq, _)| seq).collect();
        assert_eq!(self.finished, finished, "each once, in order");
    }
}

proptest! {
    #[test]
    fn a_window_does_what_the_plain_list_does(
        pipelined: bool,
        steps in prop::collection::vec(any::<(u8, u8)>(), 0..200),
    ) {
        let order = if pipelined { KeyOrder::Pipelined } else { KeyOrder::OneAtATime };
        let mut trial = Trial::new(order);
        for (what, pick) in steps {
            trial.step(what, pick);
        }
        trial.drain();
    }
}

#[test]
fn polls_of_an_outage_are_not_kept_while_an_event_waits() {
    let mut trial = Trial::new(KeyOrder::OneAtATime);
    trial.push(1);
    for _ in 1..1_000 {
        trial.push(0);
        trial.compare();
    }
    assert_eq!(trial.window.pages.len(), 1);
    trial.drain();
}

#[test]
fn failed_events_are_counted_until_they_are_being_parked() {
    let mut window = Window::new(KeyOrder::Pipelined, 0);
    window.push(
        page(0, [None, Some(1), Some(1)].into_iter(), 0, false),
        |_| None,
    );
    for number in 0..3 {
        let rejection = Rejection {
            kind: RejectionKind::Invalid,
            reason: String::new(),
        };
        window.fail(number, rejection);
    }
    assert_eq!((window.failed_events(), window.parkable()), (3, vec![0, 1]));
    let to_park = window.begin_to_park(1).unwrap();
    assert_eq!((to_park.event.seq(), window.failed_events()), (1, 2));
    assert!(window.begin_to_park(1).is_none(), "it is being parked");
    assert_eq!(window.failed_events(), 2);
    window.finish(1, true);
    assert_eq!(window.parkable(), [0, 2]);
}
