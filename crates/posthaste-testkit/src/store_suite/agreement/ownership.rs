//! Relays: their lives, and which partitions they own.

use std::{collections::BTreeSet, time::Duration};

use posthaste_engine::{
    Claim, ClaimOutcome, ClaimRequest, Registered, RelayReport, Renewal, Start, Want,
};

use super::{
    destinations::{destination, order_by},
    operation::Operation,
    state::{Both, Driver, Label, RegisteredRelay, Shadow, agreed},
};
use crate::store_suite::bench::{ADDRESS, LONG, SETTLE, registration};

const OTHER_ADDRESS: &str = "null:?other";
/// Over as soon as it began.
const NO_LEASE: Duration = Duration::from_millis(1);

fn wait(settle: bool) -> Duration {
    if settle { SETTLE } else { Duration::ZERO }
}

impl Driver {
    pub(super) async fn own(&mut self, operation: &Operation) -> bool {
        match *operation {
            Operation::Register { slot } => self.register(usize::from(slot)).await,
            Operation::Renew { slot } => self.renew(usize::from(slot)).await,
            Operation::Expire { slot } => self.expire(usize::from(slot)).await,
            Operation::Fence { by, dead } => {
                let (by, dead) = (usize::from(by), usize::from(dead));
                by != dead && self.fence(by, dead).await
            }
            Operation::AnnounceLeaving { slot } => self.announce(usize::from(slot)).await,
            Operation::Leave { slot, unsettled } => {
                self.leave(usize::from(slot), wait(unsettled)).await
            }
            Operation::Withdraw {
                slot,
                destination: number,
                unsettled,
            } => {
                let destination = destination(number);
                self.withdraw(usize::from(slot), destination, wait(unsettled))
                    .await
            }
            Operation::Revoke {
                slot,
                destination: number,
                settle,
            } => {
                let Some(relay) = self.awake(usize::from(slot)) else {
                    return false;
                };
                let (name, settle) = (destination(number), wait(settle));
                let (ours, theirs) = (&self.worlds.subject.store, &self.worlds.reference.store);
                let subject = ours.revoke(relay.subject, name, settle).await;
                let reference = theirs.revoke(relay.reference, name, settle).await;
                agreed("revoke", subject, reference);
                true
            }
            Operation::Claim {
                slot,
                destination: number,
                want,
                settle,
                unsettled,
                address,
            } => {
                let address = if address == 0 { ADDRESS } else { OTHER_ADDRESS };
                let name = destination(number);
                let target = order_by(name).target(address);
                let request = ClaimRequest {
                    settle: wait(settle),
                    unsettled: wait(unsettled),
                    want: match want {
                        0 => Want::AtMost(0),
                        1 => Want::AtMost(21),
                        2 => Want::AtMost(43),
                        3 => Want::All,
                        _ => Want::AtMost(64),
                    },
                    ..ClaimRequest::all(name, &target)
                };
                self.claim(usize::from(slot), request).await
            }
            _ => unreachable!("not about ownership"),
        }
    }

    /// The relay of this slot, fenced perhaps, unless its lease is over and it knows.
    fn awake(&self, slot: usize) -> Option<Both<Registered>> {
        let relay = self.relays[slot].as_ref()?;
        (relay.state != "expired").then_some(relay.registered)
    }

    /// A new life; whoever lived here before is forgotten by this side only.
    pub(super) async fn register(&mut self, slot: usize) -> bool {
        if let Some(relay) = &self.relays[slot]
            && relay.state != "fenced"
        {
            return false;
        }
        self.lives += 1;
        let name = format!("relay-{slot}.{}", self.lives);
        let registration = registration(&name, LONG);
        let subject = self.worlds.subject.store.register(&registration).await;
        let reference = self.worlds.reference.store.register(&registration).await;
        let registered = agreed("register", subject, reference);
        self.relays[slot] = Some(RegisteredRelay {
            name,
            registered: registered.expect("anybody may register"),
            state: "live".to_owned(),
            leaves: false,
        });
        true
    }

