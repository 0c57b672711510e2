//! A server that is away, slow, or none: no event is at fault, and none is lost.

use std::{
    collections::BTreeSet,
    io::Write,
    net::{Ipv4Addr, TcpListener},
    time::Duration,
};

use libtest_mimic::Trial;
use posthaste_engine::{Cause, LaneSpec, Outcome, SinkError};
use posthaste_sinks::open;
use posthaste_testkit::{
    ports::Port,
    proxy::Proxy,
    servers::nats::NatsServer,
    sink_suite::{SuiteEvent, check_arrivals, lane_spec, records},
};
use tokio::time::timeout;

use super::{
    place::{Place, cause},
    trial,
};
use crate::driving::{accept, accepted, lane, plain, refusal, send};

pub(super) fn trials() -> Vec<Trial> {
    vec![
        trial(
            "restarts_and_kills_lose_nothing",
            restarts_and_kills_lose_nothing,
        ),
        trial(
            "a_half_open_connection_is_noticed",
            a_half_open_connection_is_noticed,
        ),
        trial(
            "an_aborted_lane_leaves_little_behind",
            an_aborted_lane_leaves_little_behind,
        ),
        trial("another_host_is_tried", another_host_is_tried),
        trial(
            "a_port_of_something_else_is_said",
            a_port_of_something_else_is_said,
        ),
    ]
}

/// A killed server keeps what the system has: what was accepted is there when it comes back.
async fn restarts_and_kills_lose_nothing() {
    let server = NatsServer::start();
    let place = Place::new(&server);
    let sink = place.sink();
    let events = plain(4_000);
    let (mut sent, mut taken) = (Vec::new(), BTreeSet::new());
    for (round, part) in events.chunks(1_000).enumerate() {
        let mut flight = lane(&sink).await;
        flight.submit(records(part, 0)).await;
        sent.extend_from_slice(part);
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
            let event = &part[usize::try_from(verdict.ticket).unwrap()];
            if accepted(&verdict.outcome) {
                taken.insert(event.id);
            } else {
                // A server that stops lets go of its streams before it closes connections.
                let is_put_off = matches!(verdict.outcome, Outcome::Later(_));
                if !(is_put_off && round % 2 == 1) {
                    assert_eq!(cause(&verdict.outcome).0, Cause::Connection);
                }
                rest.push(event.clone());
            }
        }
        assert_eq!(refusal(&sink).await.cause(), Cause::Connection);
        server.start_again();
        accept(&mut lane(&sink).await, &rest).await;
        taken.extend(rest.iter().map(|event| event.id));
        sent.extend(rest);
    }
    assert_eq!(taken.len(), events.len());
    check_arrivals(&sent, &taken, &place.events()).unwrap();
}

/// Nothing comes back, not even a reset: the server is asked whether it is there.
async fn a_half_open_connection_is_noticed() {
    let server = NatsServer::shared();
    let place = Place::new(server);
    let proxy = Proxy::to_local_port(server.port()).unwrap();
    let sink = open(&place.on(&server.url_through(&proxy))).unwrap();
    let spec = LaneSpec {
        lease: Duration::from_secs(4),
        ..lane_spec(1)
    };
    let mut flight = sink.open_lane(spec).await.unwrap();
    accept(&mut flight, &plain(3)).await;
    proxy.stall();
    for outcome in send(&mut flight, &plain(3)).await {
        let (why, words) = cause(&outcome);
        assert_eq!(why, Cause::Connection);
        assert!(words.contains("says nothing"), "{words}");
    }
    // Such a server gives no new lane either, and says so in time.
    assert!(refusal(&sink).await.is_retryable());
}

/// The socket is destroyed with what waits in it: no more arrives than the server had been sent.
async fn an_aborted_lane_leaves_little_behind() {
    let server = NatsServer::shared();
    let place = Place::new(server);
    let proxy = Proxy::to_local_port(server.port()).unwrap();
    let sink = open(&place.on(&server.url_through(&proxy))).unwrap();
    let mut flight = lane(&sink).await;
    accept(&mut flight, &plain(1)).await;
    proxy.stall();
    let events: Vec<SuiteEvent> = (0..2_000)
        .map(|n| SuiteEvent::new(Some(&format!("key-{n}")), vec![b'x'; 10_000]))
        .collect();
    flight.submit(records(&events, 0)).await;
    // It has begun to send: nothing is answered, so this waits in vain.
    let waiting = timeout(Duration::from_millis(200), flight.outcomes());
    assert!(waiting.await.is_err());
    flight.abort().await;
    proxy.resume();
    while proxy.connections() > 0 {
        tokio::task::yield_now().await;
    }
    let mut next = lane(&sink).await;
    accept(&mut next, &plain(1)).await;
    let (messages, _) = place.state();
    // The window of bytes, in messages.
    assert!(messages < 2 + (2 << 20) / 10_000 + 1, "{messages}");
}

async fn another_host_is_tried() {
    let (server, closed) = (NatsServer::shared(), Port::reserve());
    let place = Place::new(server);
    let (free, port) = (closed.number(), server.port());
    let url = place.on(&format!("nats://127.0.0.1:{free},127.0.0.1:{port}"));
    let sink = open(&url).unwrap();
    sink.check().await.unwrap();
    accept(&mut lane(&sink).await, &plain(10)).await;
    let nobody = open(&place.on(&format!("nats://127.0.0.1:{free}"))).unwrap();
    for error in [nobody.check().await.unwrap_err(), refusal(&nobody).await] {
        assert!(matches!(error, SinkError::Unavailable { .. }), "{error}");
    }
}

async fn a_port_of_something_else_is_said() {
    for (words, fix) in [
        (&b"220 mail.example ready\r\n"[..], "does not speak NATS"),
        // Nothing, and the end.
        (b"", "closed the connection"),
    ] {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let speaking = std::thread::spawn(move || {
            for stream in listener.incoming().take(2) {
                stream.unwrap().write_all(words).unwrap();
            }
        });
        let sink = open(&format!("nats://127.0.0.1:{port}")).unwrap();
        for error in [sink.check().await.unwrap_err(), refusal(&sink).await] {
            assert!(error.to_string().contains(fix), "{error}");
        }
        speaking.join().unwrap();
    }
}
