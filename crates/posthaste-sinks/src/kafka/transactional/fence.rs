//! The fence of a lane: a transactional id.

use std::{fmt, time::Duration};

use posthaste_engine::{Cause, LaneScope, SinkError};
use rdkafka::types::RDKafkaErrorCode as Code;
use tokio::sync::oneshot;

use super::super::{
    client::Client,
    faults::{self, ClientFault},
};

/// Under this id a registration's lanes are known to the broker.
pub(super) fn transactional_id(scope: &LaneScope, registration: impl fmt::Display) -> String {
    let LaneScope {
        store_id,
        destination,
        ..
    } = scope;
    format!("posthaste.{store_id}.{destination}.{registration}")
}

/// How long a fence may take, and reading the progress: less than the relay waits for them, so that
/// the reason is told.
pub(super) fn limit(publish_timeout: Duration) -> Duration {
    publish_timeout * 4 / 5
}

/// Waits for a producer's thread to have taken the fence.
pub(super) async fn expect(
    client: &Client,
    target: &str,
    fenced: oneshot::Receiver<Result<(), ClientFault>>,
) -> Result<(), SinkError> {
    let (code, words) = match fenced.await {
        Ok(Ok(())) => return Ok(()),
        Ok(Err(fault)) => (fault.code, fault.words),
        Err(_) => (Code::OperationTimedOut, "given up".to_owned()),
    };
    match client.trouble() {
        Some(trouble) if faults::cause(code) == Cause::Unknown => {
            Err(faults::error(target, trouble.code, &trouble.words))
        }
        _ => Err(faults::error(target, code, &words)),
    }
}
