//! Random histories of one destination's pipeline against a model of a store and of a lane:
//! crashes, outages, rejections, late and reordered verdicts. Time is a number that the history
//! moves.
//!
//! Checked in every history: I1 (nothing is lost), I3 (first deliveries of a key in order, repeats
//! are contiguous replays), I4 (repeats are bounded by the window; none where the broker keeps
//! progress), and that the machine comes to rest.

#![allow(clippy::unwrap_used)]

mod lane;
mod store;

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    time::Duration,
};

use posthaste_engine::{
    Backoff, Change, DeliveryPolicy, Due, FenceKind, Field, KeyOrder, Moment, OnDead, PageBuilder,
    Pipeline, PipelineLimits, Route, RouteAction, RouteMatch, Router, Routes, SideStep, SinkInfo,
    StoredEvent, StoredFields,
};
use proptest::prelude::*;
use uuid::Uuid;

use lane::ModelLane;
use store::{Model, ModelSide, place};

/// Numbers out of proptest's own seed, so that a failing history shrinks and replays.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        // splitmix64
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % sides
    }

    fn one_in(&mut self, sides: u64) -> bool {
        self.roll(sides) == 0
    }
}

/// Of events that are tried once, and then left behind, whatever the destination does with others.
const SKIPS: &str = "skips";

/// The topic is made from this. An event without it is refused before it is sent, whatever is in
/// flight.
const TYPE: Option<&str> = Some("made");

/// The topic of a place that takes nothing now and then.
const FULL: &str = "full";

fn event(seq: i64, topic: &str, made_from: Option<&str>, key: Option<&str>) -> StoredEvent {
    let mut texts = [None; 9];
    texts[Field::Topic as usize] = Some(topic);
    texts[Field::Key as usize] = key;
    texts[Field::Type as usize] = made_from;
    let id = Uuid::from_u128(u128::try_from(seq).unwrap());
    let fields = StoredFields {
        seq,
        id,
        occurred_at: 0,
        inserted_at: 0,
        slot: 0,
        texts,
        payload: None,
    };
    let mut page = PageBuilder::default();
    page.push(&fields, std::iter::empty()).unwrap();
    page.finish().remove(0)
}

/// One life of a relay: everything that a crash forgets.
struct Life {
    pipeline: Pipeline,
    lane: Option<ModelLane>,
    read_to: i64,
    side: Option<ModelSide>,
    /// The answer to a look for due copies, on its way: the side read goes on meanwhile.
    looked: Option<Due>,
}

impl Life {
    fn tell_the_lane(&mut self) {
        let caught_up = self.pipeline.take_caught_up();
        let stored = self.pipeline.take_behind_the_store();
        let Some(progress) = self.lane.as_mut().and_then(|lane| lane.progress.as_mut()) else {
            return;
        };
        for tickets in stored {
            progress.stored(&tickets);
        }
        if caught_up {
            progress.caught_up();
        }
    }
}

struct History {
    model: Model,
    order: KeyOrder,
    policy: DeliveryPolicy,
    delivered: Vec<StoredEvent>,
    crashes: usize,
    now: Moment,
    dice: Dice,
    /// Blocked keys that are kept in memory.
    kept: usize,
    window: usize,
    in_flight: usize,
}

impl History {
    fn life(&mut self) -> Life {
        let tick = Duration::from_millis(1);
        let backoff = Backoff {
            first: tick,
            max: 4 * tick,
            jitter: 0.25,
        };
        let limits = PipelineLimits {
            window_events: self.window,
            window_bytes: 1 << 20,
            batch_events: 5,
            batch_bytes: 1 << 20,
            retry: backoff,
            probe: backoff,
            blocked_keys_max: 100,
            blocked_keys_kept: self.kept,
            // So few that histories meet a broken destination.
            rejections_max: 3,
            advance_every: 2 * tick,
            settle: tick,
            poll_busy: tick,
            poll_idle: 4 * tick,
            due_every: 3 * tick,
        };
        let info = SinkInfo {
            kind: "model",
            batch_events_max: 4,
            batch_bytes_max: 1 << 20,
            in_flight_events_max: self.in_flight,
            event_bytes_max: None,
            requests_max: None,
            deduplication: None,
            key_order: self.order,
            fence: FenceKind::Timing,
            single_lane: true,
            parts: None,
        };
        let to = |topic: Option<&str>, policy: DeliveryPolicy| Route {
            matches: RouteMatch {
                topic: topic.map(str::to_owned),
                ..RouteMatch::default()
            },
            action: RouteAction::To(vec!["model".to_owned()]),
            attempts: policy.attempts,
            on_dead: Some(policy.on_dead),
        };
        let skips = DeliveryPolicy {
            attempts: Some(1),
            on_dead: OnDead::Skip,
        };
        let routes = Routes::new(vec![to(Some(SKIPS), skips), to(None, self.policy)]);
        let routes = routes.unwrap().for_destination("model", self.policy);
        let router = Router {
            routes,
            topic: Some("{type}".parse().unwrap()),
            key: None,
        };
        let markers = self.model.markers();
        let (kept, beyond) = markers.split_at(self.kept.min(markers.len()));
        let mut pipeline = Pipeline::new(limits, info, router, kept);
        pipeline.blocked_beyond(beyond.len());
        pipeline.pass_over(self.model.set_aside.iter().copied());
        Life {
            pipeline,
            lane: None,
            read_to: self.model.cursor,
            side: None,
            looked: None,
        }
    }

