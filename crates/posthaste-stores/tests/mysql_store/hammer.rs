//! Many writers at once: nothing is lost, nothing comes twice, and each key keeps its order.

use std::{
    collections::{BTreeMap, HashSet},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use mysql_async::prelude::Queryable;
use posthaste_engine::{ClaimOutcome, ClaimRequest, Ownership, Start, Store};
use posthaste_testkit::servers::mysql::{MysqlServer, Version};
use rand::{Rng, SeedableRng, rngs::SmallRng};
use tokio::task::block_in_place;

use super::support::{Outbox, PLENTY, Relay, Writer, connect, names};

super::on_all! {
    eight_writers
    eight_writers_with_numbers_far_apart
    rollbacks_beside_a_long_transaction
    destinations_that_are_created_beside_writers_miss_nothing
}

/// Keys, each with a counter that a writer locks before it emits.
const KEYS: u64 = 20;
const WRITERS: u64 = 8;

async fn counters(outbox: &Outbox) {
    let mut writer = outbox.writer().await;
    writer
        .run("create table counters (id int primary key, n int not null)")
        .await;
    for key in 0..KEYS {
        writer
            .run(&format!("insert into counters values ({key}, 0)"))
            .await;
    }
}

/// Writes until it is told to end; answers how many events were committed.
async fn write(url: String, seed: u64, stop: Arc<AtomicBool>) -> u64 {
    let mut writer = Writer(connect(&url).await);
    let mut random = SmallRng::seed_from_u64(seed);
    let mut committed = 0;
    while !stop.load(Ordering::Relaxed) {
        let key = random.random_range(0..KEYS);
        writer.begin().await;
        writer
            .run(&format!("update counters set n = n + 1 where id = {key}"))
            .await;
        let sql = format!("select n from counters where id = {key}");
        let n: u64 = writer.0.query_first(sql).await.unwrap().unwrap();
        writer
            .insert_keyed(&format!("{n}"), &format!("key {key}"))
            .await;
        match random.random_range(0..20) {
            0..2 => writer.rollback().await,
            2 => {
                tokio::time::sleep(Duration::from_millis(random.random_range(20..200))).await;
                writer.commit().await;
                committed += 1;
            }
            _ => {
                writer.commit().await;
                committed += 1;
            }
        }
    }
    committed
}

async fn hammer(server: &MysqlServer) {
    let outbox = Outbox::on(server).await;
    counters(&outbox).await;
    let relay = Relay::new(&outbox).await;
    let stop = Arc::new(AtomicBool::new(false));
    let writers: Vec<_> = (0..WRITERS)
        .map(|seed| tokio::spawn(write(outbox.database.url(), seed, Arc::clone(&stop))))
        .collect();
    let (mut last, mut delivered) = (BTreeMap::<String, u64>::new(), 0);
    let mut take = |events: Vec<posthaste_engine::StoredEvent>| {
        for event in events {
            let n: u64 = String::from_utf8_lossy(event.payload().unwrap())
                .parse()
                .unwrap();
            let before = last.entry(event.key().unwrap().to_owned()).or_default();
            assert_eq!(n, *before + 1, "{:?}", event.key());
            *before = n;
            delivered += 1;
        }
    };
    let end = tokio::time::Instant::now() + Duration::from_secs(4);
    while tokio::time::Instant::now() < end {
        take(relay.try_read().await.unwrap());
    }
    stop.store(true, Ordering::Relaxed);
    let mut committed = 0;
    for writer in writers {
        committed += writer.await.unwrap();
    }
    loop {
        take(relay.try_read().await.unwrap());
        if !outbox.stored().await.0 {
            break;
        }
    }
    take(relay.try_read().await.unwrap());
    assert_eq!(delivered, committed);
    assert!(committed > 100, "{committed}");
}

/// T29
async fn eight_writers(version: Version) {
    let builder = MysqlServer::builder(version).shows_locks();
    hammer(&block_in_place(|| builder.start())).await;
}

/// T24
async fn eight_writers_with_numbers_far_apart(version: Version) {
    let builder = MysqlServer::builder(version).shows_locks();
    let builder = builder.setting("auto-increment-increment", "7");
    hammer(&block_in_place(|| builder.start())).await;
}

/// T28
async fn rollbacks_beside_a_long_transaction(version: Version) {
    let outbox = Outbox::shared(version).await;
    let relay = Relay::new(&outbox).await;
    let mut long = outbox.writer().await;
    long.begin().await;
    long.insert("long").await;
    let stop = Arc::new(AtomicBool::new(false));
    let rolled_back = Arc::new(AtomicU64::new(0));
    let (url, stopped, count) = (
        outbox.database.url(),
        Arc::clone(&stop),
        Arc::clone(&rolled_back),
    );
    let flood = tokio::spawn(async move {
        let mut writer = Writer(connect(&url).await);
        while !stopped.load(Ordering::Relaxed) {
            writer.begin().await;
            writer.insert("never").await;
            writer.rollback().await;
            writer.insert("between").await;
            count.fetch_add(1, Ordering::Relaxed);
        }
    });
    let mut read = 0;
    while rolled_back.load(Ordering::Relaxed) < 1_500 {
        read += relay.try_read().await.unwrap().len();
    }
    assert!(read > 500, "delivery goes on: {read}");
    assert!(outbox.stored().await.0);
    stop.store(true, Ordering::Relaxed);
    flood.await.unwrap();
    long.commit().await;
    let rest = relay.until_closed(&outbox).await;
    assert!(rest.contains(&"long".to_owned()));
}

/// An event that is committed once a destination is there comes to it, also where its number was
/// drawn before.
async fn destinations_that_are_created_beside_writers_miss_nothing(version: Version) {
    let outbox = Outbox::shared(version).await;
    let relay = Relay::new(&outbox).await;
    // A look at all of them takes its time, in which others commit.
    let mut before = outbox.writer().await;
    for _ in 0..20 {
        before.insert_a_thousand().await;
    }
    let stop = Arc::new(AtomicBool::new(false));
    let write = |w: u64| {
        let (url, stop) = (outbox.database.url(), Arc::clone(&stop));
        async move {
            let (mut writer, mut written) = (Writer(connect(&url).await), Vec::new());
            while !stop.load(Ordering::Relaxed) {
                let name = format!("{w} {}", written.len());
                writer.begin().await;
                writer.insert_keyed(&name, &format!("key {w}")).await;
                if written.len() % 3 == 0 {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
                let commits_behind = Instant::now();
                writer.commit().await;
                written.push((name, commits_behind));
            }
            written
        }
    };
    let writers: Vec<_> = (0..WRITERS).map(|w| tokio::spawn(write(w))).collect();
    let mut destinations = Vec::new();
    for n in 0..30 {
        let name = format!("destination {n}");
        let request = ClaimRequest {
            start: Start::Now,
            ..ClaimRequest::all(&name, "null:")
        };
        let claim = match relay.store.claim(relay.relay, &request).await.unwrap() {
            ClaimOutcome::Owned(claim) => claim,
            other => panic!("{other:?}"),
        };
        let created = Instant::now();
        destinations.push((created, relay.store.open(&claim).await.unwrap()));
    }
    stop.store(true, Ordering::Relaxed);
    let mut written = Vec::new();
    for writer in writers {
        written.extend(writer.await.unwrap());
    }
    for (created, claimed) in destinations {
        let mut came = HashSet::new();
        loop {
            let events = claimed.next(PLENTY).await.unwrap().events;
            if events.is_empty() {
                break;
            }
            came.extend(names(&events));
        }
        let owed = written.iter().filter(|(_, behind)| *behind > created);
        let missing: Vec<_> = owed.filter(|(name, _)| !came.contains(name)).collect();
        assert!(missing.is_empty(), "{missing:?}");
    }
}
