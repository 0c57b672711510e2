//! Reports to operators that come with each renewal.

use std::time::Duration;

use posthaste_engine::{DestinationReport, HeldPlace, RelayReport};

use super::{Case, cases};
use crate::store_suite::bench::{Bench, DESTINATION, LONG, SHORT};

pub(super) fn cases() -> Vec<Case> {
    cases![
        status_shows_how_fast_live_relays_deliver,
        status_shows_which_places_live_relays_hold_back,
    ]
}

fn named(accepted_per_second: f64, places: Vec<HeldPlace>) -> RelayReport {
    let other = DestinationReport {
        accepted_per_second: 7.0,
        ..DestinationReport::default()
    };
    let of = DestinationReport {
        accepted_per_second,
        places_held: places.len(),
        places,
    };
    RelayReport::from([(DESTINATION.to_owned(), of), ("other".to_owned(), other)])
}

async fn status_shows_how_fast_live_relays_deliver(bench: Bench) {
    let owner = bench.own().await;
    let other = bench.register("relay-b", LONG).await;
    let shown = async || {
        let status = bench.store.status().await.unwrap();
        status.destinations[0].accepted_per_second
    };
    assert_eq!(shown().await, None);
    let tell = async |relay, lease, rate| {
        let report = named(rate, Vec::new());
        bench.store.renew(relay, lease, &report).await.unwrap();
    };
    tell(owner.relay, LONG, 2.25).await;
    tell(other, LONG, 0.5).await;
    assert_eq!(shown().await, Some(2.75));
    tell(owner.relay, LONG, 0.0).await;
    assert_eq!(shown().await, Some(0.5));
    tell(other, SHORT, 0.5).await;
    tokio::time::sleep(SHORT * 2).await;
    assert_eq!(
        shown().await,
        Some(0.0),
        "one whose lease is over does not count"
    );
}

async fn status_shows_which_places_live_relays_hold_back(bench: Bench) {
    let owner = bench.own().await;
    let other = bench.register("relay-b", LONG).await;
    let place = |name: &str, seconds, returns| HeldPlace {
        name: name.into(),
        // A byte that no text of a database holds, and characters that some do not.
        reason: format!("\0 \"no\" \u{1f600} of {name}").into(),
        held_for: Duration::from_secs(seconds),
        returns,
        is_paused: false,
        in_memory: 2,
        set_aside: 3,
    };
    let tell = async |relay, lease, places| {
        let report = named(0.0, places);
        bench.store.renew(relay, lease, &report).await.unwrap();
    };
    let shown = async || {
        let mut status = bench.store.status().await.unwrap();
        let destination = status.destinations.remove(0);
        (destination.places_held, destination.places)
    };
    assert_eq!(shown().await, (0, Vec::new()));
    let (old, new) = (place("t/0", 50, false), place("u", 10, true));
    tell(owner.relay, LONG, vec![old.clone(), new.clone()]).await;
    assert_eq!(shown().await, (2, vec![old.clone(), new.clone()]));
    let second = vec![place("u", 60, false), place("v", 1, false)];
    tell(other, LONG, second.clone()).await;
    let both = HeldPlace {
        held_for: Duration::from_secs(60),
        returns: false,
        in_memory: 4,
        set_aside: 6,
        ..new.clone()
    };
    let (held, places) = shown().await;
    assert_eq!((held, &places[..2]), (3, &[both, old.clone()][..]));
    tell(other, SHORT, second).await;
    tokio::time::sleep(SHORT * 2).await;
    assert_eq!(shown().await, (2, vec![old, new]), "a lease is over");
    tell(owner.relay, LONG, Vec::new()).await;
    assert_eq!(shown().await, (0, Vec::new()));
}
