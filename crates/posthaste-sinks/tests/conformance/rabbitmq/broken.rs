//! A broker that is in trouble, away, or slow: no event is at fault, and none is lost.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use libtest_mimic::Trial;
use posthaste_engine::{Cause, Lane, LaneSpec, Outcome, RejectionKind, Sink, SinkError, Verdict};
use posthaste_sinks::open;
use posthaste_testkit::{
    ports::Port,
    proxy::Proxy,
    servers::rabbitmq::RabbitMqServer,
    sink_suite::{SuiteEvent, check_arrivals, lane_spec, records},
};
use tokio::time::timeout;

use super::{place::Place, trial};
use crate::driving::{accept, accepted, lane, plain, refusal, send, settle};

pub(super) fn trials() -> Vec<Trial> {
    vec![
        trial(
            "a_brokers_own_size_limit_is_learned",
            a_brokers_own_size_limit_is_learned,
        ),
        trial("alarms_are_back_pressure", alarms_are_back_pressure),
        trial(
            "restarts_and_kills_lose_nothing",
            restarts_and_kills_lose_nothing,
        ),
        trial(
            "a_missing_confirm_ends_the_lane",
            a_missing_confirm_ends_the_lane,
        ),
        trial(
            "a_half_open_connection_is_noticed",
            a_half_open_connection_is_noticed,
        ),
        trial(
            "an_aborted_lane_leaves_little_behind",
            an_aborted_lane_leaves_little_behind,
        ),
        trial(
            "check_and_close_leave_no_connection",
            check_and_close_leave_no_connection,
        ),
        trial("another_host_is_tried", another_host_is_tried),
        trial(
            "a_port_of_something_else_is_said",
            a_port_of_something_else_is_said,
        ),
    ]
}

async fn a_brokers_own_size_limit_is_learned() {
    let server = RabbitMqServer::start_with(&["max_message_size = 2000"]);
    let place = Place::new(&server);
    let sink = place.sink();
    let mut events = plain(20);
    for at in [5, 12] {
        events[at].payload = Some(vec![b'x'; 2_001]);
    }
    events[19].payload = Some(vec![b'x'; 2_000]);
    let mut first = lane(&sink).await;
    for (at, outcome) in send(&mut first, &events).await.into_iter().enumerate() {
        match outcome {
            Outcome::Rejected(why) => {
                assert!(at == 5 || at == 12, "{at}: {why:?}");
                assert_eq!(why.kind, RejectionKind::TooLarge);
                assert!(why.reason.contains("over the 2000 bytes"), "{}", why.reason);
            }
            Outcome::Accepted(_) => assert!(at < 5, "{at}"),
            Outcome::Unavailable(why) => {
                assert!(at != 5 && at != 12, "{at}: {why:?}");
                assert_eq!(why.cause, Cause::LaneEnded);
            }
            Outcome::Later(why) => panic!("{why:?}"),
        }
    }
    // The lesson costs one lane, not one for each event.
    let mut second = lane(&sink).await;
    for (at, outcome) in send(&mut second, &events).await.into_iter().enumerate() {
        assert_eq!(accepted(&outcome), at != 5 && at != 12, "{at}: {outcome:?}");
    }
    accept(&mut second, &plain(1)).await;
}

async fn alarms_are_back_pressure() {
    let server = RabbitMqServer::start();
    for [raise, clear] in [
        [
            ["set_vm_memory_high_watermark", "0.00001"],
            ["set_vm_memory_high_watermark", "0.6"],
        ],
        [
            ["set_disk_free_limit", "900000GB"],
            ["set_disk_free_limit", "1MB"],
        ],
    ] {
        let place = Place::new(&server);
        // The broker may sit on what it has read for as long as the alarm lasts.
        let spec = LaneSpec {
            publish_timeout: Duration::from_secs(120),
            ..lane_spec(1)
        };
        let mut lane = place.sink().open_lane(spec).await.unwrap();
        let mut sent = plain(100);
        accept(&mut lane, &sent).await;
        let mut outcomes = vec![Some(Outcome::accepted()); sent.len()];
        server.ctl(&raise);
        let reason = send_until_throttled(&mut lane, &mut sent, &mut outcomes).await;
        assert!(
            reason.contains("the broker blocks publishers: low on"),
            "{reason}"
        );
        server.ctl(&clear);
        // The messages that the broker held are accepted, and then the lane goes on.
        while !outcomes.iter().all(Option::is_some)
            || !outcomes.last().unwrap().as_ref().is_some_and(accepted)
        {
            if outcomes.iter().all(Option::is_some) {
                submit_one(&mut lane, &mut sent, &mut outcomes).await;
            }
            note(&mut outcomes, lane.outcomes().await);
        }
        let taken: Vec<SuiteEvent> = sent
            .iter()
            .zip(&outcomes)
            .filter(|(_, outcome)| outcome.as_ref().is_some_and(accepted))
            .map(|(event, _)| event.clone())
            .collect();
        // Events that were answered as throttled were not even sent.
        assert!(place.events() == taken);
    }
}

