use super::{super::ticket::Group, *};

const PROBE: Backoff = Backoff {
    first: Duration::from_secs(2),
    max: Duration::from_secs(8),
    jitter: 0.0,
};

fn at(seconds: u64) -> Moment {
    Moment::default().after(Duration::from_secs(seconds))
}

fn ticket(number: u64) -> Ticket {
    Group::Main.ticket(number)
}

fn refuse(places: &mut Places, place: u64, number: u64, now: Moment) -> bool {
    let why = Postponement::new("full");
    let of = (Place(place), ticket(number));
    places.refused(of, Some("t".to_owned()), &why, PROBE, now, 0.5)
}

#[test]
fn a_place_is_tried_ever_more_slowly_and_returns_twice_as_fast_each_time() {
    let (mut places, full) = (Places::default(), Place(1));
    let mut now = at(100);
    refuse(&mut places, 1, 0, now);
    // In flight when the place was held back.
    refuse(&mut places, 1, 1, now);
    assert!(!places.accepted(ticket(2), 100, at(3)));
    for wait in [2, 4, 8, 8] {
        assert!(!places.takes(full) && places.takes(Place(2)));
        let due = now.after(Duration::from_secs(wait));
        assert_eq!(places.next_turn(), Some(due));
        now = due;
        assert_eq!(places.turn(now), Turn::Open);
        assert!(places.takes(full));
        places.sends(full, ticket(3));
        assert!(!places.takes(full), "one event");
        refuse(&mut places, 1, 3, now);
    }
    assert_eq!(places.turn(now.after(PROBE.max)), Turn::Open);
    let (mut number, mut flights) = (10, Vec::new());
    while places.is_limited(full) {
        let first = number;
        while places.takes(full) {
            places.sends(full, ticket(number));
            number += 1;
        }
        flights.push(number - first);
        let taken = (first..number).all(|number| places.accepted(ticket(number), 8, at(3)));
        assert!(taken || places.is_empty());
    }
    assert_eq!(flights, [1, 2, 4]);
    assert_eq!(places.in_flight.len(), 0);
}

#[test]
fn a_place_that_nothing_new_comes_for_tries_again_what_it_refused() {
    let mut places = Places::default();
    refuse(&mut places, 1, 0, at(0));
    assert_eq!(places.turn(at(2)), Turn::Open);
    assert_eq!(places.turn(at(2)), Turn::Same);
    assert_eq!(places.next_turn(), Some(at(4)));
    assert_eq!(places.turn(at(4)), Turn::Unused);
    assert!(places.is_limited(Place(1)));
    assert_eq!(places.turn(at(6)), Turn::Unused);
    assert!(places.is_empty(), "nothing of it is left");
}

#[test]
fn too_many_places_that_take_nothing_are_a_destination_that_takes_nothing() {
    let mut places = Places::default();
    for place in 0..10_000 {
        assert!(refuse(&mut places, place, place, at(0)));
    }
    assert!(!refuse(&mut places, 10_000, 10_000, at(0)));
    let trouble = places.trouble().unwrap();
    assert!(trouble.ends_with("full (and 9999 more)"), "{trouble}");
    places.turn(at(2));
    assert!(
        refuse(&mut places, 10_000, 10_000, at(2)),
        "the others are unused"
    );
}

#[test]
fn more_silent_places_than_are_remembered_are_not_silent_by_themselves() {
    let mut places = Places::default();
    for place in 0..10_000 {
        assert!(!places.silent(Place(place)));
    }
    assert!(places.silent(Place(10_000)));
    places.took(Place(0));
    assert!(!places.silent(Place(10_000)), "there is room for it");
    assert!(places.silent(Place(1)), "it took none since");
}

#[test]
fn no_broker_asks_for_more_than_five_minutes() {
    let mut places = Places::default();
    let why = Postponement {
        wait: Some(Duration::MAX),
        ..Postponement::new("come back next year")
    };
    let of = (Place(1), ticket(0));
    places.refused(of, Some("t".to_owned()), &why, PROBE, at(0), 0.5);
    assert_eq!(places.next_turn(), Some(at(300)));
}

#[test]
fn a_copy_is_looked_for_at_the_next_turn_of_its_place() {
    let (mut places, place) = (Places::default(), Place(1));
    let wait = |places: &mut Places| places.wait_of_copy(place, PROBE, 0.5).as_secs();
    assert_eq!(wait(&mut places), 2, "it takes everything");
    refuse(&mut places, 1, 0, at(0));
    assert_eq!(wait(&mut places), 2);
    assert_eq!(places.returns.next_look(), None);
    places.turn(at(2));
    assert!(places.returns.contains(place));
    places.returns.found(place);
    assert_eq!(places.returns.next_look(), None, "one is enough");
    places.sends(place, ticket(1));
    refuse(&mut places, 1, 1, at(2));
    assert_eq!(wait(&mut places), 4);
    places.turn(at(6));
    assert!(places.returns.contains(place));
    places.sends(place, ticket(2));
    places.accepted(ticket(2), 100, at(6));
    places.returns.found(place);
    places.took_copy(place, at(6));
    assert!(places.returns.contains(place), "it may take all others");
}

#[test]
fn a_place_has_returned_when_it_takes_everything_or_nothing_of_it_is_left() {
    let (mut places, place) = (Places::default(), Place(1));
    refuse(&mut places, 1, 0, at(0));
    places.turn(at(2));
    places.sends(place, ticket(1));
    places.accepted(ticket(1), 3, at(3));
    assert!(!places.returns.contains(place), "it may take one");
    places.sends(place, ticket(2));
    places.accepted(ticket(2), 3, at(3));
    assert!(places.is_empty() && places.returns.contains(place));
    refuse(&mut places, 1, 3, at(3));
    assert!(!places.returns.contains(place));
    for seconds in [5, 7, 9] {
        places.turn(at(seconds));
    }
    assert!(places.is_empty() && places.returns.contains(place));
}
