//! Random histories: groups at random places of a log, brought to one by the real state machine,
//! with a store that takes only some of the advances.

use std::collections::BTreeMap;

use rand::{Rng, SeedableRng, rngs::SmallRng, seq::IndexedRandom};

use super::{super::read_plan::ReadPlan, *};

const PARTITIONS: u16 = 8;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Event {
    seq: i64,
    xid: u64,
    partition: u16,
}

/// Events that were written, and snapshots in the order in which they were taken.
struct Log {
    events: Vec<Event>,
    snapshots: Vec<Arc<Snapshot>>,
}

impl Log {
    fn random(random: &mut SmallRng) -> Self {
        let (mut events, mut snapshots, mut open) = (Vec::new(), Vec::new(), Vec::new());
        let (mut seq, mut next_xid, mut completed) = (0, 1, 0);
        for _ in 0..random.random_range(20..80) {
            match random.random_range(0..4) {
                0 => {
                    open.push(next_xid);
                    next_xid += 1;
                }
                1 => {
                    if let Some(&xid) = open.choose(random) {
                        seq += 1;
                        events.push(Event {
                            seq,
                            xid,
                            partition: random.random_range(0..PARTITIONS),
                        });
                    }
                }
                2 if !open.is_empty() => {
                    let done = open.swap_remove(random.random_range(0..open.len()));
                    completed = completed.max(done);
                }
                _ => {
                    let xmax = completed + 1;
                    let mut xip: Vec<u64> = open.iter().copied().filter(|x| *x < xmax).collect();
                    xip.sort_unstable();
                    snapshots.push(Arc::new(Snapshot::new(xmax, xip)));
                }
            }
        }
        snapshots.push(Arc::new(Snapshot::new(next_xid, Vec::new())));
        Self { events, snapshots }
    }

    fn sequence(&self) -> i64 {
        self.events.last().map_or(0, |event| event.seq)
    }

    /// The highest floors that hold, or lower ones.
    fn floors(&self, low: &Snapshot, random: &mut SmallRng) -> Floors {
        let least = |is: &dyn Fn(u64) -> bool| {
            let mut events = self.events.iter();
            events
                .find(|e| is(e.xid))
                .map_or(self.sequence(), |e| e.seq - 1)
        };
        let floor_min = least(&|xid| !low.sees(xid));
        let floor = least(&|xid| xid > low.xip().last().copied().unwrap_or(0) && !low.sees(xid));
        let floor_min = random.random_range(0..=floor_min);
        Floors {
            floor: random.random_range(floor_min..=floor.max(floor_min)),
            floor_min,
        }
    }

    fn assert_floors(&self, position: &Position) {
        let Floors { floor, floor_min } = position.floors;
        assert!(floor_min <= floor);
        let low = &position.low;
        for event in self.events.iter().filter(|event| !low.sees(event.xid)) {
            assert!(event.seq > floor_min, "{event:?} under {position:?}");
            let is_new = !low.xip().contains(&event.xid);
            assert!(!is_new || event.seq > floor, "{event:?} under {position:?}");
        }
    }

    fn random_position(&self, random: &mut SmallRng) -> Position {
        let first = random.random_range(0..self.snapshots.len());
        let low = Arc::clone(&self.snapshots[first]);
        let floors = self.floors(&low, random);
        let within = random.random_bool(0.5).then(|| {
            let high = random.random_range(first..self.snapshots.len());
            let seq = random.random_range(floors.floor_min..=self.sequence());
            (Arc::clone(&self.snapshots[high]), seq)
        });
        Position {
            low,
            within,
            floors,
        }
    }

    /// The events of a partition that a position has passed.
    fn passed(&self, position: &Position, partition: u16) -> Vec<Event> {
        let has = |event: &&Event| {
            position.low.sees(event.xid)
                || position
                    .within
                    .as_ref()
                    .is_some_and(|(high, last)| high.sees(event.xid) && event.seq <= *last)
        };
        let events = self.events.iter().filter(|e| e.partition == partition);
        events.filter(has).copied().collect()
    }