async fn submit_one(
    lane: &mut Box<dyn Lane>,
    sent: &mut Vec<SuiteEvent>,
    outcomes: &mut Vec<Option<Outcome>>,
) {
    let event = SuiteEvent::new(None, "during the alarm");
    let record = records(std::slice::from_ref(&event), sent.len() as u64);
    lane.submit(record).await;
    sent.push(event);
    outcomes.push(None);
}

/// Answers the reason.
async fn send_until_throttled(
    lane: &mut Box<dyn Lane>,
    sent: &mut Vec<SuiteEvent>,
    outcomes: &mut Vec<Option<Outcome>>,
) -> String {
    loop {
        submit_one(lane, sent, outcomes).await;
        // The broker sits on the first ones, which have no verdict for now.
        let Ok(verdicts) = timeout(Duration::from_millis(20), lane.outcomes()).await else {
            continue;
        };
        let throttled = verdicts.iter().find_map(|verdict| match &verdict.outcome {
            Outcome::Unavailable(why) if why.cause == Cause::Throttled => {
                assert!(why.wait.is_some());
                Some(why.reason.clone())
            }
            _ => None,
        });
        note(outcomes, verdicts);
        if let Some(reason) = throttled {
            return reason;
        }
    }
}

fn note(outcomes: &mut [Option<Outcome>], verdicts: Vec<Verdict>) {
    for verdict in verdicts {
        outcomes[usize::try_from(verdict.ticket).unwrap()] = Some(verdict.outcome);
    }
}

/// Everything is sent again until it is accepted, as the engine does.
async fn restarts_and_kills_lose_nothing() {
    type Blow = fn(&RabbitMqServer);
    let blows: [Blow; 3] = [RabbitMqServer::stop, RabbitMqServer::kill9, |server| {
        server.pause();
        server.kill9();
    }];
    let server = RabbitMqServer::start();
    let place = Place::new(&server);
    let sink = place.sink();
    say_goodbye(&server, &sink).await;
    let mut sent: Vec<SuiteEvent> = Vec::new();
    let mut all_accepted = BTreeSet::new();
    for blow in blows {
        let events = plain(3_000);
        let mut flight = lane(&sink).await;
        let (before, after) = events.split_at(1_000);
        accept(&mut flight, before).await;
        flight.submit(records(after, 0)).await;
        blow(&server);
        let outcomes = settle(&mut flight, after.len()).await;
        sent.extend_from_slice(&events);
        all_accepted.extend(before.iter().map(|event| event.id));
        let mut missing = Vec::new();
        for (event, outcome) in after.iter().zip(outcomes) {
            match outcome {
                Outcome::Accepted(_) => drop(all_accepted.insert(event.id)),
                Outcome::Unavailable(why) => {
                    assert_eq!(why.cause, Cause::Connection, "{why:?}");
                    missing.push(event.clone());
                }
                other => panic!("{other:?}"),
            }
        }
        for error in [sink.check().await.unwrap_err(), refusal(&sink).await] {
            assert!(matches!(error, SinkError::Unavailable { .. }), "{error:?}");
        }
        server.start_again();
        sink.check().await.unwrap();
        accept(&mut lane(&sink).await, &missing).await;
        all_accepted.extend(missing.iter().map(|event| event.id));
        sent.extend(missing);
    }
    // On disk: another kill takes nothing away.
    server.kill9();
    server.start_again();
    assert_eq!(all_accepted.len(), 9_000);
    check_arrivals(&sent, &all_accepted, &place.events()).unwrap();
}

