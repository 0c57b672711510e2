//! `relay --http`: whether the relay lives, whether it makes progress, and its numbers.
//!
//! The server has no access control, so it listens on this machine alone unless the operator
//! allows others. It ends with the relay, and no client can hold it or the relay up: a
//! connection serves one request, for a few seconds at the most, and there are only so many.

mod listener;
mod metrics;
mod store_status;

use std::{
    io,
    net::{IpAddr, SocketAddr},
    sync::Arc,
};

use axum::{
    Router,
    extract::{Request, State},
    http::{HeaderValue, StatusCode, header},
    middleware::{self, Next},
    response::{IntoResponse, Response},
    routing::get,
};
use posthaste_engine::Store;
use posthaste_relay::{DestinationHealth, Health, STANDSTILL};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tracing::{error, info};

use self::{listener::Bounded, store_status::StoreStatus};
use crate::{failure::Failure, output, task::AbortOnDrop};

const HINT: &str = "posthaste serves /healthz, /readyz and /metrics\n";
const HOST_HINT: &str = "the header `Host` names another host; ask for localhost or an address, \
                         and let a proxy do so\n";

/// The answer of `/healthz`.
pub(crate) const ALIVE: &str = "alive\n";

/// Parses an address to listen on.
///
/// # Errors
/// The error, and behind a semicolon the text to write instead.
pub(crate) fn address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| {
        "this is no address with a port; write it as 127.0.0.1:9187 or [::1]:9187".to_owned()
    })
}

/// Holds its port from now on; answers once it is told whom to watch.
#[derive(Debug)]
pub(crate) struct Server {
    listener: TcpListener,
    address: SocketAddr,
}

/// The data of the answers.
#[derive(Clone)]
struct Watched {
    health: Health,
    store: Arc<StoreStatus>,
}

impl Server {
    /// Takes the port.
    ///
    /// # Errors
    /// It is taken, or may not be listened on.
    pub(crate) async fn bind(address: SocketAddr) -> Result<Self, Failure> {
        let refused = |error: io::Error| {
            let fix = match error.kind() {
                io::ErrorKind::AddrInUse => {
                    "stop the process that listens there, or give another port (0: any free one)"
                }
                io::ErrorKind::PermissionDenied => "give a port from 1024 on",
                _ => "give an address of this machine, such as 127.0.0.1:9187",
            };
            Failure::usage(format!("--http {address}: {error}\nfix: {fix}"))
        };
        let listener = TcpListener::bind(address).await.map_err(refused)?;
        let address = listener.local_addr().map_err(refused)?;
        Ok(Self { listener, address })
    }

    /// Answers from now on.
    pub(crate) fn serve(self, health: Health, store: Arc<dyn Store>) -> AbortOnDrop {
        let store = Arc::new(StoreStatus::new(store));
        let mut router = router(Watched { health, store });
        // Elsewhere the names by which others reach this machine are theirs to choose.
        if self.address.ip().is_loopback() {
            router = router.layer(middleware::from_fn(of_this_machine));
        }
        let router = router.layer(middleware::map_response(one_answer));
        info!(
            "monitoring is at http://{address}/readyz and http://{address}/metrics",
            address = self.address
        );
        AbortOnDrop(tokio::spawn(async move {
            let served = axum::serve(Bounded::new(self.listener), router).await;
            if let Err(error) = served {
                error!("monitoring has ended: {error}");
            }
        }))
    }
}

fn router(watched: Watched) -> Router {
    Router::new()
        .route("/healthz", get(healthz))
        .route("/readyz", get(readyz))
        .route("/metrics", get(metrics))
        .fallback(async || (StatusCode::NOT_FOUND, HINT))
        .method_not_allowed_fallback(async || {
            (
                StatusCode::METHOD_NOT_ALLOWED,
                [(header::ALLOW, "GET, HEAD")],
                HINT,
            )
        })
        .with_state(watched)
}

/// One request a connection, so that its limits are the request's; and nothing is kept, since the
/// next answer may be another one.
async fn one_answer(mut response: Response) -> Response {
    let headers = response.headers_mut();
    headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// Refuses whoever asks for another host's page: a browser does so for a page of that host, whose
/// name was made to lead here.
async fn of_this_machine(request: Request, next: Next) -> Response {
    let host = request.headers().get(header::HOST);
    let is_ours = host.is_none_or(|host| host.to_str().is_ok_and(names_this_machine));
    if is_ours {
        return next.run(request).await;
    }
    (StatusCode::MISDIRECTED_REQUEST, HOST_HINT).into_response()
}

fn names_this_machine(host: &str) -> bool {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    };
    let address = name.trim_start_matches('[').trim_end_matches(']');
    name.eq_ignore_ascii_case("localhost") || address.parse::<IpAddr>().is_ok()
}

async fn healthz() -> &'static str {
    ALIVE
}

async fn readyz(State(watched): State<Watched>) -> Response {
    let destinations = watched.health.destinations();
    let is_ready = destinations.iter().all(|destination| destination.is_ready);
    let status = match is_ready {
        true => StatusCode::OK,
        false => StatusCode::SERVICE_UNAVAILABLE,
    };
    let body = json!({
        "ready": is_ready,
        "standstill_seconds": STANDSTILL.as_secs(),
        "destinations": destinations.iter().map(destination_json).collect::<Value>(),
    });
    let json = [(header::CONTENT_TYPE, "application/json")];
    (status, json, format!("{body}\n")).into_response()
}

fn destination_json(destination: &DestinationHealth) -> Value {
    json!({
        "name": destination.name,
        "ready": destination.is_ready,
        "seconds_since_progress": output::milliseconds_kept(destination.since_progress),
        "breaker": destination.counted.breaker,
        "last_error": destination.counted.last_error,
        "places_held": destination.counted.places_held,
        "places": destination.counted.places.iter().map(output::place_json).collect::<Value>(),
    })
}

async fn metrics(State(watched): State<Watched>) -> Response {
    // The store first: what is read at once is then no older than what took a while.
    let status = watched.store.fresh().await;
    match metrics::text(&watched.health, status) {
        Ok(text) => ([(header::CONTENT_TYPE, metrics::CONTENT_TYPE)], text).into_response(),
        Err(error) => {
            error!("the metrics could not be written: {error}");
            StatusCode::INTERNAL_SERVER_ERROR.into_response()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_told_apart() {
        for ours in [
            "localhost",
            "LOCALHOST:9187",
            "127.0.0.1:9187",
            "10.0.0.1",
            "[::1]:9187",
            "[::1]",
        ] {
            assert!(names_this_machine(ours), "{ours}");
        }
        for other in [
            "",
            "evil.example",
            "evil.example:9187",
            "localhost.evil.example",
            "127.0.0.1.evil.example:1",
        ] {
            assert!(!names_this_machine(other), "{other}");
        }
    }

    #[test]
    fn addresses_have_a_port() {
        for good in ["127.0.0.1:9187", "127.8.8.8:0", "[::1]:9187", "0.0.0.0:1"] {
            assert_eq!(address(good).unwrap().to_string(), good);
        }
        for wrong in [
            "",
            "9187",
            ":9187",
            "127.0.0.1",
            "localhost:9187",
            "127.0.0.1:99999",
        ] {
            let reason = address(wrong).unwrap_err();
            assert!(reason.contains("; write it as 127.0.0.1:9187"), "{reason}");
        }
    }
}
