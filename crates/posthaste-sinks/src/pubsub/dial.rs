//! The way to a server, of Pub/Sub or of tokens.

use std::time::Duration;

use posthaste_engine::Cause;

use crate::{
    requests::{endpoint::Endpoint, refusal::Refusal},
    transport::{self, KeptTls, Stream, TransportError},
};

/// Connects to a server.
pub(super) async fn dial(
    endpoint: &Endpoint,
    tls: Option<&KeptTls>,
    acknowledgement: Duration,
) -> Result<Box<dyn Stream>, Refusal> {
    let (host, address) = (&endpoint.host.name, endpoint.address());
    let dialing = transport::dial(host, &address, tls, acknowledgement);
    dialing.await.map_err(refusal)
}

/// The refusal that it is to have no connection.
pub(super) fn refusal(error: TransportError) -> Refusal {
    let (cause, reason) = match error {
        TransportError::Connection(words) => (Cause::Connection, words),
        TransportError::Setup(words) => (Cause::Misconfigured, words),
        TransportError::Certificate(words) => (Cause::Denied, words),
    };
    Refusal::of_service(cause, reason)
}
