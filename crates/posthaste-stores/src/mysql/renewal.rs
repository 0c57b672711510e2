//! The renewal of a lease: one statement, as long as a relay is alone and nothing changes.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use mysql_async::params;
use posthaste_engine::{Registered, RelayReport, Renewal, StoreError};
use serde_json::json;
use uuid::Uuid;

use super::{
    connection::{Work, micros},
    shares::{shares_of, with_shares},
};
use crate::held_places;

/// After so many renewals there is another look all the same. A change that came just between the
/// two statements of a renewal, and was taken back, is believed no longer than that.
const KNOWN_MAX: u32 = 12;

/// The last answer to a renewal, where it may serve for the next one as well.
#[derive(Debug, Default)]
pub(super) struct LastRenewal(Mutex<Option<Known>>);

#[derive(Debug)]
struct Known {
    relay: Uuid,
    lease: Duration,
    /// Of all that the answer tells, but for the ends of leases.
    hash: u64,
    renewal: Renewal,
    times: u32,
}

impl LastRenewal {
    fn known(&self) -> MutexGuard<'_, Option<Known>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn find(&self, relay: Uuid, lease: Duration, hash: u64) -> Option<Renewal> {
        let mut known = self.known();
        let known = known.as_mut().filter(|known| {
            (known.relay, known.lease, known.hash) == (relay, lease, hash)
                && known.times < KNOWN_MAX
        })?;
        known.times += 1;
        Some(known.renewal.clone())
    }

    fn keep(&self, relay: Uuid, lease: Duration, hash: u64, renewal: &Renewal) {
        *self.known() = is_alone(relay, renewal).then(|| Known {
            relay,
            lease,
            hash,
            renewal: renewal.clone(),
            times: 0,
        });
    }

    /// Renews, and answers how the relay's destinations are shared out.
    pub(super) async fn renew(
        &self,
        work: &mut Work,
        Registered { registration }: Registered,
        lease: Duration,
        report: &RelayReport,
    ) -> Result<Renewal, StoreError> {
        let rates = report
            .iter()
            .map(|(name, of)| (name, of.accepted_per_second));
        let rates = json!(rates.collect::<BTreeMap<_, _>>()).to_string();
        let of = params! {
            "registration" => registration.to_string(),
            "destination_id" => None::<i64>,
            "lease" => micros(lease),
            "rates" => rates,
            "places" => held_places::written(report),
        };
        let sql = with_shares(include_str!("sql/relay_renew.sql"));
        let operation = work.operation();
        let hash = work.numbered(&sql, of).await?;
        let hash = hash.ok_or(StoreError::Fenced { operation })?;
        if let Some(renewal) = self.find(registration, lease, hash) {
            return Ok(renewal);
        }
        let renewal = Renewal {
            destinations: shares_of(work, registration).await?,
        };
        self.keep(registration, lease, hash, &renewal);
        Ok(renewal)
    }
}

/// Whether nothing but changes of others makes another answer of it: no other lease ends, and
/// nothing settles.
fn is_alone(relay: Uuid, renewal: &Renewal) -> bool {
    renewal.destinations.iter().all(|(_, _, shares)| {
        let mut members = shares.members.iter();
        members.all(|member| member.registration == relay) && shares.settled_in.is_none()
    })
}
