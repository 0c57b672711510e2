//! The relay beside Debezium Server with its outbox router: a backlog and single events to Kafka.
//!
//! `POSTHASTE_BENCH_DEBEZIUM` names the unpacked folder of Maven's
//! `io.debezium:debezium-server-dist:3.6.0.Final:tar.gz`. Both read the same PostgreSQL, and a
//! consumer sees when what they send arrives. Debezium has the settings that made it faster here:
//! more heap, larger batches and queues.

use std::{
    collections::BTreeMap,
    env, fs,
    path::{Path, PathBuf},
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use posthaste_testkit::process::Running;
use rdkafka::{
    ClientConfig, TopicPartitionList,
    consumer::{BaseConsumer, Consumer},
};
use tempfile::TempDir;
use tokio_postgres::Client;

use crate::{
    Plan,
    brokers::Broker,
    kafka::{Kafka, PARTITIONS, TOPIC},
    outbox::Outbox,
    relayed::{cpu_seconds, peak_memory_kib},
    report::{Report, quantile},
};

const FOLDER: &str = "POSTHASTE_BENCH_DEBEZIUM";
const LIMIT: Duration = Duration::from_secs(600);
/// Between two single events, so that everybody has come to rest.
const PAUSE: Duration = Duration::from_millis(1_300);
const SINGLE_EVENTS: usize = 20;

/// Debezium's own layout of an outbox, without the business columns that nobody reads.
const TABLE: &str = "create table public.outboxevent (
    id uuid primary key default gen_random_uuid(), aggregatetype text not null,
    aggregateid text not null, type text not null, payload text not null)";

/// One of the two, with the table that it reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Mover {
    Debezium,
    Posthaste,
}

/// The figures of one round.
struct Round {
    first_after: f64,
    rate: f64,
    cpu: f64,
    peak_mib: f64,
    single_millis: Vec<f64>,
}

pub(crate) async fn run(plan: &Plan, report: &mut Report) -> Result<()> {
    let folder = env::var_os(FOLDER).map(PathBuf::from).with_context(|| {
        format!("{FOLDER} names no unpacked io.debezium:debezium-server-dist:3.6.0.Final:tar.gz")
    })?;
    let kafka = Kafka::start();
    let outbox = Outbox::start_with(&[("wal_level", "logical")]).await?;
    let client = outbox.connect().await?;
    client.batch_execute(TABLE).await?;
    let debezium = Debezium::configure(folder, &outbox, &kafka)?;
    // It makes its slot and publication, before there is anything to read.
    let first = debezium.start();
    first.wait_for_stdout("Processing messages", LIMIT);
    stop(first);

    let mut rounds: BTreeMap<Mover, Vec<Round>> = BTreeMap::new();
    for number in 0..plan.rounds {
        let mut movers = [Mover::Posthaste, Mover::Debezium];
        if number % 2 == 1 {
            movers.reverse();
        }
        for mover in movers {
            let address = kafka.fresh_place();
            fill(mover, &outbox, &client, plan.events).await?;
            let arrivals = Arrivals::watch(&kafka)?;
            let start = || match mover {
                Mover::Debezium => debezium.start(),
                Mover::Posthaste => Running::start(&mut outbox.relay(&address, &[])),
            };
            let round = measure(mover, start, plan.events, &arrivals, &client).await?;
            println!(
                "round {number}, {mover:?}: first event after {:.2} s, {:.1} k events/s, {:.1} CPU \
                 s, {:.0} MiB, single events p50 {:.1} ms",
                round.first_after,
                round.rate / 1e3,
                round.cpu,
                round.peak_mib,
                quantile(&round.single_millis, 0.5)
            );
            rounds.entry(mover).or_default().push(round);
        }
    }
    for (mover, rounds) in &rounds {
        tell(
            report,
            &format!("{mover:?}").to_lowercase(),
            plan.events,
            rounds,
        );
    }
    Ok(())
}

