//! Several relays share the work, and each in turn dies, stands still past its lease, is cut off
//! from the database only or from its broker only, stops in order; the database's server and the
//! broker fail. Nothing is lost, invented or out of order, and progress is nobody's but the newest
//! owner's (I1 to I4, I8, I11).
//!
//! Laps of `posthaste-torture`, each of a few faults; the command runs laps of all, for as long as
//! it is told to.

use posthaste_testkit::long_form;
use posthaste_torture::{
    faults::Fault,
    fixture::LapOptions,
    lap::{Lap, LapPlan},
    setting::{DatabaseKind, Setting, SinkKind},
};

/// Runs one for each number of relays: these faults, in the long form six times everything that can
/// happen.
async fn laps(setting: Setting, sizes: &[usize], faults: &[Fault]) {
    let every = Fault::ALL.iter().filter(|fault| **fault != Fault::Giant);
    for &relays in sizes {
        let plan = if long_form() {
            LapPlan::Rounds(6, every.clone().copied().collect())
        } else {
            LapPlan::Rounds(1, faults.to_vec())
        };
        let seed: u64 = rand::random();
        let standby =
            faults.contains(&Fault::StandbyReader) || (long_form() && seed.is_multiple_of(2));
        println!("{setting}, {relays} relays, standby {standby}, seed {seed}");
        let lap = Lap {
            setting,
            options: LapOptions {
                relays,
                seed,
                giant_events: 0,
                standby,
                writer: None,
            },
            plan,
        };
        lap.run().await.assert_good();
    }
}

/// A relay stands still beyond its lease, one is cut off from the broker, and that stands still.
async fn several_relays_to(sink: SinkKind) {
    let faults = [Fault::Freeze, Fault::CutBroker, Fault::BrokerPause];
    let sizes: &[usize] = if long_form() { &[2, 4, 8] } else { &[2] };
    laps(Setting::new(DatabaseKind::Postgres, sink), sizes, &faults).await;
}

#[cfg(feature = "kafka")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn several_relays_to_kafka_lose_nothing_and_keep_order() {
    let faults = [
        Fault::Two,
        Fault::CutBroker,
        Fault::CutDatabase,
        Fault::TopicsDeleted,
        Fault::Crash,
    ];
    let sizes: &[usize] = if long_form() { &[2, 4, 8] } else { &[4] };
    laps(
        Setting::new(DatabaseKind::Postgres, SinkKind::Kafka),
        sizes,
        &faults,
    )
    .await;
}

#[cfg(feature = "rabbitmq")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn several_relays_to_rabbitmq_with_wrong_wall_clocks_lose_nothing_and_keep_order() {
    let faults = [Fault::Freeze, Fault::CutBroker, Fault::Stop];
    let sizes: &[usize] = if long_form() { &[2, 4, 8] } else { &[2] };
    laps(
        Setting::new(DatabaseKind::Postgres, SinkKind::RabbitMq),
        sizes,
        &faults,
    )
    .await;
}

#[cfg(feature = "nats")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn several_relays_to_nats_lose_nothing_and_keep_order() {
    several_relays_to(SinkKind::Nats).await;
}

#[cfg(feature = "redis")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn several_relays_to_redis_lose_nothing_and_keep_order() {
    several_relays_to(SinkKind::Redis).await;
}

#[cfg(feature = "amqp10")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn several_relays_to_artemis_lose_nothing_and_keep_order() {
    several_relays_to(SinkKind::Artemis).await;
}

#[cfg(feature = "http")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn several_relays_to_http_lose_nothing_and_keep_order() {
    several_relays_to(SinkKind::Http).await;
}

#[cfg(feature = "kinesis")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn several_relays_to_kinesis_lose_nothing_and_keep_order() {
    several_relays_to(SinkKind::Kinesis).await;
}

#[cfg(feature = "mqtt")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn several_relays_to_mqtt_lose_nothing_and_keep_order() {
    several_relays_to(SinkKind::Mqtt).await;
}

#[cfg(feature = "sqs")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn several_relays_to_sqs_lose_nothing_and_keep_order() {
    several_relays_to(SinkKind::Sqs).await;
}

/// The second one has the wall clock of another time.
#[cfg(feature = "rabbitmq")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn relays_that_share_a_mariadb_lose_nothing_and_keep_order() {
    let faults = [Fault::Kill, Fault::Long, Fault::Kill, Fault::Crash];
    let sizes: &[usize] = if long_form() { &[2, 4, 8] } else { &[2] };
    laps(
        Setting::new(DatabaseKind::MariaDb, SinkKind::RabbitMq),
        sizes,
        &faults,
    )
    .await;
}

#[cfg(feature = "kafka")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn relays_that_share_a_mysql_lose_nothing_and_keep_order() {
    let faults = [Fault::Kill, Fault::Freeze, Fault::EndBackends, Fault::Crash];
    let sizes: &[usize] = if long_form() { &[2, 4, 8] } else { &[2] };
    laps(
        Setting::new(DatabaseKind::Mysql, SinkKind::Kafka),
        sizes,
        &faults,
    )
    .await;
}

/// A file has one lane: one relay owns all partitions, the other stands by.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_relays_to_a_file_lose_nothing_and_keep_order() {
    // Kills and stops are what the tests of a single relay do to it.
    let faults = [
        Fault::Freeze,
        Fault::CutDatabase,
        Fault::Crash,
        Fault::Rotation,
        Fault::Elsewhere,
        Fault::Poison,
    ];
    laps(
        Setting::new(DatabaseKind::Postgres, SinkKind::File),
        &[2],
        &faults,
    )
    .await;
}

/// A relay that dies with its clock an hour ahead leaves a lease that seems to last an hour.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_clock_that_is_set_back_and_rotation_lose_nothing_and_keep_order() {
    let faults = [
        Fault::ClockSetBack,
        Fault::Rotation,
        Fault::Elsewhere,
        Fault::ClockSetBack,
    ];
    laps(
        Setting::new(DatabaseKind::Sqlite, SinkKind::File),
        &[2],
        &faults,
    )
    .await;
}

/// An operator's changes of the database beside the relays.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn policies_settings_and_readers_of_a_standby_lose_nothing_and_keep_order() {
    let faults = [Fault::RowSecurity, Fault::Settings, Fault::StandbyReader];
    laps(
        Setting::new(DatabaseKind::Postgres, SinkKind::File),
        &[2],
        &faults,
    )
    .await;
}

/// A consumer that reads what is committed sees each event exactly once, in the order of its key.
#[cfg(feature = "kafka")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_event_is_seen_exactly_once_through_kills_and_stops() {
    let faults = [
        Fault::Two,
        Fault::Two,
        Fault::Crash,
        Fault::Two,
        Fault::TopicsDeleted,
        Fault::BrokerKill,
    ];
    laps(
        Setting::new(DatabaseKind::Postgres, SinkKind::KafkaTransactional),
        &[3],
        &faults,
    )
    .await;
}
