//! Where payloads lie that records only name: a folder, or a bucket of object storage.

mod client;
mod connector;
mod fault;
mod local;
mod remote;
mod rows;

use std::time::Duration;

use bytes::Bytes;
use posthaste_engine::{CheckReport, Fact, Finding, PlugIn, Severity, SinkError};
use tokio::time::timeout;

use crate::address::{Address, expect_scheme};
pub(super) use fault::Fault;
use local::Local;
use remote::Remote;
use rows::ROWS;

/// A relay that starts waits no longer for storage that does not answer.
const CHECK_LIMIT: Duration = Duration::from_secs(5);

/// A place of objects, each of which is written as a whole, and is there for good once it is
/// written.
#[derive(Debug)]
pub(super) enum Storage {
    Local(Local),
    Remote(Remote),
}

impl Storage {
    /// The storage at an address; touches nothing yet.
    ///
    /// # Errors
    /// [`SinkError::Misconfigured`] with the fix. It repeats nothing of the address: a login may
    /// stand there by mistake.
    pub(super) fn open(url: &str) -> Result<Self, SinkError> {
        let examples: Vec<_> = ROWS.iter().map(|row| row.example).collect();
        let parsed = expect_scheme(url, &examples).and_then(|()| Address::parse(url));
        let opened = parsed.and_then(|address| {
            let is_it = |row: &&PlugIn| row.schemes.contains(&address.scheme());
            let Some(row) = ROWS.iter().copied().find(is_it) else {
                let examples = examples.join("`, `");
                return Err(wrong(format!("write it as one of `{examples}`")));
            };
            address.check(row)?;
            match row.name {
                "file" => Local::of(&address).map(Self::Local),
                _ => Remote::of(&address).map(Self::Remote),
            }
        });
        opened.map_err(|error| match error {
            SinkError::Misconfigured { reason, .. } => wrong(reason),
            other => other,
        })
    }

    /// Writes the object of this name, which nobody else gives to other bytes. It is durable when
    /// this returns. A server has so much time; a folder takes as long as it takes, since nothing
    /// ends a thread that waits for a device, and another one would wait beside it.
    ///
    /// # Errors
    /// The fault; what was there is still there.
    pub(super) async fn put(&self, name: &str, bytes: Bytes, limit: Duration) -> Result<(), Fault> {
        match self {
            Self::Local(local) => local.put(name, bytes).await,
            Self::Remote(remote) => timeout(limit, remote.put(name, bytes))
                .await
                .unwrap_or_else(|_| Err(Fault::away(format!("no answer within {limit:?}")))),
        }
    }

    /// The address of the object of this name, as consumers read it.
    pub(super) fn reference(&self, name: &str) -> String {
        match self {
            Self::Local(local) => local.reference(name),
            Self::Remote(remote) => remote.reference(name),
        }
    }

    /// Looks whether objects can be written, and writes none that stays.
    pub(super) async fn check(&self, report: &mut CheckReport, bytes_min: usize) {
        let probing = async {
            match self {
                Self::Local(local) => local.probe().await,
                Self::Remote(remote) => remote.probe().await,
            }
        };
        let probed = timeout(CHECK_LIMIT, probing)
            .await
            .unwrap_or_else(|_| Err(Fault::away(format!("no answer within {CHECK_LIMIT:?}"))));
        let place = self.reference("");
        let place = place.trim_end_matches('/');
        let is_writable = if probed.is_ok() { "yes" } else { "no" };
        let facts = vec![
            Fact::seen("payloads over", format!("{bytes_min} B")),
            Fact::seen("writable", is_writable),
        ];
        report.part("object storage", place, facts);
        if let Err(fault) = probed {
            let (fault, mend) = fault.told();
            report.finding(Finding {
                severity: Severity::Stops,
                place: format!("object storage `{place}`"),
                fault: format!("{fault}, so events with large payloads wait"),
                mend,
            });
        }
    }
}

fn wrong(reason: String) -> SinkError {
    SinkError::Misconfigured {
        target: "`claim_check`".to_owned(),
        reason,
    }
}

#[cfg(test)]
mod tests;
