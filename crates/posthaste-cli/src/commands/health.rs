//! `posthaste health`: asks a relay whether it makes progress, for probes without a client.

use std::time::Duration;

use axum::{
    body::Bytes,
    http::{Request, StatusCode, Uri, header, uri::Scheme},
};
use clap::Args;
use http_body_util::{BodyExt, Empty, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::{net::TcpStream, time::timeout};

use crate::{
    failure::{Failure, Status},
    http::ALIVE,
    output,
};

/// An answer comes at once, from memory.
const LIMIT: Duration = Duration::from_secs(5);
/// Names and errors of some hundred destinations.
const ANSWER_MAX: usize = 1 << 20;

#[derive(Debug, Args)]
pub(crate) struct Health {
    /// The page to ask: /readyz for progress, /healthz for life
    #[arg(
        long,
        value_name = "URL",
        default_value = "http://127.0.0.1:9187/readyz"
    )]
    url: Uri,
}

type AnyError = Box<dyn std::error::Error + Send + Sync>;

impl Health {
    pub(crate) async fn run(self) -> Result<Status, Failure> {
        let host = self.url.host().filter(|_| {
            let scheme = self.url.scheme();
            scheme == Some(&Scheme::HTTP)
        });
        let Some(host) = host else {
            return Err(Failure::usage(
                "--url: this is no address of a relay's page\nfix: write it as \
                 http://127.0.0.1:9187/readyz",
            ));
        };
        let port = self.url.port_u16().unwrap_or(80);
        // Without a login that somebody has written into it.
        let asked = format!("http://{host}:{port}{}", self.url.path());
        let none = |why: String| {
            Failure::failed(format!(
                "{asked} does not answer: {why}\nfix: start the relay with --http {host}:{port}, \
                 or give its address with --url"
            ))
        };
        let answer = timeout(LIMIT, ask(host, port, self.url.path())).await;
        let (status, body) = answer
            .map_err(|_| none(format!("nothing came within {} s", LIMIT.as_secs())))?
            .map_err(|error| none(error.to_string()))?;
        match Answer::of(status, &body) {
            Answer::Healthy => {
                output::print("healthy\n")?;
                Ok(Status::Done)
            }
            Answer::NotReady(destinations) => Err(Failure::failed(format!(
                "{destinations}\nfix: mend the cause; the log of the relay at {asked} says more"
            ))),
            Answer::Foreign => Err(Failure::failed(format!(
                "{asked} answers {status}, and not as a relay does\nfix: give the address of a \
                 relay's page /readyz or /healthz, such as http://127.0.0.1:9187/readyz"
            ))),
        }
    }
}

#[derive(Debug, PartialEq)]
enum Answer {
    Healthy,
    /// A line for each destination that stands still.
    NotReady(String),
    /// No page of a relay that tells its health: another program may have the port.
    Foreign,
}

impl Answer {
    fn of(status: StatusCode, body: &[u8]) -> Self {
        if status == StatusCode::OK && body == ALIVE.as_bytes() {
            return Self::Healthy;
        }
        let readiness: Value = serde_json::from_slice(body).unwrap_or_default();
        let ready = match readiness["standstill_seconds"].is_u64() {
            true => readiness["ready"].as_bool(),
            false => None,
        };
        let standing = not_ready(&readiness);
        match (status, ready) {
            (StatusCode::OK, Some(true)) => Self::Healthy,
            (StatusCode::SERVICE_UNAVAILABLE, Some(false)) if !standing.is_empty() => {
                Self::NotReady(standing)
            }
            _ => Self::Foreign,
        }
    }
}

async fn ask(host: &str, port: u16, path: &str) -> Result<(StatusCode, Bytes), AnyError> {
    let address = (host.trim_start_matches('[').trim_end_matches(']'), port);
    let stream = TcpStream::connect(address).await?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    let request = Request::get(path)
        .header(header::HOST, format!("{host}:{port}"))
        .body(Empty::<Bytes>::new())?;
    let exchange = async {
        let answer = sender.send_request(request).await?;
        let status = answer.status();
        let body = Limited::new(answer.into_body(), ANSWER_MAX);
        Ok((status, body.collect().await?.to_bytes()))
    };
    tokio::select! {
        answered = exchange => answered,
        // It ends after the answer, which the other branch then has.
        Err(error) = connection => Err(error.into()),
    }
}

fn not_ready(readiness: &Value) -> String {
    let destinations = readiness["destinations"].as_array().into_iter().flatten();
    let still = destinations.filter(|destination| destination["ready"] == false);
    let lines: Vec<_> = still
        .map(|destination| {
            let name = destination["name"].as_str().unwrap_or_default();
            let seconds = destination["seconds_since_progress"]
                .as_f64()
                .unwrap_or_default();
            let why = destination["last_error"].as_str();
            let why = why.map_or(String::new(), |why| format!(": {why}"));
            format!("destination `{name}` has made no progress for {seconds:.0} s{why}")
        })
        .collect();
    lines.join("\n       ")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_a_relays_own_answers_count() {
        let (ok, unavailable) = (StatusCode::OK, StatusCode::SERVICE_UNAVAILABLE);
        let ready = br#"{"ready":true,"standstill_seconds":30,"destinations":[]}"#;
        for healthy in [ALIVE.as_bytes(), ready] {
            assert_eq!(Answer::of(ok, healthy), Answer::Healthy);
            assert_eq!(Answer::of(unavailable, healthy), Answer::Foreign);
        }
        for other in [
            "",
            "{}",
            "[1]",
            "<html>",
            r#"{"ready":true}"#,
            r#"{"ready":false}"#,
        ] {
            for status in [ok, unavailable] {
                assert_eq!(
                    Answer::of(status, other.as_bytes()),
                    Answer::Foreign,
                    "{other}"
                );
            }
        }
    }

    #[test]
    fn each_destination_that_stands_still_has_a_line() {
        let of = |name: &str, ready: bool, error: Value| {
            json!({
                "name": name,
                "ready": ready,
                "seconds_since_progress": 41.3,
                "last_error": error,
            })
        };
        let destinations = [
            of("a", true, Value::Null),
            of("b", false, Value::Null),
            of("c", false, json!("connection refused")),
        ];
        assert_eq!(
            not_ready(&json!({ "destinations": destinations })),
            "destination `b` has made no progress for 41 s\n       \
             destination `c` has made no progress for 41 s: connection refused"
        );
    }
}
