//! One request over a connection of its own.

use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::{
    HeaderMap, Request, StatusCode,
    client::conn::http1,
    header::{HOST, HeaderValue},
};
use hyper_util::rt::TokioIo;
use tokio::task::JoinSet;

use super::endpoint::Endpoint;
use crate::transport::{KeptTls, TransportError, dial};

/// Sends a request, and reads the answer as a whole. The peer's kernel has `acknowledgement` to
/// acknowledge what was sent. Takes as long as it takes: the caller sets the limit.
///
/// # Errors
/// Why there is no answer. An answer of more bytes is none.
pub(crate) async fn ask(
    endpoint: &Endpoint,
    tls: Option<&KeptTls>,
    mut request: Request<Full<Bytes>>,
    acknowledgement: Duration,
    answer_bytes_max: usize,
) -> Result<(StatusCode, HeaderMap, Bytes), TransportError> {
    let address = endpoint.address();
    let broken = |error: &dyn std::fmt::Display| {
        TransportError::Connection(format!("asking {address}: {error}"))
    };
    let host = HeaderValue::from_str(&endpoint.authority()).map_err(|error| broken(&error))?;
    request.headers_mut().insert(HOST, host);
    let stream = dial(&endpoint.host.name, &address, tls, acknowledgement).await?;
    let handshake = http1::handshake(TokioIo::new(stream)).await;
    let (mut sender, connection) = handshake.map_err(|error| broken(&error))?;
    // It ends with this call, however that ends.
    let mut driver = JoinSet::new();
    driver.spawn(connection);
    let response = sender.send_request(request).await;
    let (head, body) = response.map_err(|error| broken(&error))?.into_parts();
    let body = Limited::new(body, answer_bytes_max).collect().await;
    let body = body.map_err(|error| broken(&error))?.to_bytes();
    Ok((head.status, head.headers, body))
}

/// A text as a part of a path, or of a form.
pub(crate) fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            true => out.push(char::from(byte)),
            false => out += &format!("%{byte:02X}"),
        }
    }
    out
}