    /// One random step. `faults`: the destination may be away.
    fn step(&mut self, life: &mut Life, faults: bool) {
        life.tell_the_lane();
        let (now, p) = (self.now, &mut life.pipeline);
        let away = faults && (now.0.as_millis() / 40) % 3 == 1;
        // For longer than an outage lasts.
        let full = (faults && (now.0.as_millis() / 300) % 2 == 1).then_some(FULL);
        match self.dice.roll(8) {
            0 => {
                if let Some(budget) = p.next_read(now) {
                    let asks = p.asks_for_markers();
                    let page = self.model.read(&mut life.read_to, budget, &mut self.dice);
                    let keys = page.events.iter().filter_map(StoredEvent::key);
                    let marked = keys.filter(|key| asks && self.model.markers.contains_key(*key));
                    let marked = marked.map(str::to_owned).collect();
                    p.read_marked(page, &marked, now);
                }
            }
            1 => {
                if let Some(due) = life.looked.take() {
                    p.change_done(Some(due), false, now);
                } else if let Some(change) = p.next_change(now, 0.5) {
                    match self.change(change) {
                        None => p.change_done(None, false, now),
                        due => life.looked = due,
                    }
                }
            }
            2 => {
                if let Some(step) = p.next_side_step() {
                    self.side_step(life, step);
                }
            }
            3 => self.lane(life, away),
            4 => {
                if let (Some(lane), Some(batch)) = (&mut life.lane, p.take_batch(now)) {
                    let seen = lane.seen;
                    lane.queue
                        .extend(batch.into_iter().map(|record| (record, seen)));
                }
            }
            5 | 6 => {
                if let Some(lane) = &mut life.lane {
                    for _ in 0..self.dice.roll(4) {
                        let answers = (away, full);
                        lane.work(
                            &mut self.model,
                            &mut self.delivered,
                            answers,
                            &mut self.dice,
                        );
                    }
                    if self.dice.one_in(2) {
                        p.verdicts(lane.outcomes(), now, 0.5);
                    }
                }
            }
            _ => self.now = now.after(Duration::from_millis(self.dice.roll(3))),
        }
    }

    fn lane(&mut self, life: &mut Life, away: bool) {
        let (now, p) = (self.now, &mut life.pipeline);
        if p.wants_abort() {
            life.lane = None;
            p.lane_ended(now);
        } else if life.lane.is_none() && p.wants_lane(now) {
            if away {
                let target = "model".to_owned();
                let error = posthaste_engine::SinkError::Unavailable {
                    target,
                    reason: "away".into(),
                };
                p.lane_refused(&error, now, 0.5);
            } else {
                life.lane = Some(ModelLane::new(self.order, self.model.progress.as_ref()));
                p.lane_opened();
            }
        }
    }

    fn change(&mut self, change: Change) -> Option<Due> {
        match change {
            Change::Park(parkings) => self.model.park(&parkings),
            Change::Settle { id, settlement } => self.model.settle(id, &settlement),
            Change::Advance { up_to, .. } => {
                assert!(
                    place(&up_to) >= self.model.cursor,
                    "an advance never goes back"
                );
                self.model.cursor = place(&up_to);
            }
            Change::Report { .. } | Change::PutOff { .. } => {}
            Change::Due { limit } => return Some(self.model.due(limit)),
        }
        None
    }