    async fn renew(&mut self, slot: usize) -> bool {
        let Some(relay) = &self.relays[slot] else {
            return false;
        };
        let Some(renewals) = self.renewed(&relay.registered, LONG).await else {
            return true;
        };
        let told = |renewal: Renewal| -> Vec<_> {
            let served = renewal.destinations.into_iter();
            served
                .map(|(name, state, shares)| (name, state, self.shares_seen(shares)))
                .collect()
        };
        let (mut subject, mut reference) = (told(renewals.subject), told(renewals.reference));
        subject.sort_by(|a, b| a.0.cmp(&b.0));
        reference.sort_by(|a, b| a.0.cmp(&b.0));
        assert_eq!(subject, reference, "what a renewal learns");
        true
    }

    async fn renewed(&self, relay: &Both<Registered>, lease: Duration) -> Option<Both<Renewal>> {
        let (ours, theirs) = (&self.worlds.subject.store, &self.worlds.reference.store);
        let report = RelayReport::new();
        let subject = ours.renew(relay.subject, lease, &report).await;
        let reference = theirs.renew(relay.reference, lease, &report).await;
        agreed("renew", subject, reference)
    }

    async fn expire(&mut self, slot: usize) -> bool {
        let Some(relay) = self.awake(slot) else {
            return false;
        };
        if self.renewed(&relay, NO_LEASE).await.is_some() {
            let (ours, theirs) = (&self.worlds.subject.store, &self.worlds.reference.store);
            for (store, relay) in [(ours, relay.subject), (theirs, relay.reference)] {
                loop {
                    let status = store.status().await.expect("a status");
                    let mut relays = status.relays.iter();
                    let ours = relays.find(|shown| shown.registration == relay.registration);
                    if ours.is_none_or(|shown| shown.state != "live") {
                        break;
                    }
                    tokio::time::sleep(NO_LEASE).await;
                }
            }
        }
        true
    }

    pub(super) async fn fence(&mut self, by: usize, dead: usize) -> bool {
        let (Some(by), Some(relay)) = (self.awake(by), &self.relays[dead]) else {
            return false;
        };
        let dead = relay.registered;
        let (ours, theirs) = (&self.worlds.subject.store, &self.worlds.reference.store);
        let subject = ours.fence(by.subject, dead.subject.registration, "it is gone");
        let reference = theirs.fence(by.reference, dead.reference.registration, "it is gone");
        agreed("fence", subject.await, reference.await);
        true
    }

    async fn announce(&mut self, slot: usize) -> bool {
        let Some(relay) = self.awake(slot) else {
            return false;
        };
        let (ours, theirs) = (&self.worlds.subject.store, &self.worlds.reference.store);
        let subject = ours.announce_leaving(relay.subject).await;
        let reference = theirs.announce_leaving(relay.reference).await;
        agreed("announce leaving", subject, reference);
        self.relays[slot].as_mut().expect("it is awake").leaves = true;
        true
    }

    pub(super) async fn leave(&mut self, slot: usize, unsettled: Duration) -> bool {
        let Some(relay) = self.awake(slot) else {
            return false;
        };
        let (ours, theirs) = (&self.worlds.subject.store, &self.worlds.reference.store);
        let subject = ours.leave(relay.subject, unsettled).await;
        let reference = theirs.leave(relay.reference, unsettled).await;
        if agreed("leave", subject, reference).is_some() {
            self.relays[slot] = None;
            self.lose(|holding| holding.slot == slot);
        }
        true
    }

    async fn withdraw(&mut self, slot: usize, destination: &str, unsettled: Duration) -> bool {
        let Some(relay) = self.awake(slot) else {
            return false;
        };
        let (ours, theirs) = (&self.worlds.subject.store, &self.worlds.reference.store);
        let subject = ours.withdraw(relay.subject, destination, unsettled).await;
        let reference = theirs
            .withdraw(relay.reference, destination, unsettled)
            .await;
        if agreed("withdraw", subject, reference).is_some() {
            self.lose(|holding| holding.slot == slot && holding.destination == destination);
        }
        true
    }