fn tell(report: &mut Report, mover: &str, events: u64, rounds: &[Round]) {
    let all = |of: fn(&Round) -> f64| {
        let values: Vec<_> = rounds.iter().map(of).collect();
        quantile(&values, 0.5)
    };
    let per_million = 1e6 / events as f64;
    let name = |what: &str| format!("{mover}: {what}");
    report.print(name("backlog"), all(|r| r.rate) / 1e3, "k events/s");
    report.print(
        name("start to the first event"),
        all(|r| r.first_after),
        "s",
    );
    report.print(
        name("processor time, start included"),
        all(|r| r.cpu) * per_million,
        "s/million",
    );
    report.print(name("peak memory (VmHWM)"), all(|r| r.peak_mib), "MiB");
    let single: Vec<_> = rounds
        .iter()
        .flat_map(|r| &r.single_millis)
        .copied()
        .collect();
    report.print(
        name("commit to consumer after a pause, p50"),
        quantile(&single, 0.5),
        "ms",
    );
    report.print(
        name("commit to consumer after a pause, p95"),
        quantile(&single, 0.95),
        "ms",
    );
}

async fn fill(mover: Mover, outbox: &Outbox, client: &Client, events: u64) -> Result<()> {
    match mover {
        Mover::Posthaste => outbox.fill(events).await,
        Mover::Debezium => {
            let insert = format!(
                "insert into public.outboxevent (aggregatetype, aggregateid, type, payload)
                 select 'orders', 'order-' || n % 10000, 'OrderPlaced',
                     rpad('{{\"order\":' || n || ',\"note\":\"', 298, 'x') || '\"}}'
                 from generate_series(1, {events}) n"
            );
            for tidy in [
                &*insert,
                "vacuum (analyze) public.outboxevent",
                "checkpoint",
            ] {
                client.batch_execute(tidy).await?;
            }
            Ok(())
        }
    }
}

async fn measure(
    mover: Mover,
    start: impl FnOnce() -> Running,
    events: u64,
    arrivals: &Arrivals,
    client: &Client,
) -> Result<Round> {
    let started = Instant::now();
    let process = start();
    arrivals.wait_for(1)?;
    let first = started.elapsed();
    arrivals.wait_for(events)?;
    let all = started.elapsed();
    let cpu = cpu_seconds(process.id()).context("its processor time")?;
    let mut single_millis = Vec::new();
    let insert = match mover {
        Mover::Posthaste => {
            "insert into posthaste.outbox (topic, key, type, payload)
             values ('orders', 'single', 'OrderPlaced', '{}')"
        }
        Mover::Debezium => {
            "insert into public.outboxevent
             (aggregatetype, aggregateid, type, payload)
             values ('orders', 'single', 'OrderPlaced', '{}')"
        }
    };
    let insert = client.prepare(insert).await?;
    for number in 1..=SINGLE_EVENTS {
        tokio::time::sleep(PAUSE).await;
        client.execute(&insert, &[]).await?;
        let committed = Instant::now();
        arrivals.wait_for(events + number as u64)?;
        single_millis.push(committed.elapsed().as_secs_f64() * 1e3);
    }
    let peak_mib = peak_memory_kib(process.id()).context("its memory")? as f64 / 1_024.0;
    stop(process);
    Ok(Round {
        first_after: first.as_secs_f64(),
        rate: (events - 1) as f64 / (all - first).as_secs_f64(),
        cpu,
        peak_mib,
        single_millis,
    })
}

/// In order; Java answers a signal with a status of its own.
fn stop(process: Running) {
    process.terminate();
    process.wait(LIMIT);
}

/// Debezium Server in a folder of its own.
struct Debezium {
    distribution: PathBuf,
    folder: TempDir,
}