    fn side_step(&mut self, life: &mut Life, step: SideStep) {
        match step {
            SideStep::Open(keys) => {
                let start = |key: String| (key.clone(), self.model.markers[&key]);
                life.side = Some(ModelSide::new(keys.into_iter().map(start).collect()));
                life.pipeline.side_opened();
            }
            SideStep::Read {
                left,
                budget,
                until,
            } => {
                let side = life.side.as_mut().unwrap();
                side.starts.retain(|key, _| !left.contains(key));
                let page = self.model.side_read(side, place(&until), budget);
                life.pipeline.side_read(page);
            }
            SideStep::Advance { left, at, .. } => {
                let side = life.side.as_mut().unwrap();
                side.starts.retain(|key, _| !left.contains(key));
                for key in side.starts.keys() {
                    let marker = self.model.markers.get_mut(key).unwrap();
                    *marker = place(&at).max(*marker);
                }
                life.pipeline.side_advanced();
            }
            SideStep::Join { keys, at } => {
                assert_eq!(
                    place(&at),
                    self.model.cursor,
                    "the main group stands where it joins"
                );
                for key in keys {
                    assert!(!self.model.holds(&key));
                    assert!(self.model.markers.remove(&key).is_some());
                }
                life.side = None;
                life.pipeline.side_joined(self.now);
            }
        }
    }

    fn run(&mut self, crash_every: u64) {
        let mut life = self.life();
        for _ in 0..3_000 {
            self.step(&mut life, true);
            if self.dice.one_in(crash_every) {
                self.crashes += 1;
                life = self.life();
            }
        }
        let mut steps = 0;
        while !self.at_rest(&life) {
            self.step(&mut life, false);
            // The operator lets everything that is dead try again, but for what can never be sent.
            self.model.parked.retain(|_, (event, _, dead)| {
                let skipped = *dead && event.text(Field::Type).is_none();
                self.model.skipped.extend(skipped.then(|| event.seq()));
                *dead = false;
                !skipped
            });
            steps += 1;
            assert!(steps < 400_000, "it does not come to rest");
        }
        assert_eq!(life.pipeline.blocked_keys(), 0);
    }

    fn at_rest(&self, life: &Life) -> bool {
        life.pipeline.is_drained()
            && usize::try_from(self.model.cursor).unwrap() == self.model.log.len()
            && self.model.parked.is_empty()
            && self.model.markers.is_empty()
    }

    fn check(&self) {
        let mut by_key: BTreeMap<String, Vec<i64>> = BTreeMap::new();
        for event in &self.delivered {
            let key = event
                .key()
                .map_or_else(|| format!("-{}", event.seq()), str::to_owned);
            by_key.entry(key).or_default().push(event.seq());
        }
        for event in &self.model.log {
            let key = event
                .key()
                .map_or_else(|| format!("-{}", event.seq()), str::to_owned);
            let delivered = by_key
                .get(&key)
                .is_some_and(|seqs| seqs.contains(&event.seq()));
            assert!(
                delivered || self.model.skipped.contains(&event.seq()),
                "I1: {event:?} is lost"
            );
        }
        for (key, seqs) in &by_key {
            let expected: Vec<i64> = self
                .model
                .log
                .iter()
                .filter(|event| event.key() == Some(key.as_str()))
                .map(StoredEvent::seq)
                .filter(|seq| seqs.contains(seq))
                .collect();
            let mut at: Option<usize> = None;
            for seq in seqs.iter().filter(|_| !key.starts_with('-')) {
                let index = expected.iter().position(|other| other == seq).unwrap();
                let next = at.map_or(0, |at| at + 1);
                // A replay goes on without what was skipped meanwhile.
                let hole = expected.get(next..index).unwrap_or_default();
                assert!(
                    hole.iter().all(|seq| self.model.skipped.contains(seq)),
                    "I3: key {key}: {seq} behind a hole in {:?}",
                    by_key[key]
                );
                at = Some(index);
            }
        }
        let repeats = self.delivered.len() - {
            let mut seqs: Vec<_> = self.delivered.iter().map(StoredEvent::seq).collect();
            seqs.sort_unstable();
            seqs.dedup();
            seqs.len()
        };
        if self.model.progress.is_some() {
            assert_eq!(repeats, 0, "the broker's progress suppresses every repeat");
        }
        // A crash, and each lane that is aborted with something in flight, repeats at most a
        // window, and what a side read and the retries had under way.
        let faults = self.crashes + 3_000 / 40;
        assert!(
            repeats <= faults * (self.window + 2 * self.in_flight),
            "I4: {repeats} repeats"
        );
    }
}

fn cases() -> u32 {
    if posthaste_testkit::long_form() {
        10_000
    } else {
        400
    }
}

