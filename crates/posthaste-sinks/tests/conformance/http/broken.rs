//! An endpoint that is away, slow, or none: no event is at fault, and none is lost.

use std::collections::BTreeSet;

use libtest_mimic::Trial;
use posthaste_engine::{Cause, Outcome, SinkError};
use posthaste_sinks::open;
use posthaste_testkit::{
    ports::Port,
    proxy::Proxy,
    servers::http::WebhookServer,
    sink_suite::{SuiteEvent, lane_spec, records},
};
use serde_json::json;

use super::{
    place::{Place, cause, short},
    trial,
};
use crate::driving::{accept, lane, plain, refusal, send};

pub(super) fn trials() -> Vec<Trial> {
    vec![
        trial(
            "kills_and_restarts_lose_nothing",
            kills_and_restarts_lose_nothing,
        ),
        trial("a_silent_endpoint_is_noticed", a_silent_endpoint_is_noticed),
        trial(
            "an_answer_that_is_cut_is_none",
            an_answer_that_is_cut_is_none,
        ),
        trial(
            "a_connection_that_breaks_ends_no_lane",
            a_connection_that_breaks_ends_no_lane,
        ),
        trial(
            "bodies_of_answers_are_bounded",
            bodies_of_answers_are_bounded,
        ),
        trial("idle_connections_are_closed", idle_connections_are_closed),
        trial(
            "a_connection_that_was_closed_meets_no_event",
            a_connection_that_was_closed_meets_no_event,
        ),
        trial("requests_are_bounded", requests_are_bounded),
        trial(
            "private_addresses_are_refused",
            private_addresses_are_refused,
        ),
        trial(
            "a_port_of_something_else_is_said",
            a_port_of_something_else_is_said,
        ),
        trial(
            "a_check_sends_the_endpoint_nothing",
            a_check_sends_the_endpoint_nothing,
        ),
    ]
}

/// Accepted events are there after a kill; an event whose fate was unknown comes again under the
/// same id.
async fn kills_and_restarts_lose_nothing() {
    let server = WebhookServer::start();
    let place = Place::new(&server);
    let sink = place.sink();
    let events = plain(2_000);
    for (round, part) in events.chunks(500).enumerate() {
        let mut flight = sink.open_lane(lane_spec(round as u64)).await.unwrap();
        flight.submit(records(part, 0)).await;
        let mut verdicts = flight.outcomes().await;
        match round % 2 {
            0 => server.kill9(),
            _ => server.stop(),
        }
        while verdicts.len() < part.len() {
            verdicts.extend(flight.outcomes().await);
        }
        let mut rest = Vec::new();
        for verdict in verdicts {
            match &verdict.outcome {
                Outcome::Accepted(_) => continue,
                // A dying process leaves connections that it has not taken to be reset: the host
                // let us connect.
                Outcome::Later(why) if why.is_silent => {}
                outcome => {
                    let why = cause(outcome).0;
                    assert!(
                        [Cause::Connection, Cause::LaneEnded].contains(&why),
                        "{verdict:?}"
                    );
                }
            }
            rest.push(usize::try_from(verdict.ticket).unwrap());
        }
        assert_eq!(refusal(&sink).await.cause(), Cause::Connection);
        server.start_again();
        let rest: Vec<_> = rest.into_iter().map(|at| part[at].clone()).collect();
        accept(&mut lane(&sink).await, &rest).await;
    }
    let there: Vec<_> = place.events().iter().map(|event| event.id).collect();
    let distinct: BTreeSet<_> = there.iter().copied().collect();
    assert_eq!(distinct.len(), events.len());
    // A lane has sixteen requests under way at the most.
    assert!(there.len() <= events.len() + 4 * 16, "{}", there.len());
    assert!(events.iter().all(|event| distinct.contains(&event.id)));
}

/// Nothing comes back, not even a reset.
async fn a_silent_endpoint_is_noticed() {
    let server = WebhookServer::start();
    let place = Place::new(&server);
    let sink = place.sink();
    let mut flight = sink.open_lane(short(1)).await.unwrap();
    let events = plain(6);
    accept(&mut flight, &events[..3]).await;
    server.pause();
    for outcome in send(&mut flight, &events[3..]).await {
        let (why, words, _) = cause(&outcome);
        assert_eq!(why, Cause::Unknown, "{words}");
        assert!(words.contains("within 900ms"), "{words}");
    }
    server.resume();
    let mut next = sink.open_lane(short(2)).await.unwrap();
    accept(&mut next, &events[3..]).await;
}

/// The endpoint may have taken the event: it comes again, under the same id.
async fn an_answer_that_is_cut_is_none() {
    let place = Place::new(WebhookServer::shared());
    let sink = place.sink();
    for act in ["reset", "cut"] {
        // On the lane's own connection, and on two new ones.
        place.fail(&json!({ "act": act, "store": true, "times": 3 }));
        let event = [SuiteEvent::new(Some("key"), "x")];
        let outcomes = send(&mut lane(&sink).await, &event).await;
        assert_eq!(cause(&outcomes[0]).0, Cause::Connection, "{act}");
        accept(&mut lane(&sink).await, &event).await;
        let id = event[0].id.to_string();
        let told = place.told("webhook-id");
        assert!(told[told.len() - 4..].iter().all(|of| *of == id));
    }
}

/// A server may close a connection at any time: the request is sent again at once, on another one.
async fn a_connection_that_breaks_ends_no_lane() {
    let place = Place::new(WebhookServer::shared());
    let mut flight = lane(&place.sink()).await;
    for act in ["reset", "cut"] {
        accept(&mut flight, &plain(20)).await;
        place.fail(&json!({ "act": act, "times": 2 }));
        accept(&mut flight, &plain(20)).await;
    }
    assert_eq!(place.requests().len(), 80);
}

