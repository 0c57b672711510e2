//! The cost of Posthaste, and its speed beside that of PostgreSQL and its driver alone.
//!
//! ```text
//! cargo bench -p posthaste-cli --bench sweep                      all parts, about five minutes
//! cargo bench -p posthaste-cli --bench sweep -- drain idle        some of them
//! cargo bench -p posthaste-cli --bench sweep -- --long            the full sizes
//! cargo bench -p posthaste-cli --bench sweep --features kafka -- kafka
//! ```
//!
//! Absolute figures say something about a machine and an hour. Figures that are compared were
//! therefore measured in interleaved rounds of one run, and medians are judged. Exit status 1: a
//! bound was missed.

#![allow(clippy::unwrap_used, clippy::expect_used)] // A set-up that fails ends the run.

#[cfg(feature = "amqp10")]
mod amqp10;
#[cfg(any(
    feature = "amqp10",
    feature = "http",
    feature = "kafka",
    feature = "mqtt",
    feature = "nats",
    feature = "rabbitmq",
    feature = "redis",
    feature = "sqs"
))]
mod brokers;
#[cfg(feature = "kafka")]
mod debezium;
mod drain;
#[cfg(feature = "http")]
mod http;
mod idle;
#[cfg(feature = "kafka")]
mod kafka;
mod latency;
#[cfg(any(feature = "nats", feature = "redis"))]
mod lines;
#[cfg(feature = "mqtt")]
mod mqtt;
#[cfg(feature = "mysql")]
mod mysql;
#[cfg(feature = "nats")]
mod nats;
mod outbox;
#[cfg(any(feature = "mqtt", feature = "nats", feature = "redis"))]
mod pipelined;
mod poll;
#[cfg(feature = "rabbitmq")]
mod rabbitmq;
#[cfg(feature = "http")]
mod receiver;
#[cfg(feature = "redis")]
mod redis;
mod relayed;
mod report;
#[cfg(any(feature = "http", feature = "sqs"))]
mod requests;
mod sharing;
#[cfg(feature = "sqs")]
mod sqs;
mod timed;
mod writers;

use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, ValueEnum};

use latency::Bounds;
use report::Report;

