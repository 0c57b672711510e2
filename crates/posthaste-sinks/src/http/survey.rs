//! A check's report of the endpoint. Nothing is sent to the endpoint itself: any request might be
//! an event to it. The host is asked `OPTIONS *`, which asks for nothing.

use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::{
    Method, Request,
    header::{HOST, PROXY_AUTHORIZATION, USER_AGENT},
};
use posthaste_engine::{CheckReport, Fact};
use tokio::time::{Instant, timeout_at};

use super::{
    connection::{Dialer, Exchange},
    fault::HostFault,
    target::{Format, Target},
};

/// Connects, with TLS where the address asks for it, sees that HTTP is spoken, and reports what is
/// known.
///
/// # Errors
/// Nothing could be sent.
pub(super) async fn survey(dialer: &Dialer, limit: Duration) -> Result<CheckReport, HostFault> {
    let end = Instant::now() + limit;
    let connection = dialer.connect(end, limit).await?;
    let target = &*dialer.target;
    let peer = match target.proxy {
        Some(_) => format!("proxy {}", connection.peer),
        None => connection.peer.to_string(),
    };
    let asked = timeout_at(end, connection.ask(question(target)?)).await;
    let answer = match asked {
        Ok(Exchange::Answered(answer, connection)) => {
            if let Some(connection) = connection {
                connection.close();
            }
            answer.status
        }
        Ok(Exchange::Broken(fault)) => return Err(fault),
        Ok(Exchange::Unsent) => {
            return Err(HostFault::connection("the connection was closed at once"));
        }
        Err(_) => return Err(HostFault::slow("`OPTIONS *`", limit)),
    };
    let mut report = CheckReport::default();
    let facts = vec![
        Fact::seen("connected_to", peer),
        Fact::seen("tls", if target.tls.is_some() { "yes" } else { "no" }),
        Fact::seen("answer_to_options", answer),
        Fact::seen("format", format(target)),
        Fact::seen("signatures", target.signer.count()),
        Fact::seen("max_header_bytes", target.header_bytes_max),
        // Only an event would tell.
        Fact::new("takes_events", None::<&str>),
    ];
    report.part("endpoint", target.address(), facts);
    Ok(report)
}

/// Without any secret of the endpoint.
fn question(target: &Target) -> Result<Request<Full<Bytes>>, HostFault> {
    let uri = match (&target.proxy, &target.tls) {
        (Some(_), None) => format!("http://{}", target.authority()),
        _ => "*".to_owned(),
    };
    let mut request = Request::builder().method(Method::OPTIONS).uri(uri);
    for name in [HOST, USER_AGENT, PROXY_AUTHORIZATION] {
        if let Some(value) = target.headers.get(&name) {
            request = request.header(name, value);
        }
    }
    let request = request.body(Full::default());
    request.map_err(|error| HostFault::setup(format!("the host makes no request: {error}")))
}

fn format(target: &Target) -> &'static str {
    match target.format {
        Format::Binary => "binary",
        Format::Structured => "structured",
        Format::Raw => "raw",
    }
}