    fn read(&self, request: &Request, slots: Option<&Slots>, size: usize) -> (Answer, Vec<Event>) {
        let Request::Page {
            low,
            high,
            last,
            until,
        } = request
        else {
            panic!("{request:?}");
        };
        let is_wanted = |e: &&Event| {
            e.seq > *last
                && e.seq <= *until
                && !low.sees(e.xid)
                && high.sees(e.xid)
                && slots.is_none_or(|slots| slots.mask[0] >> e.partition & 1 == 1)
        };
        let mut events: Vec<Event> = self.events.iter().filter(is_wanted).copied().collect();
        let more = events.len() > size;
        events.truncate(size);
        let answer = Answer {
            snapshot: self.snapshots.last().unwrap().as_ref().clone(),
            sequence: self.sequence(),
            last_row: events.last().map(|event| event.seq),
            more,
        };
        (answer, events)
    }
}

/// The database: each partition's row, each row's place.
#[derive(Clone)]
struct Stored {
    partitions: BTreeMap<u16, i64>,
    rows: BTreeMap<i64, Position>,
}

impl Stored {
    fn random(log: &Log, random: &mut SmallRng) -> Self {
        let count = random.random_range(2..6);
        let mut rows: BTreeMap<i64, Position> = BTreeMap::new();
        for id in 10..10 + count {
            let known = rows.values().next().cloned();
            let position = match known {
                Some(known) if random.random_bool(0.2) => known,
                _ => log.random_position(random),
            };
            rows.insert(id, position);
        }
        let partitions = (0..PARTITIONS).map(|partition| {
            let spare = i64::from(partition);
            let row = if spare < count {
                spare
            } else {
                random.random_range(0..count)
            };
            (partition, 10 + row)
        });
        Self {
            partitions: partitions.collect(),
            rows,
        }
    }

    fn course(&self, leaf_bits: u8) -> ReadPlan {
        let mut groups = self.rows.iter().map(|(&id, position)| {
            let mut partitions = Partitions::none_of(PARTITIONS).unwrap();
            for (&partition, _) in self.partitions.iter().filter(|(_, row)| **row == id) {
                partitions.insert(partition);
            }
            Group {
                row: GroupRow {
                    ids: vec![id],
                    position: position.clone(),
                },
                partitions,
            }
        });
        let first = groups.next().unwrap();
        ReadPlan::restore(leaf_bits, None, first, groups.collect(), 0)
    }

    /// Stores as the statement does.
    fn store(&mut self, stored: &super::super::read_plan::Stored) {
        for (gone, rest) in &stored.merged {
            assert!(self.rows.remove(gone).is_some() && self.rows.contains_key(rest));
            for row in self.partitions.values_mut().filter(|row| *row == gone) {
                *row = *rest;
            }
        }
        for (id, position) in &stored.places {
            *self.rows.get_mut(id).expect("a row that is there") = position.clone();
        }
    }

    fn position(&self, partition: u16) -> &Position {
        &self.rows[&self.partitions[&partition]]
    }
}

