//! Parts of a destination that take nothing, or answer nothing, beside others.

use super::*;

/// Both queues behind an exchange are sent what one of them refuses, so that each attempt repeats
/// it in the other.
#[test]
fn a_full_queue_is_tried_with_one_event_each_time_and_all_others_are_delivered() {
    let mut pipeline = pipeline_with(KeyOrder::OneAtATime);
    let mut now = Moment(Duration::from_secs(1));
    pipeline.next_read(now).unwrap();
    let topic = |seq| if seq <= 2_000 { "full" } else { "healthy" };
    pipeline.read(page_of(1..=2_005, 2_005, topic), now);
    let attempts = RefCell::new(Vec::new());
    let full = |record: &Record| {
        if record.topic() == "healthy" {
            return Outcome::accepted();
        }
        attempts.borrow_mut().push(record.event().seq());
        Outcome::later("a queue is full")
    };
    // The first lane had a batch before anybody knew.
    assert_eq!(deliver(&mut pipeline, now, 1, full), 0);
    assert_eq!(pipeline.counts().accepted, 5);
    attempts.borrow_mut().clear();
    now = now.after(Duration::from_secs(1));
    deliver(&mut pipeline, now, 50, full);
    let tried = attempts.take();
    // Each tenth of a second here.
    assert!(
        (300..=500).contains(&tried.len()),
        "{} were tried",
        tried.len()
    );
    let different: BTreeSet<i64> = tried.iter().copied().collect();
    assert_eq!(different.len(), tried.len());
    // Later events that do not go there are not held up.
    now = now.after(Duration::from_secs(50));
    pipeline.next_read(now).unwrap();
    pipeline.read(page_of(2_006..=2_100, 10_000, topic), now);
    deliver(&mut pipeline, now, 2, full);
    assert_eq!(pipeline.counts().accepted, 100);
    now = now.after(Duration::from_secs(2));
    deliver(&mut pipeline, now, 2, |_| Outcome::accepted());
    assert_eq!(pipeline.counts().accepted, 2_100);
}

/// Under one topic some go to the full queue and some do not, as by an exchange that looks at
/// headers.
#[test]
pub(super) fn events_of_a_full_queues_topic_that_do_not_go_there_have_their_turn() {
    let mut pipeline = pipeline_with(KeyOrder::OneAtATime);
    let now = Moment(Duration::from_secs(1));
    pipeline.next_read(now).unwrap();
    pipeline.read(page(1..=400, 400), now);
    deliver(&mut pipeline, now, 60, |record| {
        match record.event().seq() {
            1..=200 => Outcome::later("a queue is full"),
            _ => Outcome::accepted(),
        }
    });
    assert_eq!(pipeline.counts().accepted, 200);
}

/// The follower of what is held back goes to another topic, and must not overtake it.
#[test]
pub(super) fn what_follows_in_its_key_waits_behind_what_is_held_back() {
    for order in [KeyOrder::Pipelined, KeyOrder::OneAtATime] {
        let mut pipeline = pipeline_with(order);
        let now = Moment(Duration::from_secs(1));
        pipeline.next_read(now).unwrap();
        let topic = |seq| if seq <= 10 { "full" } else { "healthy" };
        pipeline.read(page_of(1..=30, 10, topic), now);
        deliver(&mut pipeline, now, 60, |record| match record.topic() {
            "full" => Outcome::later("a queue is full"),
            _ => Outcome::accepted(),
        });
        assert_eq!(pipeline.counts().accepted, 0, "{order:?}");
    }
}

/// A new event each second keeps the destination busy, and what it refused is tried all the same.
#[test]
fn a_queue_that_has_room_again_is_served_beside_others() {
    let mut pipeline = pipeline_with(KeyOrder::OneAtATime);
    let mut now = Moment(Duration::from_secs(1));
    let topic = |seq| if seq <= 100 { "full" } else { "healthy" };
    pipeline.next_read(now).unwrap();
    pipeline.read(page_of(1..=100, 100, topic), now);
    for second in 0..20 {
        deliver(&mut pipeline, now, 1, |record| match record.topic() {
            "full" if second < 10 => Outcome::later("a queue is full"),
            _ => Outcome::accepted(),
        });
        now = now.after(Duration::from_secs(1));
        pipeline.next_read(now).unwrap();
        let next = 101 + second;
        pipeline.read(page_of(next..=next, 1_000, topic), now);
    }
    assert_eq!(pipeline.counts().accepted, 119);
}