/// A planned end is no accident in the broker's log.
async fn say_goodbye(server: &RabbitMqServer, sink: &Arc<dyn Sink>) {
    sink.check().await.unwrap();
    let mut flight = lane(sink).await;
    flight.submit(records(&[], 0)).await;
    assert!(flight.close(Duration::from_secs(60)).await.is_empty());
    // The broker writes its log when it likes.
    let ends = |log: &str| {
        let ours = |line: &&str| line.contains("closing AMQP") && line.contains("posthaste");
        log.lines()
            .filter(ours)
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    while ends(&server.log()).len() < 2 {
        tokio::task::yield_now().await;
    }
    for end in ends(&server.log()) {
        assert!(end.contains("[info]"), "{end}");
    }
}

/// "Done, but who knows?": unavailable, and it arrived all the same.
async fn a_missing_confirm_ends_the_lane() {
    let server = RabbitMqServer::shared();
    let place = Place::new(server);
    let proxy = Proxy::to_local_port(server.port()).unwrap();
    let sink = open(&place.on(&server.url_through(&proxy, "/"))).unwrap();
    let spec = LaneSpec {
        publish_timeout: Duration::from_secs(1),
        ..lane_spec(1)
    };
    let mut flight = sink.open_lane(spec).await.unwrap();
    proxy.hold_answers();
    let events = plain(5);
    for outcome in send(&mut flight, &events).await {
        let Outcome::Unavailable(why) = outcome else {
            panic!("{outcome:?}");
        };
        assert_eq!(why.cause, Cause::Unknown);
        assert!(
            why.reason.contains("no confirm within 900ms"),
            "{}",
            why.reason
        );
    }
    let mut arrived = Vec::new();
    while arrived.len() < events.len() {
        arrived.extend(place.events());
    }
    assert_eq!(arrived, events);
}

/// Nothing comes back, not even a reset: heartbeats tell.
async fn a_half_open_connection_is_noticed() {
    let server = RabbitMqServer::shared();
    let place = Place::new(server);
    let proxy = Proxy::to_local_port(server.port()).unwrap();
    let sink = open(&place.on(&server.url_through(&proxy, "/"))).unwrap();
    let spec = LaneSpec {
        lease: Duration::from_secs(4),
        ..lane_spec(1)
    };
    let mut flight = sink.open_lane(spec).await.unwrap();
    accept(&mut flight, &plain(3)).await;
    proxy.stall();
    for outcome in send(&mut flight, &plain(3)).await {
        let Outcome::Unavailable(why) = outcome else {
            panic!("{outcome:?}");
        };
        assert_eq!(why.cause, Cause::Connection);
        assert!(
            why.reason.contains("two heartbeats of 1s"),
            "{}",
            why.reason
        );
    }
    // Such a broker gives no new lane either, and says so in time.
    assert!(refusal(&sink).await.is_retryable());
}

async fn an_aborted_lane_leaves_little_behind() {
    let server = RabbitMqServer::shared();
    let place = Place::new(server);
    let proxy = Proxy::to_local_port(server.port()).unwrap();
    let sink = open(&place.on(&server.url_through(&proxy, "/"))).unwrap();
    let mut flight = lane(&sink).await;
    proxy.stall();
    for batch in plain(10_000).chunks(1_000) {
        flight.submit(records(batch, 0)).await;
    }
    // It has begun to send: nothing is answered, so this waits in vain.
    assert!(
        timeout(Duration::from_millis(200), flight.outcomes())
            .await
            .is_err()
    );
    flight.abort().await;
    proxy.resume();
    while proxy.connections() > 0 {
        tokio::task::yield_now().await;
    }
    let marker = plain(1);
    accept(&mut lane(&place.sink()).await, &marker).await;
    let arrived = place.events();
    assert!(
        arrived.len() <= 65,
        "{} events of an aborted lane arrived",
        arrived.len() - 1
    );
}

async fn check_and_close_leave_no_connection() {
    let server = RabbitMqServer::shared();
    let place = Place::new(server);
    let proxy = Proxy::to_local_port(server.port()).unwrap();
    let sink = open(&place.on(&server.url_through(&proxy, "/"))).unwrap();
    sink.check().await.unwrap();
    lane(&sink).await.close(Duration::from_secs(60)).await;
    lane(&sink).await.abort().await;
    drop(lane(&sink).await);
    while proxy.connections() > 0 {
        tokio::task::yield_now().await;
    }
}

async fn another_host_is_tried() {
    let server = RabbitMqServer::shared();
    let place = Place::new(server);
    let nobody = Port::reserve();
    let silent = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let url = format!(
        "amqp://guest:guest@127.0.0.1:{},127.0.0.1:{},127.0.0.1:{}",
        nobody.number(),
        silent.local_addr().unwrap().port(),
        server.port(),
    );
    let sink = open(&place.on(&url)).unwrap();
    sink.check().await.unwrap();
    accept(&mut lane(&sink).await, &plain(3)).await;
}

async fn a_port_of_something_else_is_said() {
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0))
        .await
        .unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            use tokio::io::AsyncWriteExt;
            stream
                .write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n")
                .await
                .unwrap();
        }
    });
    let sink = open(&format!("amqp://127.0.0.1:{port}?exchange=x")).unwrap();
    let error = sink.check().await.unwrap_err();
    assert!(
        matches!(error, SinkError::Misconfigured { .. }),
        "{error:?}"
    );
    assert!(error.to_string().contains("does not speak AMQP"), "{error}");
}