/// Brings groups to one and answers how often an advance was stored in between.
fn converge(seed: u64) -> u32 {
    let mut random = SmallRng::seed_from_u64(seed);
    let log = Log::random(&mut random);
    let mut stored = Stored::random(&log, &mut random);
    let mut course = stored.course(random.random_range(1..5));
    let mut passed: Vec<Vec<Event>> = (0..PARTITIONS)
        .map(|partition| log.passed(stored.position(partition), partition))
        .collect();
    let mut advances = 0;
    loop {
        let (request, slots) = course.request();
        if slots.is_none() {
            break;
        }
        let (answer, events) = log.read(&request, slots.as_deref(), random.random_range(1..4));
        let step = course.answer(request, answer).unwrap();
        let (place, mut at) = (step.place, None);
        let stop_at = random.random_range(0..=events.len());
        for (number, event) in events.iter().enumerate() {
            let done = &mut passed[usize::from(event.partition)];
            assert!(!done.contains(event), "{event:?} comes twice");
            let keeps_order = |other: &Event| other.seq < event.seq || other.xid != event.xid;
            assert!(done.iter().all(keeps_order), "{event:?} comes late");
            done.push(*event);
            if number + 1 == stop_at {
                at = Some((Some(event.seq), passed.clone()));
            }
        }
        // Some places are stored, and of these some inside a page.
        if random.random_bool(0.5) {
            let (seq, passed) = at.unwrap_or_else(|| (None, passed.clone()));
            let change = course.advance(&place, seq).expect("it goes on");
            stored.store(&change);
            course.advanced(change);
            advances += 1;
            for partition in 0..PARTITIONS {
                let mut expected = passed[usize::from(partition)].clone();
                expected.sort_unstable();
                let position = stored.position(partition);
                assert_eq!(
                    log.passed(position, partition),
                    expected,
                    "{partition}: {position:?}"
                );
                log.assert_floors(position);
            }
        }
    }
    // All are at one place, and nothing that it has passed was left out.
    let sweep = course.request().0;
    let (low, within) = match &sweep {
        Request::Poll { low, .. } => (low, None),
        Request::Page {
            low, high, last, ..
        } => (low, Some((Arc::clone(high), *last))),
    };
    let floors = Floors {
        floor: 0,
        floor_min: 0,
    };
    let end = Position {
        low: Arc::clone(low),
        within,
        floors,
    };
    for (partition, mut events) in (0..).zip(passed) {
        events.sort_unstable();
        assert_eq!(log.passed(&end, partition), events);
    }
    advances
}

#[test]
fn groups_come_to_one_place_and_every_place_between_can_be_stored() {
    let mut advances = 0;
    for seed in 0..20_000 {
        let trial = std::panic::catch_unwind(|| converge(seed));
        advances += trial.unwrap_or_else(|_| panic!("seed {seed}"));
    }
    assert!(advances > 10_000, "{advances}");
}

fn position(low: &Snapshot, within: Option<(&Snapshot, i64)>, floor_min: i64) -> Position {
    Position {
        low: Arc::new(low.clone()),
        within: within.map(|(high, last)| (Arc::new(high.clone()), last)),
        floors: Floors {
            floor: floor_min,
            floor_min,
        },
    }
}

fn group(id: i64, partition: u16, position: Position) -> Group {
    let mut partitions = Partitions::none_of(PARTITIONS).unwrap();
    partitions.insert(partition);
    Group {
        row: GroupRow {
            ids: vec![id],
            position,
        },
        partitions,
    }
}

#[test]
fn groups_in_one_difference_meet_inside_it() {
    let (low, high) = (Snapshot::new(5, vec![]), Snapshot::new(90, vec![]));
    let behind = group(2, 0, position(&low, Some((&high, 40)), 10));
    let ahead = group(1, 1, position(&low, Some((&high, 60)), 10));
    let mut course = ReadPlan::restore(20, None, behind, vec![ahead], 99);
    let (request, slots) = course.request();
    assert!(
        matches!(
            request,
            Request::Page {
                last: 40,
                until: 60,
                ..
            }
        ),
        "{request:?}"
    );
    assert_eq!(slots.unwrap().mask, [1]);
    let answer = Answer {
        snapshot: high,
        sequence: 99,
        last_row: None,
        more: false,
    };
    let step = course.answer(request, answer).unwrap();
    assert!(step.wants_advance && step.unfinished && !step.place.is_joinable());
    let change = course.advance(&step.place, None).unwrap();
    assert_eq!(
        (&change.merged[..], change.places.len()),
        (&[(2, 1)][..], 1)
    );
    // From there on they are read together.
    let (request, slots) = course.request();
    assert!(
        matches!(request, Request::Page { last: 60, .. }),
        "{request:?}"
    );
    assert!(slots.is_none());
}

#[test]
fn what_is_known_of_a_place_is_kept_when_another_group_is_there() {
    let low = Snapshot::new(9, vec![4]);
    let groups = [
        group(1, 0, position(&low, None, 3)),
        group(2, 1, position(&low, None, 7)),
    ];
    let [first, second] = groups;
    let course = ReadPlan::restore(20, None, first, vec![second], 99);
    let Request::Poll { floor, .. } = course.request().0 else {
        panic!("{:?}", course.request());
    };
    assert_eq!(floor, 7);
    assert!(course.is_split() && course.wants_advance());
}
