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
    let dialing = async {
        let stream = transport::connect(&endpoint.address(), acknowledgement).await?;
        let stream: Box<dyn Stream> = match tls {
            None => Box::new(stream),
            Some(tls) => Box::new(tls.wrap(&endpoint.host.name, stream).await?),
        };
        Ok(stream)
    };
    dialing.await.map_err(|error: TransportError| {
        let (cause, reason) = match error {
            TransportError::Connection(words) => (Cause::Connection, words),
            TransportError::Setup(words) => (Cause::Misconfigured, words),
            TransportError::Certificate(words) => (Cause::Denied, words),
        };
        Refusal::of_service(cause, reason)
    })
}
