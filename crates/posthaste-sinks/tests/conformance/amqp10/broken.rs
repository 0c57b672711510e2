//! A broker that is away, slow, or none: no event is at fault, and none is lost.

use std::{
    collections::BTreeSet,
    io::{Read, Write},
    net::{Ipv4Addr, TcpListener},
    time::Duration,
};

use libtest_mimic::Trial;
use posthaste_engine::{Cause, LaneSpec, SinkError};
use posthaste_sinks::open;
use posthaste_testkit::{
    ports::Port,
    proxy::Proxy,
    servers::artemis::ArtemisServer,
    sink_suite::{SuiteEvent, check_arrivals, lane_spec, records},
};
use tokio::time::timeout;

use super::{
    place::{Place, fault},
    trial,
};
use crate::driving::{accept, accepted, lane, plain, refusal, send};

pub(super) fn trials() -> Vec<Trial> {
    vec![
        trial("kills_lose_nothing", kills_lose_nothing),
        trial("a_silent_broker_is_noticed", a_silent_broker_is_noticed),
        trial("an_idle_lane_stays_open", an_idle_lane_stays_open),
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

/// Accepted messages are on the disk, and there when the broker comes back.
async fn kills_lose_nothing() {
    let server = ArtemisServer::start();
    let place = Place::new(&server);
    let sink = place.sink();
    let events = plain(2_000);
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
            match accepted(&verdict.outcome) {
                true => drop(taken.insert(event.id)),
                false => {
                    assert_eq!(fault(&verdict.outcome).cause, Cause::Connection);
                    rest.push(event.clone());
                }
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

/// Nothing comes back, not even a reset, nor the sign of life that the broker owes.
async fn a_silent_broker_is_noticed() {
    let server = ArtemisServer::shared();
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
        let why = fault(&outcome);
        assert_eq!(why.cause, Cause::Connection);
        assert!(why.reason.contains("says nothing within 2s"), "{why:?}");
    }
    // Such a broker gives no new lane either, and says so in time.
    assert!(refusal(&sink).await.is_retryable());
}

/// Both sides say that they are there, though there is nothing to send.
async fn an_idle_lane_stays_open() {
    let place = Place::new(ArtemisServer::shared());
    let spec = LaneSpec {
        lease: Duration::from_secs(4),
        ..lane_spec(1)
    };
    let mut flight = place.sink().open_lane(spec).await.unwrap();
    accept(&mut flight, &plain(3)).await;
    // More than either side may be silent.
    let idle = timeout(Duration::from_secs(5), flight.outcomes());
    assert!(idle.await.is_err());
    accept(&mut flight, &plain(3)).await;
}

/// The socket is destroyed with what waits in it: no more arrives than the broker had been sent.
async fn an_aborted_lane_leaves_little_behind() {
    let server = ArtemisServer::shared();
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
    accept(&mut lane(&sink).await, &plain(1)).await;
    let messages = place.count();
    // The window of bytes, in messages.
    assert!(messages < 2 + (2 << 20) / 10_000 + 1, "{messages}");
}

async fn another_host_is_tried() {
    let (server, closed) = (ArtemisServer::shared(), Port::reserve());
    let place = Place::new(server);
    let login = "amqp10://admin:pass%2Fword@127.0.0.1";
    let (free, port) = (closed.number(), server.port());
    let sink = open(&place.on(&format!("{login}:{free},127.0.0.1:{port}"))).unwrap();
    sink.check().await.unwrap();
    accept(&mut lane(&sink).await, &plain(10)).await;
    let nobody = open(&place.on(&format!("{login}:{free}"))).unwrap();
    for error in [nobody.check().await.unwrap_err(), refusal(&nobody).await] {
        assert!(matches!(error, SinkError::Unavailable { .. }), "{error}");
    }
}

async fn a_port_of_something_else_is_said() {
    for (words, fix) in [
        (&b"220 mail.example ready\r\n"[..], "does not speak AMQP"),
        // RabbitMQ, of AMQP 0-9-1.
        (b"AMQP\0\0\x09\x01", "another version of AMQP"),
        // Nothing, and the end.
        (b"", "closed the connection"),
    ] {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let speaking = std::thread::spawn(move || {
            for stream in listener.incoming().take(2) {
                let mut stream = stream.unwrap();
                stream.write_all(words).unwrap();
                // Bytes that nobody reads would reset the connection, and take the words away.
                stream.read_exact(&mut [0; 8]).unwrap();
            }
        });
        let sink = open(&format!("amqp10://127.0.0.1:{port}/orders")).unwrap();
        for error in [sink.check().await.unwrap_err(), refusal(&sink).await] {
            assert!(error.to_string().contains(fix), "{error}");
        }
        speaking.join().unwrap();
    }
}
