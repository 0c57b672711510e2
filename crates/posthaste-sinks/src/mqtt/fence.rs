//! The take-over of client ids: a broker ends the connection that has the id of a new one.
//!
//! The id is of the store, the destination and the registration of a relay. So the relay's next
//! lane ends its former one, lanes of other relays that share the partitions go on, and a lane that
//! takes over connects once under the id of each former owner, whose lane ends if it still stands.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use posthaste_engine::{Lane, LaneScope, Record, SinkError, Verdict};
use tokio::time::{Instant, timeout};
use uuid::Uuid;

use super::{Endpoint, client::ClientIdentity, fault::BrokerFault};
use crate::publisher::WorkerLane;

/// The letters and figures that every broker takes in a client id.
const LETTERS: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
const NAME: &str = "posthaste";
/// Every broker takes 23 letters. These hold 83 bits.
const CLIENT_ID_BYTES: usize = 23;

/// The client id of a relay's lanes.
pub(super) fn client_id(scope: &LaneScope, registration: Uuid) -> String {
    let owner = format!("{}/{registration}", scope.destination_id);
    named(Uuid::new_v5(&scope.store_id, owner.as_bytes()))
}

/// A client id that no lane has.
pub(super) fn unused_client_id() -> String {
    named(Uuid::new_v4())
}

fn named(id: Uuid) -> String {
    let mut name = NAME.to_owned();
    let mut rest = id.as_u128();
    while name.len() < CLIENT_ID_BYTES {
        let at = usize::try_from(rest % 62).unwrap_or_default();
        name.push(char::from(LETTERS[at]));
        rest /= 62;
    }
    name
}

/// A lane that ends those of former owners before it sends.
pub(super) struct FencedLane {
    pub(super) lane: WorkerLane,
    pub(super) endpoint: Arc<Endpoint>,
    pub(super) scope: Arc<LaneScope>,
    pub(super) keep_alive: u16,
    /// For each of them.
    pub(super) limit: Duration,
}

#[async_trait]
impl Lane for FencedLane {
    async fn submit(&mut self, batch: Vec<Record>) {
        self.lane.submit(batch).await;
    }

    async fn outcomes(&mut self) -> Vec<Verdict> {
        self.lane.outcomes().await
    }

    async fn take_over(&mut self) -> Result<Option<String>, SinkError> {
        let Self {
            endpoint, scope, ..
        } = self;
        for &former in scope.former.iter().filter(|&&it| it != scope.registration) {
            let identity = ClientIdentity {
                client_id: client_id(scope, former),
                keep_alive: self.keep_alive,
            };
            let end = Instant::now() + self.limit;
            let opened = endpoint.connect(&identity, self.limit, self.limit).await;
            let connection = opened
                .map_err(BrokerFault::from)
                .map_err(|fault| fault.into_error(endpoint.name()))?;
            // The broker has ended the other connection. That it lets us go is no matter.
            let left = end.saturating_duration_since(Instant::now());
            let _ = timeout(left, connection.goodbye()).await;
        }
        Ok(None)
    }

    async fn abort(self: Box<Self>) {
        Box::new(self.lane).abort().await;
    }

    async fn close(self: Box<Self>, limit: Duration) -> Vec<Verdict> {
        Box::new(self.lane).close(limit).await
    }
}

#[cfg(test)]
mod tests {
    use posthaste_testkit::sink_suite::lane_spec;

    use super::*;

    #[test]
    fn a_client_id_is_of_one_relay_and_one_destination() {
        let scope = lane_spec(1).scope;
        let own = client_id(&scope, scope.registration);
        assert_eq!(own, client_id(&scope, scope.registration));
        let other = LaneScope {
            destination_id: scope.destination_id + 1,
            ..(*scope).clone()
        };
        for another in [
            client_id(&scope, Uuid::new_v4()),
            client_id(&other, scope.registration),
            unused_client_id(),
        ] {
            assert_ne!(own, another);
            assert_eq!(another.len(), CLIENT_ID_BYTES);
            assert!(another.bytes().all(|byte| LETTERS.contains(&byte)));
        }
    }

    #[test]
    fn a_client_id_stays_what_it_was() {
        assert_eq!(named(Uuid::nil()), "posthaste00000000000000");
        assert_eq!(named(Uuid::from_u128(61 + 62)), "posthastez1000000000000");
    }
}