/// One history, as numbers.
struct Case {
    seed: u64,
    pipelined: bool,
    transactional: bool,
    skip: bool,
    /// Some events of a key are skipped, others not.
    mixed: bool,
    /// Some events cannot be sent.
    unmakeable: bool,
    /// Some go to a place that takes nothing now and then.
    full: bool,
    attempts: u32,
    events: i64,
    keys: u64,
    crash_every: u64,
    kept: usize,
    window: usize,
    in_flight: usize,
}

impl Case {
    fn holds(&self) {
        let mut dice = Dice(self.seed);
        let mut poison = HashMap::new();
        let log = (1..=self.events)
            .map(|seq| {
                if dice.one_in(12) {
                    poison.insert(seq, u32::try_from(dice.roll(5)).unwrap());
                }
                let key = format!("k{}", dice.roll(self.keys));
                let topic = if self.mixed && dice.one_in(2) {
                    SKIPS
                } else {
                    "t"
                };
                let made_from = TYPE.filter(|_| !(self.unmakeable && dice.one_in(8)));
                let is_full = self.full && !self.transactional && dice.one_in(2);
                let made_from = made_from.map(|made| if is_full { FULL } else { made });
                event(seq, topic, made_from, (!dice.one_in(10)).then_some(&*key))
            })
            .collect();
        let mut history = History {
            model: Model {
                log,
                cursor: 0,
                markers: BTreeMap::new(),
                parked: BTreeMap::new(),
                next_parked: 1,
                poison,
                skipped: Vec::new(),
                set_aside: Vec::new(),
                progress: self.transactional.then(BTreeSet::new),
            },
            order: match self.pipelined {
                true => KeyOrder::Pipelined,
                false => KeyOrder::OneAtATime,
            },
            policy: DeliveryPolicy {
                attempts: Some(self.attempts),
                on_dead: if self.skip {
                    OnDead::Skip
                } else {
                    OnDead::Block
                },
            },
            delivered: Vec::new(),
            crashes: 0,
            now: Moment(Duration::from_secs(1)),
            dice,
            kept: self.kept,
            window: self.window,
            in_flight: self.in_flight,
        };
        history.run(self.crash_every);
        history.check();
    }
}

/// Accepted, but the relay crashed before it heard so; its next life is refused as often as it may
/// be.
#[test]
fn what_is_skipped_may_have_come_before() {
    let case = Case {
        seed: 8,
        pipelined: false,
        transactional: false,
        skip: true,
        mixed: false,
        unmakeable: false,
        full: false,
        attempts: 2,
        events: 40,
        keys: 4,
        crash_every: 60,
        kept: 100,
        window: 12,
        in_flight: 9,
    };
    case.holds();
}

/// It is refused before it is sent, and the lane ends over what is in flight.
#[test]
fn what_goes_before_an_event_that_cannot_be_sent_is_delivered() {
    let case = Case {
        seed: 15_111_518_297_119_868_401,
        pipelined: true,
        transactional: false,
        skip: false,
        mixed: false,
        unmakeable: true,
        full: false,
        attempts: 2,
        events: 111,
        keys: 5,
        crash_every: 60,
        kept: 0,
        window: 12,
        in_flight: 9,
    };
    case.holds();
}

/// While it waits to be parked, the main group has events of its key in the window.
#[test]
fn a_key_of_which_a_side_read_skips_an_event_comes_back() {
    let case = Case {
        seed: 2_163_950_609_055_345_728,
        pipelined: false,
        transactional: false,
        skip: true,
        mixed: true,
        unmakeable: false,
        full: false,
        attempts: 2,
        events: 91,
        keys: 3,
        crash_every: 100_000,
        kept: 0,
        window: 60,
        in_flight: 1,
    };
    case.holds();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), ..ProptestConfig::default() })]

    #[test]
    fn every_history_keeps_order_and_loses_nothing(
        seed: u64,
        pipelined: bool,
        transactional: bool,
        skip: bool,
        mixed: bool,
        unmakeable: bool,
        full: bool,
        attempts in 1..4_u32,
        events in 1..120_i64,
        keys in 1..6_u64,
        crash_every in prop::sample::select(vec![60, 300, 100_000_u64]),
        kept in prop::sample::select(vec![0, 1, 100_usize]),
        window in prop::sample::select(vec![12, 60_usize]),
        in_flight in prop::sample::select(vec![1, 9_usize]),
    ) {
        let case =
            Case {
                seed, pipelined, transactional, skip, mixed, unmakeable, full, attempts, events,
                keys, crash_every, kept, window, in_flight,
            };
        case.holds();
    }
}
