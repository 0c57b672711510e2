//! A broker that is away, slow, or none: no event is at fault, and none is lost.

use std::{
    collections::BTreeSet,
    io::{self, Write},
    net::{Ipv4Addr, Shutdown, TcpListener},
    time::Duration,
};

use libtest_mimic::Trial;
use posthaste_engine::{Cause, LaneSpec, SinkError};
use posthaste_sinks::open;
use posthaste_testkit::{
    ports::Port,
    proxy::Proxy,
    servers::mqtt::MqttServer,
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
        trial("a_restart_loses_nothing", a_restart_loses_nothing),
        trial("a_killed_broker_comes_back", a_killed_broker_comes_back),
        trial("a_silent_broker_is_noticed", a_silent_broker_is_noticed),
        trial("an_idle_connection_stays", an_idle_connection_stays),
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

/// Sends all of it while the broker is stopped so; answers the events that were not accepted.
async fn send_and_lose(
    place: &Place<'_>,
    events: &[SuiteEvent],
    stop: impl FnOnce(),
) -> Vec<SuiteEvent> {
    let mut flight = lane(&place.sink()).await;
    flight.submit(records(events, 0)).await;
    let mut verdicts = flight.outcomes().await;
    stop();
    while verdicts.len() < events.len() {
        verdicts.extend(flight.outcomes().await);
    }
    let mut rest = Vec::new();
    for verdict in verdicts {
        if !accepted(&verdict.outcome) {
            assert_eq!(cause(&verdict.outcome).0, Cause::Connection);
            rest.push(usize::try_from(verdict.ticket).unwrap());
        }
    }
    rest.sort_unstable();
    assert_eq!(refusal(&place.sink()).await.cause(), Cause::Connection);
    rest.into_iter().map(|at| events[at].clone()).collect()
}

/// A broker that is stopped in order writes down what its subscribers have not had.
async fn a_restart_loses_nothing() {
    let server = MqttServer::start();
    let place = Place::new(&server);
    let (mut sent, mut taken) = (Vec::new(), BTreeSet::new());
    for part in plain(4_000).chunks(1_000) {
        let rest = send_and_lose(&place, part, || server.stop()).await;
        server.start_again();
        place.subscribe_again();
        accept(&mut lane(&place.sink()).await, &rest).await;
        taken.extend(part.iter().map(|event| event.id));
        sent.extend([part, &rest].concat());
    }
    check_arrivals(&sent, &taken, &place.events()).unwrap();
}

/// It has lost its subscribers then, and what it held for them: it tells the disk of neither before
/// it acknowledges. A subscriber that was there has had all that was accepted.
async fn a_killed_broker_comes_back() {
    let server = MqttServer::start();
    let place = Place::new(&server);
    let mut subscriber = server.client("beside");
    subscriber.subscribe(&format!("{}/#", place.name), 0);
    let reading = std::thread::spawn(move || subscriber.messages_until_the_end());
    let events = plain(2_000);
    let rest = send_and_lose(&place, &events, || server.kill9()).await;
    let had = reading.join().unwrap();
    assert!(had.len() >= events.len() - rest.len(), "{}", had.len());
    server.start_again();
    let again = Place::new(&server);
    accept(&mut lane(&again.sink()).await, &rest).await;
    assert_eq!(again.events(), rest);
}

/// Nothing comes back, not even a reset: the broker is asked whether it is there.
async fn a_silent_broker_is_noticed() {
    let server = MqttServer::shared();
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
    // Such a broker gives no new lane either, and says so in time.
    assert!(refusal(&sink).await.is_retryable());
}

/// The broker ends a connection on which it hears nothing for one and a half seconds.
async fn an_idle_connection_stays() {
    let server = MqttServer::start();
    let place = Place::new(&server);
    let spec = LaneSpec {
        lease: Duration::from_secs(4),
        ..lane_spec(1)
    };
    let mut flight = place.sink().open_lane(spec).await.unwrap();
    accept(&mut flight, &plain(3)).await;
    // Longer than it would wait. The lane is never asked anything meanwhile.
    tokio::time::sleep(Duration::from_secs(4)).await;
    accept(&mut flight, &plain(3)).await;
    assert_eq!(place.events().len(), 6);
}

/// The socket is destroyed with what waits in it: no more arrives than the broker had been sent.
async fn an_aborted_lane_leaves_little_behind() {
    let server = MqttServer::start_with(&["max_inflight_messages 0"]);
    let place = Place::new(&server);
    let proxy = Proxy::to_local_port(server.port()).unwrap();
    let sink = open(&place.on(&server.url_through(&proxy))).unwrap();
    let mut flight = lane(&sink).await;
    accept(&mut flight, &plain(1)).await;
    proxy.stall();
    let events: Vec<SuiteEvent> = (0..400)
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
    accept(&mut lane(&sink).await, &plain(1)).await;
    // The window of bytes, in messages.
    let messages = place.messages().len();
    assert!(messages < 2 + (2 << 20) / 10_000 + 1, "{messages}");
}

async fn another_host_is_tried() {
    let (server, closed) = (MqttServer::shared(), Port::reserve());
    let place = Place::new(server);
    let (free, port) = (closed.number(), server.port());
    let url = place.on(&format!("mqtt://127.0.0.1:{free},127.0.0.1:{port}"));
    let sink = open(&url).unwrap();
    sink.check().await.unwrap();
    accept(&mut lane(&sink).await, &plain(10)).await;
    let nobody = open(&place.on(&format!("mqtt://127.0.0.1:{free}"))).unwrap();
    for error in [nobody.check().await.unwrap_err(), refusal(&nobody).await] {
        assert!(matches!(error, SinkError::Unavailable { .. }), "{error}");
    }
}

async fn a_port_of_something_else_is_said() {
    for (words, fix) in [
        (&b"220 mail.example ready\r\n"[..], "does not speak MQTT"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "does not speak MQTT"),
        // A broker that knows no 5.
        (b"\x20\x02\0\x01", "add `version=3.1.1`"),
        (b"\x20\x03\0\x9D\x00", "correct the address"),
        (b"\xF0\x02\x18\0", "AUTH"),
        // Nothing, and the end.
        (b"", "closed the connection"),
    ] {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let speaking = std::thread::spawn(move || {
            for stream in listener.incoming().take(2) {
                let mut stream = stream.unwrap();
                stream.write_all(words).unwrap();
                // Closed with the question unread, it would be reset. The sink may hang up first.
                let _ = stream.shutdown(Shutdown::Write);
                let _ = io::copy(&mut stream, &mut io::sink());
            }
        });
        let sink = open(&format!("mqtt://127.0.0.1:{port}")).unwrap();
        for error in [sink.check().await.unwrap_err(), refusal(&sink).await] {
            assert!(error.to_string().contains(fix), "{error}");
        }
        speaking.join().unwrap();
    }
}
