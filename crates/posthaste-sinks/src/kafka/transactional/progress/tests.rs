use std::collections::BTreeSet;

use uuid::Uuid;

use super::*;

fn scope(count: u16, owned: &[u16]) -> LaneScope {
    let mut partitions = Partitions::none_of(count).unwrap();
    assert!(owned.iter().all(|&partition| partitions.insert(partition)));
    LaneScope {
        store_id: Uuid::nil(),
        destination: "orders".to_owned(),
        destination_id: 12,
        registration: Uuid::nil(),
        partitions,
        former: Vec::new(),
    }
}

fn ids(progress: &Progress, partition: u16) -> BTreeSet<u128> {
    let held = decode(&progress.record(partition, &[]).1).unwrap();
    held.iter().map(|event| event.id.as_u128()).collect()
}

fn event(id: u128) -> EventRef {
    let (id, seq) = (Uuid::from_u128(id), 1_000);
    EventRef { seq, id }
}

#[test]
fn a_record_is_cumulative_and_read_by_whoever_comes_next() {
    let mut first = Progress::new(&scope(4, &[1]));
    first.accepted(1, event(10), 0);
    let (key, value) = first.record(1, &[11, 12].map(event));
    assert_eq!(key, "00000000-0000-0000-0000-000000000000/12/4096-8191");
    let mut next = Progress::new(&scope(4, &[0, 1]));
    let slots = next.keys.slots(key.as_bytes()).unwrap();
    next.learn(&slots, &value).unwrap();
    assert_eq!(ids(&next, 1), [10, 11, 12].into());
    assert_eq!(ids(&next, 0), [].into());
    assert!(
        next.suppresses(1, event(11), 7)
            && !next.suppresses(0, event(11), 8)
            && !next.suppresses(1, event(13), 9)
    );
    next.accepted(1, event(13), 9);
    assert_eq!(ids(&next, 1), [10, 11, 12, 13].into());
}

#[test]
fn an_id_leaves_behind_the_store_or_when_it_was_left_over() {
    let mut progress = Progress::new(&scope(1, &[0]));
    let (_, inherited) = progress.record(0, &[1, 2, 3].map(event));
    progress.learn(&(0..=16_383), &inherited).unwrap();
    assert!(progress.suppresses(0, event(1), 100));
    progress.accepted(0, event(4), 101);
    progress.accepted(0, event(5), 102);
    progress.stored(0..100);
    assert_eq!(ids(&progress, 0), [1, 2, 3, 4, 5].into());
    progress.stored(0..102);
    assert_eq!(ids(&progress, 0), [2, 3, 5].into());
    progress.caught_up();
    assert_eq!(ids(&progress, 0), [5].into());
    progress.stored(102..103);
    assert_eq!(ids(&progress, 0), [].into());
    assert!(progress.tickets.is_empty());
}

#[test]
fn the_latest_ticket_stands_for_an_event() {
    let mut progress = Progress::new(&scope(1, &[0]));
    progress.accepted(0, event(1), 100);
    assert!(progress.suppresses(0, event(1), 200));
    progress.stored(100..101);
    assert!(progress.suppresses(0, event(1), 200));
    progress.stored(200..201);
    assert!(!progress.suppresses(0, event(1), 201));
}

#[test]
fn the_same_id_again_is_another_event() {
    let mut progress = Progress::new(&scope(1, &[0]));
    progress.accepted(0, event(1), 100);
    let again = EventRef {
        seq: 1_001,
        ..event(1)
    };
    assert!(!progress.suppresses(0, again, 101));
    progress.accepted(0, again, 101);
    progress.stored(100..101);
    assert!(progress.suppresses(0, again, 102) && !progress.suppresses(0, event(1), 103));
}

#[test]
fn a_record_of_ids_suppresses_one_event_of_each() {
    let ids: [u128; 2] = [1, 2];
    let ids = ids.iter().flat_map(|id| id.to_be_bytes());
    let value: Vec<u8> = [1].into_iter().chain(ids).collect();
    let mut progress = Progress::new(&scope(1, &[0]));
    progress.learn(&(0..=16_383), &value).unwrap();
    let again = EventRef {
        seq: 1_001,
        ..event(1)
    };
    assert!(progress.suppresses(0, event(1), 100) && !progress.suppresses(0, again, 101));
    assert!(progress.suppresses(0, event(1), 102));
    let (_, written) = progress.record(0, &[]);
    let mut next = Progress::new(&scope(1, &[0]));
    next.learn(&(0..=16_383), &written).unwrap();
    assert!(next.suppresses(0, event(2), 1) && !next.suppresses(0, again, 2));
}

#[test]
fn records_of_another_number_of_partitions_are_read() {
    let mut few = Progress::new(&scope(2, &[1]));
    few.accepted(1, event(1), 0);
    let (key, value) = few.record(1, &[]);
    let mut many = Progress::new(&scope(8, &[3, 4, 7]));
    let slots = many.keys.slots(key.as_bytes()).unwrap();
    many.learn(&slots, &value).unwrap();
    assert_eq!(ids(&many, 3), [].into());
    assert_eq!((ids(&many, 4), ids(&many, 7)), ([1].into(), [1].into()));
    let (key, value) = many.record(7, &[2].map(event));
    let slots = few.keys.slots(key.as_bytes()).unwrap();
    few.learn(&slots, &value).unwrap();
    assert_eq!(ids(&few, 1), [1, 2].into());
}

#[test]
fn other_destinations_and_damage_are_told_apart() {
    let keys = Keys::of(&scope(1, &[0]));
    let nil = Uuid::nil();
    for other in [
        "1/0-1",
        "12/3/0-1",
        "12/0",
        "12/x-1",
        "12/0-70000",
        "12/+0-1",
        "12/00-1",
    ] {
        assert_eq!(
            keys.slots(format!("{nil}/{other}").as_bytes()),
            None,
            "{other}"
        );
    }
    let mut progress = Progress::new(&scope(1, &[0]));
    for (value, said) in [
        (&[][..], "empty"),
        (&[3], "newer"),
        (&[1, 0], "within an event"),
        (&[2; 24], "within an event"),
    ] {
        let fault = progress.learn(&(0..=1), value).unwrap_err();
        assert!(fault.contains(said), "{fault}");
    }
    assert_eq!(slots_of(4095, 4096), 16_380..=16_383);
}
