//! Places that operators pause.

use std::{collections::BTreeSet, time::Duration};

use posthaste_engine::{DestinationState, PAUSED_PLACES_MAX, StoreError, Wanted};

use super::{Case, cases};
use crate::store_suite::bench::{Bench, DESTINATION, LONG};

pub(super) fn cases() -> Vec<Case> {
    cases![
        a_place_is_paused_and_resumed,
        places_are_paused_in_a_bounded_number,
    ]
}

fn names(of: &[&str]) -> BTreeSet<String> {
    of.iter().map(|&name| name.to_owned()).collect()
}

async fn a_place_is_paused_and_resumed(bench: Bench) {
    let owner = bench.own().await;
    let set = async |place, paused| {
        let known = bench.store.set_place(DESTINATION, place, paused).await;
        assert!(known.unwrap(), "there is such a destination");
        let renewal = bench.renew(owner.relay, LONG).await;
        let (_, renewed, _) = renewal.unwrap().destinations.remove(0);
        let claimed = owner.again(&bench).await.claim.wanted;
        let seen = bench.store.status().await.unwrap().destinations.remove(0);
        let seen = Wanted {
            state: seen.state,
            paused_places: seen.paused_places,
        };
        assert_eq!((&renewed, &claimed), (&seen, &seen));
        assert_eq!(seen.state, DestinationState::Active);
        seen.paused_places
    };
    let odd = "t/0, \"q\" {x}\\";
    assert_eq!(set("u", true).await, names(&["u"]));
    assert_eq!(set(odd, true).await, names(&["u", odd]));
    assert_eq!(set(odd, true).await, names(&["u", odd]), "it is paused");
    assert_eq!(set("u", false).await, names(&[odd]));
    assert_eq!(set("u", false).await, names(&[odd]), "it is not paused");
    assert!(!bench.store.set_place("none", "t", true).await.unwrap());
    bench
        .store
        .leave(owner.relay, Duration::ZERO)
        .await
        .unwrap();
    for state in [DestinationState::Paused, DestinationState::Active] {
        let set = bench.store.set_destination(DESTINATION, state).await;
        assert!(set.unwrap());
    }
    let kept = bench.own().await.claim.wanted;
    assert_eq!(kept.paused_places, names(&[odd]), "by the next relay, too");
}

async fn places_are_paused_in_a_bounded_number(bench: Bench) {
    let _owner = bench.own().await;
    for number in 0..PAUSED_PLACES_MAX {
        let place = format!("place {number}");
        let paused = bench.store.set_place(DESTINATION, &place, true).await;
        assert!(paused.unwrap());
    }
    let more = bench.store.set_place(DESTINATION, "more", true).await;
    let Err(StoreError::Misconfigured { reason, .. }) = more else {
        panic!("expected Misconfigured, got {more:?}");
    };
    assert!(reason.contains("resume one"), "{reason}");
    // One that is paused already is no other.
    let again = bench.store.set_place(DESTINATION, "place 0", true).await;
    assert!(again.unwrap());
    let resumed = bench.store.set_place(DESTINATION, "place 0", false).await;
    assert!(resumed.unwrap());
    let more = bench.store.set_place(DESTINATION, "more", true).await;
    assert!(more.unwrap());
}
