//! A server that is away, slow, or none: no event is at fault, and none is lost.

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
    servers::redis::RedisServer,
    sink_suite::{lane_spec, records},
};

use super::{
    place::{Place, cause, spec},
    trial,
};
use crate::driving::{accept, accepted, lane, plain, refusal, send};

pub(super) fn trials() -> Vec<Trial> {
    vec![
        trial(
            "restarts_and_kills_lose_and_repeat_nothing",
            restarts_and_kills_lose_and_repeat_nothing,
        ),
        trial("a_silent_server_is_noticed", a_silent_server_is_noticed),
        trial("an_idle_connection_is_used", an_idle_connection_is_used),
        trial("another_host_is_tried", another_host_is_tried),
        trial(
            "a_port_of_something_else_is_said",
            a_port_of_something_else_is_said,
        ),
    ]
}

/// With `appendfsync always` what was accepted is there after a kill; and with the ids beside it no
/// event is there twice, though each whose fate was unknown is sent again.
async fn restarts_and_kills_lose_and_repeat_nothing() {
    let server = RedisServer::start();
    let place = Place::new(&server);
    let (sink, scope) = (place.sink(), lane_spec(0).scope);
    let events = plain(4_000);
    let mut number = 0;
    let mut next = || {
        number += 1;
        spec(&scope, 1, number)
    };
    for (round, part) in events.chunks(1_000).enumerate() {
        let mut flight = sink.open_lane(next()).await.unwrap();
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
            if !accepted(&verdict.outcome) {
                let cause = cause(&verdict.outcome).0;
                assert!([Cause::Connection, Cause::LaneEnded].contains(&cause));
                rest.push(usize::try_from(verdict.ticket).unwrap());
            }
        }
        assert_eq!(refusal(&sink).await.cause(), Cause::Connection);
        server.start_again();
        rest.sort_unstable();
        let rest: Vec<_> = rest.into_iter().map(|at| part[at].clone()).collect();
        accept(&mut sink.open_lane(next()).await.unwrap(), &rest).await;
    }
    let there: Vec<_> = place.events("suite").iter().map(|event| event.id).collect();
    let distinct: BTreeSet<_> = there.iter().copied().collect();
    assert_eq!((there.len(), distinct.len()), (events.len(), events.len()));
    assert!(events.iter().all(|event| distinct.contains(&event.id)));
}

/// Nothing comes back, not even a reset. Events that it adds later are known when they come again.
async fn a_silent_server_is_noticed() {
    let server = RedisServer::start();
    let place = Place::new(&server);
    let (sink, scope) = (place.sink(), lane_spec(0).scope);
    let short = |number| LaneSpec {
        publish_timeout: Duration::from_secs(1),
        ..spec(&scope, 1, number)
    };
    let mut flight = sink.open_lane(short(1)).await.unwrap();
    let events = plain(6);
    accept(&mut flight, &events[..3]).await;
    server.pause();
    for outcome in send(&mut flight, &events[3..]).await {
        let (why, words) = cause(&outcome);
        assert_eq!(why, Cause::Unknown);
        assert!(words.contains("within 900ms"), "{words}");
    }
    let Err(error) = sink.open_lane(short(2)).await else {
        panic!("a lane was given");
    };
    assert!(error.is_retryable(), "{error}");
    server.resume();
    let mut next = sink.open_lane(short(3)).await.unwrap();
    accept(&mut next, &events[3..]).await;
    assert_eq!(place.events("suite"), events);
}

/// A server or a firewall would close it, and the next event meet that.
async fn an_idle_connection_is_used() {
    let server = RedisServer::start();
    let place = Place::new(&server);
    // A user without the right to ask is answered, too.
    let mut client = server.client();
    client.ask(&["ACL", "SETUSER", "mute", "on", ">w", "~*", "+@all", "-ping"]);
    for login in ["default:", "mute:w"] {
        client.ask(&["CONFIG", "RESETSTAT"]);
        let url = match login {
            "default:" => server.url(),
            login => server.url_of(login),
        };
        let short = LaneSpec {
            publish_timeout: Duration::from_millis(300),
            ..lane_spec(1)
        };
        let mut lane = open(&place.on(&url))
            .unwrap()
            .open_lane(short)
            .await
            .unwrap();
        accept(&mut lane, &plain(3)).await;
        client.wait_until(&["INFO", "commandstats"], |stats| {
            stats.contains("cmdstat_ping")
        });
        accept(&mut lane, &plain(3)).await;
    }
    assert_eq!(place.count("suite"), 12);
}

async fn another_host_is_tried() {
    let (server, closed) = (RedisServer::shared(), Port::reserve());
    let place = Place::new(server);
    let (free, port) = (closed.number(), server.port());
    let url = place.on(&format!("redis://127.0.0.1:{free},127.0.0.1:{port}"));
    let sink = open(&url).unwrap();
    sink.check().await.unwrap();
    accept(&mut lane(&sink).await, &plain(10)).await;
    let nobody = open(&place.on(&format!("redis://127.0.0.1:{free}"))).unwrap();
    for error in [nobody.check().await.unwrap_err(), refusal(&nobody).await] {
        assert!(matches!(error, SinkError::Unavailable { .. }), "{error}");
    }
}

async fn a_port_of_something_else_is_said() {
    for (words, fix) in [
        // Read before the question was sent, it ends the connection.
        (&b"220 mail.example ready\r\n"[..], "correct host"),
        // Nothing, and the end.
        (b"", "without an answer"),
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
        let sink = open(&format!("redis://127.0.0.1:{port}")).unwrap();
        for error in [sink.check().await.unwrap_err(), refusal(&sink).await] {
            assert!(error.to_string().contains(fix), "{error}");
        }
        speaking.join().unwrap();
    }
}
