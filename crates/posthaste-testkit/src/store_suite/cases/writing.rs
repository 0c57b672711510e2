//! The store hands out the writers' commits: no more, no less, unchanged, in key order.

use std::{collections::HashMap, sync::Arc};

use posthaste_engine::StoredEvent;
use tokio::sync::Mutex;

use super::{Case, cases};
use crate::store_suite::{
    NewEvent,
    bench::{Bench, NOTHING, PLENTY, ids},
};

pub(super) fn cases() -> Vec<Case> {
    cases![
        emitted_is_invisible_before_commit,
        rolled_back_is_absent,
        rolled_back_to_savepoint_is_absent needs Savepoints,
        every_byte_round_trips,
        ten_megabytes_round_trip,
        the_order_of_one_transaction_is_kept,
        late_commit_is_neither_skipped_nor_waited_for
            needs OpenTogether needs LateCommitDelaysOnlyItself,
        late_commit_is_found_by_the_next_claim needs OpenTogether needs LateCommitDelaysOnlyItself,
        many_late_commits_lose_nothing needs OpenTogether needs LateCommitDelaysOnlyItself,
        keys_keep_commit_order_under_concurrent_writers,
    ]
}

async fn emitted_is_invisible_before_commit(bench: Bench) {
    let owner = bench.own().await;
    let mut writer = bench.outbox.writer().await;
    writer.begin().await;
    let id = writer.emit(&NewEvent::keyed("k", "a")).await;
    assert_eq!(ids(&owner.events().await), NOTHING);
    writer.commit().await;
    assert_eq!(ids(&owner.events().await), [id]);
    assert_eq!(ids(&owner.events().await), NOTHING, "read once");
}

async fn rolled_back_is_absent(bench: Bench) {
    let owner = bench.own().await;
    let mut writer = bench.outbox.writer().await;
    writer.begin().await;
    writer.emit(&NewEvent::keyed("k", "undone")).await;
    writer.rollback().await;
    writer.begin().await;
    let kept = writer.emit(&NewEvent::keyed("k", "kept")).await;
    writer.commit().await;
    assert_eq!(ids(&owner.deliver_all().await), [kept]);
    assert_eq!(ids(&owner.again(&bench).await.events().await), NOTHING);
}

async fn rolled_back_to_savepoint_is_absent(bench: Bench) {
    let owner = bench.own().await;
    let mut writer = bench.outbox.writer().await;
    writer.begin().await;
    let first = writer.emit(&NewEvent::keyed("k", "1")).await;
    writer.savepoint().await;
    writer.emit(&NewEvent::keyed("k", "undone")).await;
    writer.rollback_to_savepoint().await;
    let second = writer.emit(&NewEvent::keyed("k", "2")).await;
    writer.commit().await;
    assert_eq!(ids(&owner.events().await), [first, second]);
}

fn full() -> NewEvent {
    let text = |text: &str| Some(text.to_owned());
    NewEvent {
        id: None,
        topic: "orders.EU-1_x".to_owned(),
        key: text("Größe 🚚 \"'\\\n\t{}"),
        event_type: text("order.placed"),
        content_type: text("application/json; charset=utf-8"),
        payload: Some((0..=255).collect()),
        headers: vec![
            ("b".to_owned(), text("second letter first")),
            ("a".to_owned(), text("")),
            ("a".to_owned(), None),
            (
                "a".to_owned(),
                text("\" \\ \u{1} \u{7f} , [ ] { } null NULL 🚚"),
            ),
            (String::new(), text("no name")),
            ("id".to_owned(), text("a clash with our own")),
        ],
        occurred_at: 1_234_567_890_123_456,
        correlation_id: text("c-1"),
        causation_id: text("c-0"),
        tenant_id: text("tenant 1"),
        traceparent: text("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"),
        tracestate: text(&"v".repeat(512)),
    }
}

async fn every_byte_round_trips(bench: Bench) {
    let with_payload = |payload: Option<&[u8]>| NewEvent {
        payload: payload.map(<[u8]>::to_vec),
        ..NewEvent::keyed("k", "")
    };
    let events = [
        full(),
        with_payload(Some(b"")),
        with_payload(None),
        with_payload(Some(&[0xff, 0xfe, 0x00, 0x80])),
        NewEvent::keyed("", "the empty key is a key"),
        NewEvent::keyed(&"k".repeat(1024), "a key of 1 KiB"),
        NewEvent::unkeyed("no key"),
        NewEvent {
            occurred_at: -1,
            ..NewEvent::unkeyed("before 1970")
        },
        NewEvent {
            headers: (0..200)
                .map(|number| (format!("h{number}"), Some("v".repeat(300))))
                .collect(),
            ..NewEvent::unkeyed("60 KB of headers")
        },
        NewEvent {
            event_type: Some(String::new()),
            tenant_id: Some(String::new()),
            ..NewEvent::unkeyed("empty is not absent")
        },
    ];
    let written = bench.commit(&events).await;
    let read = bench.own().await.events().await;
    assert_eq!(read.len(), events.len());
    for ((event, id), stored) in events.iter().zip(written).zip(&read) {
        event.assert_stored_as(id, stored);
        assert!(stored.inserted_at() > 1_600_000_000_000_000, "a clock");
    }
}

