//! Operators take back that an event was skipped.

use posthaste_engine::{DeadAction, ParkedFilter, ParkedState, Settlement};

use super::{
    Case,
    admin::{in_state, of_key},
    cases,
    side::{Blocked, MINE, blocked, release, side_read_to},
};
use crate::store_suite::bench::{Bench, PLENTY};

pub(super) fn cases() -> Vec<Case> {
    cases![what_was_skipped_is_tried_again_once_its_key_has_gone_on,]
}

fn skipped(key: &str) -> ParkedFilter {
    ParkedFilter {
        state: Some(ParkedState::Skipped),
        ..of_key(key)
    }
}

async fn what_was_skipped_is_tried_again_once_its_key_has_gone_on(bench: Bench) {
    let Blocked { owner, stands, .. } = blocked(&bench, 9).await;
    let act = async |filter: &ParkedFilter, action| bench.store.act(filter, action).await.unwrap();
    release(&bench, &owner).await;
    let mut side = owner.claimed.side_read(&[MINE.into()]).await.unwrap();
    assert_eq!(
        act(&skipped(MINE), DeadAction::Retry).await,
        0,
        "it comes back"
    );
    side_read_to(&mut *side, &stands, PLENTY).await;
    owner.claimed.join(&[MINE.into()], &stands).await.unwrap();
    assert_eq!(act(&of_key(MINE), DeadAction::Retry).await, 0);
    assert_eq!(act(&skipped(MINE), DeadAction::Discard).await, 0);
    assert_eq!(act(&skipped(MINE), DeadAction::Retry).await, 1);
    assert_eq!(
        act(&skipped(MINE), DeadAction::Retry).await,
        0,
        "it waits again"
    );
    let due = owner.claimed.due(10).await.unwrap();
    assert_eq!(due.events.len(), 1);
    assert!(due.events[0].event.payload().is_some());
    assert_eq!(
        (due.events[0].event.key(), due.events[0].attempts),
        (Some(MINE), 0)
    );
    let markers = owner.claimed.markers(None, 10).await.unwrap();
    assert!(markers.is_empty(), "it holds its key up no more");
    let settled = owner
        .claimed
        .settle(due.events[0].id, &Settlement::Delivered);
    settled.await.unwrap();
    assert!(owner.claimed.due(10).await.unwrap().events.is_empty());
    let delivered = in_state(ParkedState::Delivered);
    assert_eq!(bench.store.parked(&delivered, 10).await.unwrap().len(), 1);
}