/// Events whose topic takes others all the same.
#[test]
pub(super) fn keys_that_stay_unanswered_leave_the_window_and_are_at_fault_in_the_end() {
    let mut pipeline = pipeline_with(KeyOrder::OneAtATime);
    let mut now = Moment(Duration::from_secs(1));
    let answer = |record: &Record| {
        let seq = record.event().seq();
        let is_silent = (1..=100).contains(&(seq % 1_000));
        assert!(
            seq <= 100 || !is_silent,
            "{seq} overtook the first of its key"
        );
        Some(match is_silent {
            true => Outcome::silent("no answer"),
            false => Outcome::accepted(),
        })
    };
    pipeline.next_read(now).unwrap();
    pipeline.read(page(1..=2_000, 1_000), now);
    let mut copies = Vec::new();
    let changes = deliver_with(&mut pipeline, &mut copies, now, 100, answer);
    assert_eq!(pipeline.counts().accepted, 1_800, "all others");
    assert_eq!(pipeline.blocked_keys(), 100);
    assert_eq!(settlements(&changes), [""; 0]);
    // Attempts in a row use up nothing, but for the fifth.
    let mut kinds = Vec::new();
    for round in 0..6 {
        now = now.after(Duration::from_secs(100));
        pipeline.next_read(now).unwrap();
        let other = 2_101 + round;
        pipeline.read(page(other..=other, 1_000), now);
        let mut copies = copies_of(1..=1);
        let changes = deliver_with(&mut pipeline, &mut copies, now, 10, answer);
        kinds.extend(settlements(&changes).into_iter().map(str::to_owned));
    }
    let (put_off, at_fault) = ("not_now", "fails_alone");
    assert_eq!(
        kinds,
        [put_off, put_off, put_off, at_fault, put_off, put_off]
    );
}

/// A quorum queue without its majority.
#[test]
pub(super) fn a_topic_that_leaves_all_unanswered_is_held_back_and_uses_up_no_attempt() {
    let mut pipeline = pipeline_with(KeyOrder::OneAtATime);
    let mut now = Moment(Duration::from_secs(1));
    let topic = |seq| if seq <= 2_000 { "silent" } else { "healthy" };
    let sent = RefCell::new(0);
    let answer = |record: &Record| match record.topic() {
        "silent" => {
            *sent.borrow_mut() += 1;
            Outcome::silent("no answer")
        }
        _ => Outcome::accepted(),
    };
    pipeline.next_read(now).unwrap();
    pipeline.read(page_of(1..=2_000, 2_500, topic), now);
    assert_eq!(
        deliver(&mut pipeline, now, 1, answer),
        1,
        "before the second"
    );
    now = now.after(Duration::from_secs(1));
    pipeline.next_read(now).unwrap();
    pipeline.read(page_of(2_001..=2_500, 2_500, topic), now);
    deliver(&mut pipeline, now, 10, answer);
    assert_eq!(pipeline.counts().accepted, 500);
    assert!(*sent.borrow() <= 300, "{} were sent", sent.borrow());
    now = now.after(Duration::from_secs(10));
    deliver(&mut pipeline, now, 10, |_| Outcome::accepted());
    assert_eq!(pipeline.counts().accepted, 2_499);
    assert_eq!(pipeline.counts().rejected, 0);
}

/// Their copies come back time and again.
#[test]
fn many_silent_topics_use_up_no_attempt() {
    const TOPICS: i64 = 1_500;
    let topic = |seq: i64| &*Box::leak(seq.to_string().into_boxed_str());
    let mut pipeline = refusing(KeyOrder::OneAtATime);
    let mut now = Moment(Duration::from_secs(1));
    pipeline.next_read(now).unwrap();
    pipeline.read(page_of(1..=TOPICS, 100_000, topic), now);
    let silent = |_: &Record| Some(Outcome::silent("no answer"));
    let mut events = Vec::new();
    for _ in 0..8 {
        now = now.after(Duration::from_secs(100));
        let copies = copies_of_page(page_of(1..=TOPICS, 100_000, topic));
        let mut due = std::mem::replace(&mut events, copies);
        deliver_with(&mut pipeline, &mut due, now, 20, silent);
    }
    assert_eq!(pipeline.counts().rejected, 0);
}

/// One of six partitions has no leader: one place, and more keys than places may be held back.
#[test]
fn a_partition_that_takes_nothing_delays_no_other_of_its_topic() {
    let mut pipeline = pipeline_of((PROBES, 20_000), KeyOrder::Pipelined, &[]);
    let now = Moment(Duration::from_secs(1));
    let parked = read_and_deliver(&mut pipeline, (72_000, true), now, 120, |record| {
        match record.event().seq() % 6 {
            0 => Outcome::later("partition 0 has no leader"),
            _ => Outcome::accepted(),
        }
    });
    assert_eq!((pipeline.counts().accepted, parked), (60_000, 12_000));
}