impl Debezium {
    fn configure(distribution: PathBuf, outbox: &Outbox, kafka: &Kafka) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        fs::create_dir(folder.path().join("config"))?;
        let offsets = folder.path().join("offsets.dat");
        let (port, database) = (outbox.server.port(), outbox.database.name());
        let bootstrap = kafka.bootstrap();
        let text = format!(
            "debezium.sink.type=kafka
debezium.sink.kafka.producer.bootstrap.servers={bootstrap}
debezium.sink.kafka.producer.key.serializer=org.apache.kafka.common.serialization.StringSerializer
debezium.sink.kafka.producer.value.serializer=org.apache.kafka.common.serialization.StringSerializer
debezium.sink.kafka.producer.acks=all
debezium.sink.kafka.producer.enable.idempotence=true
debezium.sink.kafka.producer.compression.type=lz4
debezium.sink.kafka.producer.linger.ms=1
debezium.sink.kafka.producer.batch.size=262144
debezium.format.key=simplestring
debezium.format.value=simplestring
debezium.source.connector.class=io.debezium.connector.postgresql.PostgresConnector
debezium.source.offset.storage.file.filename={}
debezium.source.database.hostname=127.0.0.1
debezium.source.database.port={port}
debezium.source.database.user=postgres
debezium.source.database.password=unused
debezium.source.database.dbname={database}
debezium.source.topic.prefix=bench
debezium.source.plugin.name=pgoutput
debezium.source.publication.autocreate.mode=filtered
debezium.source.table.include.list=public.outboxevent
debezium.source.snapshot.mode=no_data
debezium.source.tombstones.on.delete=false
debezium.source.max.batch.size=16384
debezium.source.max.queue.size=65536
debezium.source.poll.interval.ms=10
debezium.transforms=outbox
debezium.transforms.outbox.type=io.debezium.transforms.outbox.EventRouter
debezium.transforms.outbox.route.topic.replacement=\\\\${{routedByValue}}
debezium.transforms.outbox.table.fields.additional.placement=type:header:type
quarkus.http.port=0
",
            offsets.display()
        );
        fs::write(folder.path().join("config/application.properties"), text)?;
        Ok(Self {
            distribution,
            folder,
        })
    }

    fn start(&self) -> Running {
        let here = |name: &str| self.distribution.join(name).display().to_string();
        let runner = fs::read_dir(&self.distribution)
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .find(|path| path.to_string_lossy().ends_with("-runner.jar"))
            .expect("a runner in the folder of Debezium Server");
        let java = env::var_os("JAVA_HOME")
            .map_or("java".into(), |home| Path::new(&home).join("bin/java"));
        let class_path = [
            runner.display().to_string(),
            here("config/lib"),
            here("lib/*"),
        ];
        let mut command = Command::new(java);
        command
            .args([
                "-Xmx2g",
                "--add-opens=java.base/java.lang=ALL-UNNAMED",
                "-cp",
                &class_path.join(":"),
                "io.debezium.server.Main",
            ])
            .current_dir(self.folder.path());
        Running::start(&mut command)
    }
}

/// A consumer that counts what arrives.
struct Arrivals {
    count: Arc<AtomicU64>,
    ends: Arc<AtomicBool>,
    consumer: Option<JoinHandle<()>>,
}

impl Arrivals {
    fn watch(kafka: &Kafka) -> Result<Self> {
        let consumer: BaseConsumer = ClientConfig::new()
            .set("bootstrap.servers", kafka.bootstrap())
            .set("group.id", "arrivals")
            .set("fetch.wait.max.ms", "5")
            .set("enable.auto.commit", "false")
            .create()?;
        let mut partitions = TopicPartitionList::new();
        for partition in 0..PARTITIONS {
            let of = (TOPIC, partition, rdkafka::Offset::Beginning);
            partitions.add_partition_offset(of.0, of.1, of.2)?;
        }
        consumer.assign(&partitions)?;
        let (count, ends) = (
            Arc::new(AtomicU64::new(0)),
            Arc::new(AtomicBool::new(false)),
        );
        let (counts, ended) = (Arc::clone(&count), Arc::clone(&ends));
        let consumer = thread::spawn(move || {
            while !ended.load(Relaxed) {
                if let Some(Ok(_)) = consumer.poll(Duration::from_millis(20)) {
                    counts.fetch_add(1, Relaxed);
                }
            }
        });
        Ok(Self {
            count,
            ends,
            consumer: Some(consumer),
        })
    }

    fn wait_for(&self, events: u64) -> Result<()> {
        let until = Instant::now() + LIMIT;
        while self.count.load(Relaxed) < events {
            ensure!(
                Instant::now() < until,
                "{} of {events} have arrived within {LIMIT:?}",
                self.count.load(Relaxed)
            );
            thread::sleep(Duration::from_micros(200));
        }
        Ok(())
    }
}

impl Drop for Arrivals {
    fn drop(&mut self) {
        self.ends.store(true, Relaxed);
        if let Some(consumer) = self.consumer.take() {
            consumer.join().expect("the consumer");
        }
    }
}
