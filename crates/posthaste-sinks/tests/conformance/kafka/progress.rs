//! The progress topic as people make it, and as it becomes.

use libtest_mimic::Trial;
use posthaste_engine::{LaneSpec, Partitions, SinkError};
use posthaste_testkit::servers::kafka::KafkaServer;
use rdkafka::{
    ClientConfig,
    producer::{BaseProducer, BaseRecord, Producer as _},
};
use uuid::Uuid;

use super::{
    brokers::{Broker, create_topic, noise},
    transactional::{Scene, expect_all_accepted, some, take_over},
    trial,
};
use crate::trial::HANG;

pub(super) fn trials() -> Vec<Trial> {
    macro_rules! trials {
        ($($test:ident),+ $(,)?) => { vec![$(trial(stringify!($test), $test)),+] };
    }
    trials![
        a_progress_topic_that_is_slow_to_read_is_read_in_several_attempts,
        a_progress_topic_of_large_segments_is_refused_by_check,
        a_progress_topic_that_is_told_to_forget_is_noticed_by_the_next_lane,
    ]
}

/// Read from the beginning by each attempt, it would never be read to its end.
async fn a_progress_topic_that_is_slow_to_read_is_read_in_several_attempts() {
    const OTHERS: u64 = 300;
    let broker = Broker::take();
    let server = broker.server();
    let scene = Scene::new(server);
    let (first, heir) = (Uuid::new_v4(), Uuid::new_v4());
    let events = scene.events(60);
    let mut lane = scene.lane(&scene.sink(&server.direct()), first, &[]).await;
    expect_all_accepted(&mut lane, &events[..30]).await;
    fill(server, &scene.progress, OTHERS);
    expect_all_accepted(&mut lane, &events[30..]).await;
    lane.abort().await;
    server.settle_transactions();

    broker.proxy().slow(1_000_000);
    let sink = scene.sink(&broker.bootstrap());
    let spec = LaneSpec {
        publish_timeout: std::time::Duration::from_secs(3),
        ..scene.spec(heir, Partitions::all_of(64).unwrap(), &[first])
    };
    let mut said = Vec::new();
    let mut lane = loop {
        let mut lane = sink.open_lane(spec.clone()).await.unwrap();
        match lane.take_over().await {
            Ok(_) => break lane,
            Err(error) => said.push(error.to_string()),
        }
        lane.abort().await;
    };
    assert!(!said.is_empty(), "read at once: the test proves nothing");
    for said in said {
        assert!(said.contains("KB are read"), "{said}");
        assert!(said.contains("segment.bytes=8388608"), "{said}");
    }
    broker.proxy().resume();
    expect_all_accepted(&mut lane, &events).await;
    scene.expect_once(server, &events);
}

/// Writes what other relays might have: so many records of 30 KB.
fn fill(server: &KafkaServer, topic: &str, records: u64) {
    let others: BaseProducer = ClientConfig::new()
        .set("bootstrap.servers", server.direct())
        .create()
        .unwrap();
    for n in 0..records {
        let (key, value) = (format!("other-{n}"), noise(n, 30_000));
        let record = BaseRecord::to(topic).key(&key).payload(&value);
        others.send(record).map_err(|(error, _)| error).unwrap();
    }
    others.flush(HANG).unwrap();
}

async fn a_progress_topic_of_large_segments_is_refused_by_check() {
    let server = KafkaServer::shared();
    let scene = Scene::new(server);
    // Kafka's own segments are a gigabyte large.
    create_topic(server, &scene.progress, 1, &[("cleanup.policy", "compact")]);
    let sink = scene.sink(&server.bootstrap());
    let error = sink.check().await.unwrap_err();
    assert!(matches!(error, SinkError::Misconfigured { .. }), "{error}");
    for part in [
        &*scene.progress,
        "segment.bytes=1073741824",
        "kafka-configs.sh",
    ] {
        assert!(error.to_string().contains(part), "{error}");
    }
    // A relay that runs goes on: it is slow to take over, and no more.
    let mut lane = scene.lane(&sink, Uuid::new_v4(), &[]).await;
    expect_all_accepted(&mut lane, &scene.events(1)).await;
    let small = [("cleanup.policy", "compact"), ("segment.bytes", "8388608")];
    server.configure_topic(&scene.progress, &small);
    sink.check().await.unwrap();
}

async fn a_progress_topic_that_is_told_to_forget_is_noticed_by_the_next_lane() {
    let server = KafkaServer::shared();
    let scene = Scene::new(server);
    let sink = scene.sink(&server.bootstrap());
    let relay = Uuid::new_v4();
    let events = scene.events(10);
    let mut lane = scene.lane(&sink, relay, &[]).await;
    expect_all_accepted(&mut lane, &events).await;
    lane.abort().await;
    server.configure_topic(&scene.progress, &[("cleanup.policy", "delete")]);
    let spec = || scene.spec(relay, some(1, &[0]), &[]);
    let Err(error) = sink.open_lane(spec()).await else {
        panic!("a topic that forgets was taken");
    };
    assert!(matches!(error, SinkError::Misconfigured { .. }), "{error}");
    assert!(error.to_string().contains("set it to `compact`"), "{error}");
    server.configure_topic(&scene.progress, &[("cleanup.policy", "compact")]);
    let mut lane = take_over(
        &sink,
        scene.spec(relay, Partitions::all_of(64).unwrap(), &[]),
    )
    .await;
    expect_all_accepted(&mut lane, &events).await;
    scene.expect_once(server, &events);
}
