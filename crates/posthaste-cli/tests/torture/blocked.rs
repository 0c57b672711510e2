//! Many keys blocked at once, on PostgreSQL: a relay that finds them delivers everything else, and
//! each comes back when it is released.

use std::{collections::BTreeMap, time::Instant};

use posthaste_testkit::{lines, long_form, servers::postgres::PostgresServer};

use posthaste_torture::{
    database::Database,
    postgres::Postgres,
    relay::{Delivered, RelayCommand, posthaste, posthaste_json},
};

/// Events of keys that nothing blocks.
const OTHERS: u32 = 2_000;

/// So many keys, each with a dead event and followers, as several relays leave them to one: by
/// hand, since it would take them minutes. The destination has not read any of it.
fn many_blocked(keys: u32, followers: u32) -> (Postgres, Delivered) {
    let database = Postgres::new(PostgresServer::shared(15));
    let delivered = Delivered::new();
    relay(&database, &delivered).drain(0);
    // A marker stands at a whole snapshot behind the dead events, and at no floor.
    write(
        &database,
        &format!(
            "insert into posthaste.outbox (topic, key, payload)
         select 't', 'b' || k, '0' from generate_series(1, {keys}) k;"
        ),
    );
    // Only a later transaction's snapshot sees them.
    write(
        &database,
        "insert into posthaste.parked (destination_id, state, attempts, kind, reason, seq, event_id,
             slot, topic, key, payload, headers, occurred_at, inserted_at)
         select d.id, 'dead', 1, 'other', 'by hand', o.seq, o.id,
             o.slot, o.topic, o.key, o.payload, o.headers, o.occurred_at, o.inserted_at
         from posthaste.destinations d, posthaste.outbox o;
         insert into posthaste.markers (destination_id, key, slot, low, floor, floor_min)
         select d.id, o.key, o.slot, pg_current_snapshot(), 0, 0
         from posthaste.destinations d, posthaste.outbox o;",
    );
    for n in 1..=followers {
        write(
            &database,
            &format!(
                "insert into posthaste.outbox (topic, key, payload)
             select 't', 'b' || k, '{n}' from generate_series(1, {keys}) k;"
            ),
        );
    }
    write(
        &database,
        &format!(
            "insert into posthaste.outbox (topic, key, payload)
         select 't', 'free' || n % 100, (n / 100)::text::bytea
         from generate_series(0, {OTHERS} - 1) n;"
        ),
    );
    (database, delivered)
}

fn write(database: &Postgres, sql: &str) {
    let _said = database.rows(sql);
}

fn relay(database: &Postgres, delivered: &Delivered) -> RelayCommand {
    RelayCommand::new(&database.url(), delivered)
}

/// The delivered events of each key, in order.
fn by_key(delivered: &Delivered) -> BTreeMap<String, Vec<u32>> {
    let mut by_key: BTreeMap<String, Vec<u32>> = BTreeMap::new();
    for line in lines::read(delivered.path()).unwrap() {
        let line = line.unwrap();
        let number = String::from_utf8(line.payload().unwrap()).unwrap();
        let of_key = by_key.entry(line.key.unwrap()).or_default();
        of_key.push(number.parse().unwrap());
    }
    by_key
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_finds_more_blocked_keys_than_it_keeps() {
    const KEYS: u32 = 25_000;
    let (database, delivered) = many_blocked(KEYS, 3);
    let url = database.url();
    relay(&database, &delivered).drain(3);
    let found = by_key(&delivered);
    assert_eq!(delivered.lines(), u64::from(OTHERS));
    assert!(found.keys().all(|key| key.starts_with("free")));
    assert!(found.values().all(|of_key| of_key.is_sorted()));

    // Of those that are kept in memory and of those that are not.
    for key in ["b1", "b2500", "b9999"] {
        posthaste(&["dead", "retry", "--key", key, "--store", &url]).expect_status(0);
    }
    relay(&database, &delivered).drain(3);
    let found = by_key(&delivered);
    let back: Vec<_> = found.keys().filter(|key| key.starts_with('b')).collect();
    assert_eq!(back, ["b1", "b2500", "b9999"]);
    for key in back {
        assert_eq!(found[key], [0, 1, 2, 3], "{key}");
    }
    let status = posthaste_json(&["status", "--store", &url]);
    assert_eq!(status["blocked_keys"], KEYS - 3, "{status:#}");
}

/// One side read serves them all: the work grows with the rows, not with keys times rows.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn thousands_of_released_keys_come_back_together() {
    let (keys, followers) = if long_form() {
        (10_000, 30)
    } else {
        (3_000, 5)
    };
    let (database, delivered) = many_blocked(keys, followers);
    let url = database.url();
    relay(&database, &delivered).drain(3);
    posthaste(&["dead", "retry", "--all", "--store", &url]).expect_status(0);
    let since = Instant::now();
    relay(&database, &delivered).drain(0);
    println!(
        "{keys} keys with {followers} followers each came back within {:?}",
        since.elapsed()
    );
    let mut found = by_key(&delivered);
    found.retain(|key, _| key.starts_with('b'));
    assert_eq!(found.len(), keys as usize);
    let in_order: Vec<u32> = (0..=followers).collect();
    for (key, of_key) in found {
        assert_eq!(of_key, in_order, "{key}");
    }
    let joins = "select count(*) from posthaste.audit where action = 'join'";
    assert!(
        database.number(joins) < u64::from(keys) / 100,
        "a handful of side reads"
    );
    let status = posthaste_json(&["status", "--store", &url]);
    assert_eq!(status["blocked_keys"], 0, "{status:#}");
}