    pub(super) async fn claim(&mut self, slot: usize, request: ClaimRequest<'_>) -> bool {
        let leaves = self.relays[slot].as_ref().is_some_and(|relay| relay.leaves);
        let Some(relay) = self.awake(slot).filter(|_| !leaves) else {
            return false;
        };
        // The events that retention has left for one that begins with the oldest are a store's own
        // affair.
        let is_new = !self.shadows.contains_key(request.destination);
        let request = ClaimRequest {
            start: match self.keeps_nothing {
                true => Start::Now,
                false => Start::Oldest,
            },
            want: match request.want {
                Want::AtMost(1..) if !self.info.shares_out => Want::All,
                want => want,
            },
            ..request
        };
        let (ours, theirs) = (&self.worlds.subject.store, &self.worlds.reference.store);
        let subject = ours.claim(relay.subject, &request).await;
        let reference = theirs.claim(relay.reference, &request).await;
        let Some(outcomes) = agreed("claim", subject, reference) else {
            return true;
        };
        if is_new {
            let before: BTreeSet<Label> = match request.start {
                Start::Oldest => BTreeSet::new(),
                Start::Now => self.committed.clone(),
            };
            let shadow = Shadow {
                passed: before.clone(),
                before,
                ..Shadow::default()
            };
            self.shadows.insert(request.destination.to_owned(), shadow);
        }
        let name = request.destination;
        // A relay that is sent away keeps what it had.
        if !matches!(outcomes.reference, ClaimOutcome::Elsewhere { .. }) {
            self.lose(|holding| holding.slot == slot && holding.destination == name);
        }
        match (outcomes.subject, outcomes.reference) {
            (ClaimOutcome::Owned(subject), ClaimOutcome::Owned(reference)) => {
                self.owned(slot, name, Both { subject, reference }).await;
            }
            (ClaimOutcome::Held(subject), ClaimOutcome::Held(reference)) => {
                let (subject, reference) = (self.shares_seen(subject), self.shares_seen(reference));
                if !subject.assert_agrees(&reference) {
                    self.end_early();
                }
            }
            (
                ClaimOutcome::Elsewhere { address: ours, .. },
                ClaimOutcome::Elsewhere {
                    address: theirs, ..
                },
            ) => {
                assert_eq!(ours, theirs, "where its events go");
            }
            (subject, reference) => {
                panic!("a claim: the store answers {subject:?}, the reference {reference:?}")
            }
        }
        true
    }

    async fn owned(&mut self, slot: usize, destination: &str, claim: Both<Claim>) {
        let (ours, theirs) = (&claim.subject, &claim.reference);
        let epochs = self.epochs.entry(destination.to_owned()).or_default();
        let newest = Both {
            subject: ours.epoch,
            reference: theirs.epoch,
        };
        assert!(newest.subject > epochs.subject, "the store's epoch rises");
        assert!(
            newest.reference > epochs.reference,
            "the reference's epoch rises"
        );
        *epochs = newest;
        let told = |claim: &Claim| {
            let former = claim.former.len();
            (claim.wanted.clone(), claim.breaker_open, former)
        };
        assert_eq!(
            ours.partitions.len(),
            theirs.partitions.len(),
            "how many partitions"
        );
        assert_eq!(told(ours), told(theirs), "state, breaker, former");
        let settles = |claim: &Claim| !claim.settle.is_zero();
        assert!(settles(ours) || !settles(theirs), "settles");
        if ours.partitions == theirs.partitions && settles(ours) == settles(theirs) {
            self.open(slot, destination, claim).await;
        } else {
            // A store decides itself which of the free ones it gives, and whether all that share a
            // place settle with one of them.
            self.end_early();
        }
    }
}