#[derive(Debug, Parser)]
#[command(
    name = "sweep",
    about = "Measures the PostgreSQL sweep and its neighbours"
)]
struct Args {
    /// The parts to measure; none: all
    parts: Vec<Part>,
    /// The full sizes: 5 M pending, 2 M retained, longer rounds
    #[arg(long)]
    long: bool,
    /// Pending events of the drain
    #[arg(long, default_value_t = 1_000_000)]
    events: u64,
    /// Interleaved rounds of whatever is compared
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Cargo says this to every benchmark
    #[arg(long, hide = true)]
    bench: bool,
    /// Be the endpoint of the part `http`
    #[cfg(feature = "http")]
    #[arg(long, hide = true)]
    receive: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Part {
    /// A backlog into null, against a bare client, and the relay's memory
    Drain,
    /// Server time of an empty poll
    Poll,
    /// From a commit to accepted by a file
    Latency,
    /// Statements and writes of an idle relay
    Idle,
    /// Writers beside a relay
    Writers,
    /// A backlog into null by four relays, against one
    Sharing,
    /// A backlog to Artemis over AMQP 1.0, against a bare client
    #[cfg(feature = "amqp10")]
    Amqp10,
    /// A backlog to an HTTP endpoint, against a bare client
    #[cfg(feature = "http")]
    Http,
    /// A backlog to Kafka, against its bare client
    #[cfg(feature = "kafka")]
    Kafka,
    /// A backlog and single events to Kafka, beside Debezium Server; only if it is named
    #[cfg(feature = "kafka")]
    Debezium,
    /// A backlog to MQTT, against a bare client
    #[cfg(feature = "mqtt")]
    Mqtt,
    /// A backlog of MySQL and MariaDB into null, with and without holes, against a bare client
    #[cfg(feature = "mysql")]
    Mysql,
    /// A backlog to NATS JetStream, against a bare client
    #[cfg(feature = "nats")]
    Nats,
    /// A backlog to RabbitMQ, against a bare client
    #[cfg(feature = "rabbitmq")]
    Rabbitmq,
    /// A backlog to Redis Streams, against a bare client
    #[cfg(feature = "redis")]
    Redis,
    /// A backlog to SQS, against a bare client
    #[cfg(feature = "sqs")]
    Sqs,
}

impl Part {
    /// `./test` installs all that it needs.
    fn needs_no_download(self) -> bool {
        #[cfg(feature = "kafka")]
        if self == Self::Debezium {
            return false;
        }
        true
    }
}

/// Each syncs its file once for many events.
const FILE: Bounds = bounds(10.0, 50.0);
#[cfg(feature = "amqp10")]
const AMQP10: Bounds = bounds(10.0, 50.0);
#[cfg(feature = "http")]
const HTTP: Bounds = bounds(5.0, 15.0);
#[cfg(feature = "kafka")]
const KAFKA: Bounds = bounds(5.0, 15.0);
#[cfg(feature = "kafka")]
const TRANSACTIONS: Bounds = bounds(50.0, 200.0);
#[cfg(feature = "mqtt")]
const MQTT: Bounds = bounds(5.0, 15.0);
#[cfg(feature = "nats")]
const NATS: Bounds = bounds(5.0, 15.0);
#[cfg(feature = "rabbitmq")]
const RABBITMQ: Bounds = bounds(10.0, 50.0);
#[cfg(feature = "redis")]
const REDIS: Bounds = bounds(10.0, 50.0);
#[cfg(feature = "sqs")]
const SQS: Bounds = bounds(10.0, 50.0);

const fn bounds(p50: f64, p99: f64) -> Bounds {
    Bounds { p50, p99 }
}

/// The values of the command line that the parts need.
#[derive(Debug)]
struct Plan {
    long: bool,
    events: u64,
    rounds: usize,
}

fn main() -> ExitCode {
    let args = Args::parse();
    #[cfg(feature = "http")]
    if args.receive {
        receiver::serve().unwrap();
        return ExitCode::SUCCESS;
    }
    let plan = Plan {
        long: args.long,
        events: args.events,
        rounds: args.rounds.max(1),
    };
    let mut report = Report::default();
    report::environment();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    for &part in Part::value_variants() {
        let is_wanted = match args.parts.is_empty() {
            true => part.needs_no_download(),
            false => args.parts.contains(&part),
        };
        if !is_wanted {
            continue;
        }
        if let Err(error) = runtime.block_on(run(part, &plan, &mut report)) {
            eprintln!("{part:?}: {error:#}");
            return ExitCode::FAILURE;
        }
    }
    println!("\n{report}");
    match report.missed() {
        0 => ExitCode::SUCCESS,
        missed => {
            println!("{missed} bound(s) missed");
            ExitCode::FAILURE
        }
    }
}

async fn run(part: Part, plan: &Plan, report: &mut Report) -> Result<()> {
    report.begin(match part {
        Part::Drain => "drain",
        Part::Poll => "poll",
        Part::Latency => "latency",
        Part::Idle => "idle",
        Part::Writers => "writers",
        Part::Sharing => "sharing",
        #[cfg(feature = "amqp10")]
        Part::Amqp10 => "amqp10",
        #[cfg(feature = "http")]
        Part::Http => "http",
        #[cfg(feature = "kafka")]
        Part::Kafka => "kafka",
        #[cfg(feature = "kafka")]
        Part::Debezium => "debezium",
        #[cfg(feature = "mqtt")]
        Part::Mqtt => "mqtt",
        #[cfg(feature = "mysql")]
        Part::Mysql => "mysql",
        #[cfg(feature = "nats")]
        Part::Nats => "nats",
        #[cfg(feature = "rabbitmq")]
        Part::Rabbitmq => "rabbitmq",
        #[cfg(feature = "redis")]
        Part::Redis => "redis",
        #[cfg(feature = "sqs")]
        Part::Sqs => "sqs",
    });
    match part {
        Part::Drain => drain::run(plan, report).await,
        Part::Poll => poll::run(plan, report).await,
        Part::Latency => {
            let folder = tempfile::tempdir()?;
            let file = folder.path().join("events.jsonl");
            latency::run(plan, report, &format!("file://{}", file.display()), FILE).await
        }
        Part::Idle => idle::run(plan, report).await,
        Part::Writers => writers::run(plan, report).await,
        Part::Sharing => sharing::run(plan, report).await,
        #[cfg(feature = "amqp10")]
        Part::Amqp10 => measured(plan, report, &amqp10::Amqp10::start(), AMQP10).await,
        #[cfg(feature = "http")]
        Part::Http => measured(plan, report, &http::Http::start()?, HTTP).await,
        #[cfg(feature = "kafka")]
        Part::Kafka => {
            let kafka = kafka::Kafka::start();
            measured(plan, report, &kafka, KAFKA).await?;
            report.begin("kafka, transactional");
            kafka::transactions(plan, report, &kafka).await?;
            latency::run(plan, report, &kafka.transactional_place(), TRANSACTIONS).await
        }
        #[cfg(feature = "kafka")]
        Part::Debezium => debezium::run(plan, report).await,
        #[cfg(feature = "mqtt")]
        Part::Mqtt => measured(plan, report, &mqtt::Mqtt::start(), MQTT).await,
        #[cfg(feature = "mysql")]
        Part::Mysql => mysql::run(plan, report).await,
        #[cfg(feature = "nats")]
        Part::Nats => measured(plan, report, &nats::Nats::start(), NATS).await,
        #[cfg(feature = "rabbitmq")]
        Part::Rabbitmq => measured(plan, report, &rabbitmq::RabbitMq::start(), RABBITMQ).await,
        #[cfg(feature = "redis")]
        Part::Redis => measured(plan, report, &redis::Redis::start(), REDIS).await,
        #[cfg(feature = "sqs")]
        Part::Sqs => measured(plan, report, &sqs::Sqs::start(), SQS).await,
    }
}

/// A backlog, and single events.
#[cfg(any(
    feature = "amqp10",
    feature = "http",
    feature = "kafka",
    feature = "mqtt",
    feature = "nats",
    feature = "rabbitmq",
    feature = "redis",
    feature = "sqs"
))]
async fn measured(
    plan: &Plan,
    report: &mut Report,
    broker: &dyn brokers::Broker,
    bounds: Bounds,
) -> Result<()> {
    brokers::run(plan, report, broker).await?;
    latency::run(plan, report, &broker.fresh_place(), bounds).await
}