#[test]
fn operators_are_told_when_as_many_keys_wait_as_may() {
    // Those without a key are bounded over all claims.
    for (is_keyed, before, may_be_parked) in [(true, 0, 5), (false, 0, 5), (false, 3, 2)] {
        let mut pipeline = pipeline_of((PROBES, 5), KeyOrder::OneAtATime, &[]);
        pipeline.put_off_before(before);
        let now = Moment(Duration::from_secs(1));
        let full = |_: &Record| Outcome::later("a queue is full");
        let parked = read_and_deliver(&mut pipeline, (20, is_keyed), now, 120, full);
        assert_eq!(parked, may_be_parked);
        let trouble = pipeline.breaker(now.after(Duration::from_secs(120))).1;
        let begins = "`t`: a queue is full; 5 keys or events wait, as many as may";
        assert!(
            trouble.is_some_and(|words| words.starts_with(begins)),
            "{trouble:?}"
        );
    }
}

#[test]
fn operators_are_told_which_places_take_nothing() {
    let mut pipeline = refusing(KeyOrder::Pipelined);
    let now = Moment(Duration::from_secs(1));
    let answer = |record: &Record| match (record.event().seq() % 6, record.order_key()) {
        (0, Some(_)) => Outcome::later("partition 0 has no leader"),
        _ => Outcome::accepted(),
    };
    read_and_deliver(&mut pipeline, (60, true), now, 5, answer);
    let (places, held) = pipeline.held_places(10, now.after(Duration::from_secs(9)));
    let [held] = &held[..] else {
        panic!("{held:?}");
    };
    assert_eq!((places, &*held.name), (1, "t/0"));
    assert_eq!(&*held.reason, "partition 0 has no leader");
    assert!(held.held_for > Duration::from_secs(7) && !held.returns);
    // Of sixty events ten went there.
    assert_eq!((held.in_memory, held.set_aside), (10, 0));
    assert_eq!(pipeline.held_places(0, now), (1, Vec::new()));
}

#[test]
fn thousands_of_topics_that_take_nothing_hold_up_no_other() {
    const TOPICS: i64 = 3_000;
    let names: Vec<&'static str> = (0..TOPICS)
        .map(|n| &*Box::leak(format!("away{n}").into_boxed_str()))
        .collect();
    let topic = |seq: i64| match seq % 2 {
        0 => "well",
        _ => names[usize::try_from(seq / 2 % TOPICS).unwrap()],
    };
    let mut pipeline = refusing(KeyOrder::OneAtATime);
    let mut now = Moment(Duration::from_secs(1));
    for page in 0..60 {
        let _ = pipeline.next_read(now).unwrap();
        let first = 1 + 100 * page;
        pipeline.read(page_of(first..=first + 99, 2 * TOPICS, topic), now);
        deliver(&mut pipeline, now, 1, |record| match record.topic() {
            "well" => Outcome::accepted(),
            _ => Outcome::later("no stream takes the subject"),
        });
        now = now.after(Duration::from_secs(1));
    }
    assert_eq!(pipeline.counts().accepted, 3_000);
}

/// A single one of them may hold up what is done behind it.
#[test]
fn few_events_for_a_full_queue_leave_the_window_before_it_fills_behind_them() {
    let mut pipeline = pipeline_with(KeyOrder::OneAtATime);
    let mut now = Moment(Duration::from_secs(1));
    let topic = |seq| if seq <= 3 { "full" } else { "healthy" };
    let mut parked = 0;
    for page in 0..300 {
        if pipeline.next_read(now).is_some() {
            let first = 1 + 100 * page;
            pipeline.read(page_of(first..=first + 99, 100_000, topic), now);
        }
        parked += deliver(&mut pipeline, now, 1, |record| match record.topic() {
            "full" => Outcome::later("a queue is full"),
            _ => Outcome::accepted(),
        });
        now = now.after(Duration::from_millis(100));
    }
    assert_eq!((pipeline.counts().accepted, parked), (29_997, 3));
}

/// Copies of these events, each of a key of its own.
fn copies_of(seqs: RangeInclusive<i64>) -> Vec<ParkedCopy> {
    copies_of_page(page(seqs, 1_000))
}

fn copies_of_page(Page { events, .. }: Page) -> Vec<ParkedCopy> {
    let copy = |event: posthaste_engine::StoredEvent| ParkedCopy {
        id: event.seq(),
        event,
        attempts: 0,
        holds_key: true,
        never_tried: false,
    };
    events.into_iter().map(copy).collect()
}

/// The kinds of the attempts that these changes settled.
fn settlements(changes: &[Change]) -> Vec<&str> {
    let settled = changes.iter().filter_map(|change| match change {
        Change::Settle { settlement, .. } => Some(settlement.attempted().kind),
        _ => None,
    });
    settled.collect()
}