async fn ten_megabytes_round_trip(bench: Bench) {
    let payload: Vec<u8> = (0..10_u32 << 20)
        .map(|n| n.to_le_bytes()[0] ^ 0xa5)
        .collect();
    let events = [
        NewEvent::keyed("k", "before"),
        NewEvent::keyed("k", payload),
        NewEvent::keyed("k", "behind"),
    ];
    let written = bench.commit(&events).await;
    let read = bench.own().await.events().await;
    assert_eq!(read.len(), 3);
    for ((event, id), stored) in events.iter().zip(written).zip(&read) {
        event.assert_stored_as(id, stored);
    }
}

async fn the_order_of_one_transaction_is_kept(bench: Bench) {
    let events: Vec<_> = (0..1_000)
        .map(|number| NewEvent::keyed(&format!("k{}", number % 7), number.to_string()))
        .collect();
    let written = bench.commit(&events).await;
    assert_eq!(ids(&bench.own().await.events().await), written);
}

async fn late_commit_is_neither_skipped_nor_waited_for(bench: Bench) {
    let owner = bench.own().await;
    let mut late = bench.outbox.writer().await;
    late.begin().await;
    let early_place = late.emit(&NewEvent::keyed("late", "1")).await;
    let others = bench.commit_numbered("other", 3).await;
    assert_eq!(ids(&owner.deliver_all().await), others, "not waited for");
    let more = bench.commit_numbered("other", 2).await;
    assert_eq!(ids(&owner.deliver_all().await), more);
    late.commit().await;
    assert_eq!(
        ids(&owner.deliver_all().await),
        [early_place],
        "not skipped"
    );
    assert_eq!(ids(&owner.again(&bench).await.events().await), NOTHING);
}

async fn late_commit_is_found_by_the_next_claim(bench: Bench) {
    let owner = bench.own().await;
    let mut late = bench.outbox.writer().await;
    late.begin().await;
    let early_place = late.emit(&NewEvent::keyed("late", "1")).await;
    bench.commit_numbered("other", 3).await;
    owner.deliver_all().await;
    let owner = owner.again(&bench).await;
    assert_eq!(ids(&owner.events().await), NOTHING);
    late.commit().await;
    assert_eq!(
        ids(&owner.again(&bench).await.events().await),
        [early_place]
    );
}

/// Transactions that overlap in every way, with the reader at work between any two commits.
async fn many_late_commits_lose_nothing(bench: Bench) {
    let owner = bench.own().await;
    let (mut open, mut written, mut read) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..40_usize {
        let mut writer = bench.outbox.writer().await;
        writer.begin().await;
        let id = writer
            .emit(&NewEvent::keyed(&format!("k{round}"), "x"))
            .await;
        open.push((writer, id));
        if open.len() == 8 {
            // The oldest, the newest and one in the middle commit out of turn.
            let (mut writer, id) = open.remove([0, 7, 3, 5][round % 4]);
            if round % 5 == 0 {
                writer.rollback().await;
            } else {
                writer.commit().await;
                written.push(id);
            }
            read.extend(ids(&owner.deliver_all().await));
        }
    }
    for (mut writer, id) in open {
        writer.commit().await;
        written.push(id);
        read.extend(ids(&owner.deliver_all().await));
    }
    assert_eq!(read, written, "each as soon as it is committed, and once");
}

/// Writers that hold a lock on the key from before they emit until they have committed.
async fn keys_keep_commit_order_under_concurrent_writers(bench: Bench) {
    const WRITERS: usize = 6;
    const TRANSACTIONS: usize = 25;
    const KEYS: usize = 4;
    let owner = bench.own().await;
    let keys: Arc<Vec<Mutex<usize>>> = Arc::new((0..KEYS).map(|_| Mutex::new(0)).collect());
    let mut writers = tokio::task::JoinSet::new();
    for number in 0..WRITERS {
        let mut writer = bench.outbox.writer().await;
        let keys = Arc::clone(&keys);
        writers.spawn(async move {
            for round in 0..TRANSACTIONS {
                let key = (number + round) % KEYS;
                let mut next = keys[key].lock().await;
                writer.begin().await;
                let event = NewEvent::keyed(&format!("k{key}"), next.to_string());
                writer.emit(&event).await;
                if round % 10 == 9 {
                    writer.rollback().await;
                } else {
                    writer.commit().await;
                    *next += 1;
                }
            }
        });
    }
    let mut read: Vec<StoredEvent> = Vec::new();
    let mut done = false;
    loop {
        // Looked at before the read, so that the last read comes after the last commit.
        while let Some(ended) = writers.try_join_next() {
            ended.unwrap();
        }
        done |= writers.is_empty();
        let before = read.len();
        for page in owner.pages(PLENTY).await {
            owner.finish(&page).await;
            read.extend(page.events);
        }
        if done && read.len() == before {
            break;
        }
        tokio::task::yield_now().await;
    }
    let mut by_key: HashMap<String, Vec<usize>> = HashMap::new();
    for event in &read {
        let number = std::str::from_utf8(event.payload().unwrap()).unwrap();
        by_key
            .entry(event.key().unwrap().to_owned())
            .or_default()
            .push(number.parse().unwrap());
    }
    for (key, committed) in keys.iter().enumerate() {
        let committed = *committed.lock().await;
        assert_eq!(
            by_key[&format!("k{key}")],
            (0..committed).collect::<Vec<_>>()
        );
    }
}
