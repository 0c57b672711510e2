//! The faults of the test kit around a real store: the acts done, and the answers to the caller.
#![cfg(feature = "sqlite")]
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests too")]

use std::{sync::Arc, time::Duration};

use posthaste_engine::{
    Budget, ClaimOutcome, ClaimRequest, Claimed, HostIdentity, Leases, Ownership, Registered,
    Registration, Store, StoreError,
};
use posthaste_stores::sqlite::{InitOptions, SqliteStore, init};
use posthaste_testkit::faulty::{Call, Fault, Faulty, Script};
use tempfile::TempDir;

const PLENTY: Budget = Budget {
    events: 100,
    bytes: 1 << 20,
};

struct Bench {
    _directory: TempDir,
    script: Script,
    store: Faulty<Arc<SqliteStore>>,
    relay: Registered,
}

/// An outbox with three events.
async fn bench() -> Bench {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("outbox.db");
    let url = format!("sqlite:{}", path.display());
    init(&url, InitOptions::default()).await.unwrap();
    rusqlite::Connection::open(&path)
        .unwrap()
        .execute_batch("insert into posthaste_outbox (topic) values ('a'), ('b'), ('c')")
        .unwrap();
    let script = Script::default();
    let store = Faulty::new(Arc::new(SqliteStore::new(&url).unwrap()), script.clone());
    let registration = Registration {
        name: "relay".to_owned(),
        version: "1".to_owned(),
        host: HostIdentity::default(),
        lease: Duration::from_secs(600),
    };
    let relay = store.register(&registration).await.unwrap();
    Bench {
        _directory: directory,
        script,
        store,
        relay,
    }
}

impl Bench {
    async fn claim(&self) -> Arc<dyn Claimed> {
        let outcome = self
            .store
            .claim(self.relay, &ClaimRequest::all("default", "null:"))
            .await
            .unwrap();
        let ClaimOutcome::Owned(claim) = outcome else {
            panic!("{outcome:?}");
        };
        self.store.open(&claim).await.unwrap()
    }

    /// How many events lie behind the stored cursor, under a new claim.
    async fn left(&self) -> usize {
        self.claim().await.next(PLENTY).await.unwrap().events.len()
    }
}

#[tokio::test]
async fn refused_was_not_done() {
    let bench = bench().await;
    let claimed = bench.claim().await;
    let page = claimed.next(PLENTY).await.unwrap();
    bench.script.once(Call::Advance, Fault::Refuse);
    let refused = claimed.advance(&page.end, &[]).await;
    assert!(matches!(refused, Err(StoreError::Unavailable { .. })));
    assert_eq!(bench.left().await, 3);
    assert_eq!(bench.script.calls(Call::Advance), 1);
}

#[tokio::test]
async fn failed_after_the_work_was_done() {
    let bench = bench().await;
    let claimed = bench.claim().await;
    let page = claimed.next(PLENTY).await.unwrap();
    bench.script.always(Call::Advance, Fault::FailAfter);
    let failed = claimed.advance(&page.end, &[]).await;
    assert!(matches!(failed, Err(StoreError::Unavailable { .. })));
    assert_eq!(bench.left().await, 0);
    assert!(claimed.advance(&page.end, &[]).await.is_err());
    bench.script.heal();
    let fenced = claimed.advance(&page.end, &[]).await;
    assert!(
        matches!(fenced, Err(StoreError::Fenced { .. })),
        "the real answer"
    );
}

#[tokio::test]
async fn a_held_answer_comes_when_it_is_released() {
    let bench = bench().await;
    let claimed = bench.claim().await;
    let page = claimed.next(PLENTY).await.unwrap();
    bench.script.once(Call::Advance, Fault::Hold);
    let held = {
        let (claimed, end) = (Arc::clone(&claimed), page.end.clone());
        tokio::spawn(async move { claimed.advance(&end, &[]).await.map(drop) })
    };
    bench.script.met(Call::Advance, 1).await;
    assert!(!held.is_finished());
    assert_eq!(bench.left().await, 0, "done, though nobody was told");
    bench.script.release();
    held.await.unwrap().unwrap();
}