/// The copies that these changes made, and whether each is what a key waits for.
fn put_off(changes: &[Change]) -> Vec<(i64, Duration)> {
    let parkings = changes.iter().flat_map(|change| match change {
        Change::Park(parkings) => parkings.as_slice(),
        _ => &[],
    });
    let one = |parking: &Parking| {
        assert_eq!((parking.attempts, parking.kind), (0, "not_now"));
        assert_eq!(parking.reason, "a queue is full");
        (parking.event.seq(), parking.next.retry_in().unwrap())
    };
    parkings.map(one).collect()
}

/// For as long as a queue is full, events for others go through the window.
#[test]
pub(super) fn what_fills_the_window_for_a_full_queue_leaves_it_key_by_key() {
    let mut pipeline = pipeline_with(KeyOrder::OneAtATime);
    let mut now = Moment(Duration::from_secs(1));
    let topic = |seq| if seq <= 9_900 { "full" } else { "healthy" };
    pipeline.next_read(now).unwrap();
    pipeline.read(page_of(1..=9_900, 50, topic), now);
    let full = |record: &Record| match record.topic() {
        "full" => Some(Outcome::later("a queue is full")),
        _ => Some(Outcome::accepted()),
    };
    let changes = deliver_with(&mut pipeline, &mut Vec::new(), now, 1, full);
    let mut left = put_off(&changes);
    left.sort_unstable();
    let seqs: Vec<i64> = left.iter().map(|(seq, _)| *seq).collect();
    assert_eq!(seqs, (1..=50).collect::<Vec<_>>(), "the first of each key");
    assert_eq!(pipeline.blocked_keys(), 50);
    now = now.after(Duration::from_secs(1));
    pipeline.next_read(now).expect("the window has room");
    pipeline.read(page_of(9_901..=9_999, 10_000, topic), now);
    deliver_with(&mut pipeline, &mut Vec::new(), now, 1, full);
    assert_eq!(pipeline.counts().accepted, 99);
}

#[test]
fn few_events_for_a_full_queue_stay_for_a_minute() {
    let mut pipeline = pipeline_with(KeyOrder::OneAtATime);
    let now = Moment(Duration::from_secs(1));
    pipeline.next_read(now).unwrap();
    pipeline.read(page_of(1..=3, 3, |_| "full"), now);
    let full = |_: &Record| Some(Outcome::later("a queue is full"));
    let changes = deliver_with(&mut pipeline, &mut Vec::new(), now, 59, full);
    assert_eq!(put_off(&changes), []);
    let later = now.after(Duration::from_secs(59));
    let changes = deliver_with(&mut pipeline, &mut Vec::new(), later, 3, full);
    assert_eq!(put_off(&changes).len(), 3);
}

/// One tries the queue at its next turn, the other falls due again later; no attempt is used up.
/// Once the queue takes the first one, the other is asked for.
#[test]
fn copies_for_a_full_queue_are_put_off_and_hold_up_no_others() {
    let mut pipeline = pipeline_that_probes(PROBES, KeyOrder::OneAtATime, &[]);
    let now = Moment(Duration::from_secs(1));
    let topic = |seq| if seq <= 2 { "full" } else { "healthy" };
    pipeline.next_read(now).unwrap();
    pipeline.read(empty_page(), now);
    let copies = copies_of_page(page_of(1..=3, 3, topic));
    let full = |record: &Record| match record.topic() {
        "full" => Some(Outcome::later("a queue is full")),
        _ => Some(Outcome::accepted()),
    };
    let changes = deliver_with(&mut pipeline, &mut copies.clone(), now, 1, full);
    let settled = changes.iter().filter_map(|change| match change {
        Change::Settle { id, settlement } => Some((*id, settlement.attempted())),
        _ => None,
    });
    let [(3, accepted), (first, tries), (second, waits)] = settled.collect::<Vec<_>>()[..] else {
        panic!("{changes:?}");
    };
    assert_eq!(accepted.kind, "accepted");
    let kinds = [tries, waits].map(|of| (of.kind, of.counts));
    assert_eq!(kinds, [("not_now", false); 2]);
    assert!(tries.retry_in < Some(2 * PROBES.first));

    let later = now.after(Duration::from_secs(1));
    let of = |id| copies.iter().filter(move |copy| copy.id == id).cloned();
    let accept = |_: &Record| Some(Outcome::accepted());
    let mut due = of(first).collect();
    let changes = deliver_with(&mut pipeline, &mut due, later, 3, accept);
    assert_eq!(settlements(&changes), ["accepted"]);
    let asks = |change: &Change| matches!(change, Change::PutOff { after: None, .. });
    assert!(changes.iter().any(asks) && of(second).next().is_some());
}