async fn bodies_of_answers_are_bounded() {
    let place = Place::new(WebhookServer::shared());
    let sink = place.sink();
    place.fail(&json!({ "act": "endless", "store": true }));
    let mut flight = lane(&sink).await;
    accept(&mut flight, &plain(40)).await;
    assert_eq!(place.requests().len(), 40);
    place.fail(&json!({ "act": "drip", "store": true }));
    let mut flight = sink.open_lane(short(1)).await.unwrap();
    let outcomes = send(&mut flight, &plain(1)).await;
    assert_eq!(cause(&outcomes[0]).0, Cause::Unknown);
}

/// Before the endpoint closes it, and a request meets that.
async fn idle_connections_are_closed() {
    let server = WebhookServer::shared();
    let place = Place::new(server);
    let proxy = Proxy::to_local_port(server.port()).unwrap();
    let url = server.url_through(&proxy, &place.name);
    let sink = open(&format!("{url}?allow_private=true")).unwrap();
    let mut flight = lane(&sink).await;
    accept(&mut flight, &plain(20)).await;
    while proxy.connections() > 0 {
        tokio::task::yield_now().await;
    }
    accept(&mut flight, &plain(20)).await;
}

async fn a_connection_that_was_closed_meets_no_event() {
    let server = WebhookServer::shared();
    let place = Place::new(server);
    let proxy = Proxy::to_local_port(server.port()).unwrap();
    let url = server.url_through(&proxy, &place.name);
    let sink = open(&format!("{url}?allow_private=true")).unwrap();
    let mut flight = lane(&sink).await;
    for _ in 0..5 {
        accept(&mut flight, &plain(20)).await;
        proxy.cut();
        while proxy.connections() > 0 {
            tokio::task::yield_now().await;
        }
        // The end of a connection is news for its task, which has to have its turn.
        tokio::time::sleep(std::time::Duration::from_millis(200)).await;
    }
    assert_eq!(place.requests().len(), 100);
}

async fn requests_are_bounded() {
    let server = WebhookServer::shared();
    let place = Place::new(server);
    let proxy = Proxy::to_local_port(server.port()).unwrap();
    let url = server.url_through(&proxy, &place.name);
    let sink = open(&format!("{url}?allow_private=true&requests=3")).unwrap();
    let info = sink.info();
    assert_eq!((info.requests_max, info.in_flight_events_max), (Some(3), 3));
    let mut flight = lane(&sink).await;
    flight.submit(records(&plain(300), 0)).await;
    let (mut answered, mut most) = (0, 0);
    while answered < 300 {
        answered += flight.outcomes().await.len();
        most = most.max(proxy.connections());
    }
    assert!((1..=3).contains(&most), "{most}");
}

async fn private_addresses_are_refused() {
    let server = WebhookServer::shared();
    let place = Place::new(server);
    let port = server.port();
    for host in [
        "127.0.0.1",
        "localhost",
        "0.0.0.0",
        "[::1]",
        "[::ffff:127.0.0.1]",
        "127.1",
    ] {
        let sink = open(&format!("http://{host}:{port}/{}", place.name)).unwrap();
        for error in [sink.check().await.unwrap_err(), refusal(&sink).await] {
            let said = error.to_string();
            assert!(matches!(error, SinkError::Misconfigured { .. }), "{said}");
            assert!(said.contains("`allow_private=true`"), "{said}");
        }
    }
    assert!(place.requests().is_empty());
}

async fn a_port_of_something_else_is_said() {
    let place = Place::new(WebhookServer::shared());
    let sink = place.sink();
    place.fail(&json!({ "act": "garbage" }));
    let outcomes = send(&mut lane(&sink).await, &plain(1)).await;
    let (why, words, _) = cause(&outcomes[0]);
    assert_eq!(why, Cause::Misconfigured);
    assert!(words.contains("does not speak HTTP"), "{words}");
    let free = Port::reserve();
    let nobody = open(&format!(
        "http://127.0.0.1:{}/?allow_private=true",
        free.number()
    ))
    .unwrap();
    assert_eq!(refusal(&nobody).await.cause(), Cause::Connection);
    let nowhere = open("http://no-such-host.invalid/").unwrap();
    let error = refusal(&nowhere).await;
    assert_eq!(error.cause(), Cause::Connection);
    assert!(
        error.to_string().contains("`no-such-host.invalid`"),
        "{error}"
    );
}

/// Any request might be an event to the endpoint: only the host is asked.
async fn a_check_sends_the_endpoint_nothing() {
    let place = Place::new(WebhookServer::shared());
    // Kept whatever it is.
    place.fail(&json!({ "store": true }));
    let sink = place.sink_with("&secret=whsec_8pEY1cYeWSbsNMbO2hJWR6zKhJmGXPoFpQ5pxlYkTzM=");
    let report = sink.check().await.unwrap();
    let facts = &report.parts()[0].facts;
    let fact = |name| {
        facts
            .iter()
            .find(|fact| fact.name == name)
            .unwrap()
            .value
            .clone()
    };
    assert_eq!(fact("signatures").as_deref(), Some("1"));
    assert_eq!(fact("tls").as_deref(), Some("no"));
    assert_eq!(
        fact("answer_to_options").as_deref(),
        Some("405 Method Not Allowed")
    );
    assert_eq!(fact("takes_events"), None);
    assert!(place.requests().is_empty());
}
