//! Hints of writers to idle relays: there is something to read. They save some waiting and are
//! needed for nothing, so that none is waited for, and a connection that breaks is made again
//! without haste.
//!
//! ```text
//!   resting ──a claim is idle──> armed (holds the lock: writers hint) ──hint──> resting
//! ```
//!
//! Writers hint while a relay is armed, and only then (`posthaste.hint()` in the schema): busy
//! relays read often enough, and cost writers one look at the lock.

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU32, Ordering::Relaxed},
    },
    time::Duration,
};

use futures_util::FutureExt;
use posthaste_engine::StoreError;
use tokio::sync::{Notify, watch};

use super::{client::Client, connection::Connector, error::classify, session_settings::Work};

const OPERATION: &str = "listen for hints";
const CHANNEL: &str = "posthaste";
/// As `posthaste.hint()` tries them.
const ARM: &str = "select pg_catalog.pg_advisory_lock_shared(8101821198467952244)";
const DISARM: &str = "select pg_catalog.pg_advisory_unlock_shared(8101821198467952244)";
/// Between two attempts to listen.
const AGAIN: Duration = Duration::from_secs(10);
/// In which a statement is answered, and our own notification comes back, unless something between
/// us and the server keeps it.
const ANSWER: Duration = Duration::from_secs(5);
/// Between two looks whether a silent connection still answers.
const LOOK: Duration = Duration::from_secs(60);
/// So many reads in turn that brought nothing make a claim idle. By then the next read is 20 ms
/// away.
const IDLE_READS: u32 = 3;

/// The hints of all claims of a store, on one connection.
#[derive(Debug, Default)]
pub(super) struct Hints {
    line: Mutex<Option<Line>>,
}

/// Between the claims and the task that listens.
#[derive(Debug, Clone)]
struct Line {
    told: watch::Sender<()>,
    idle: Arc<Notify>,
}

/// The hints that one claim hears.
#[derive(Debug)]
pub(super) struct Heard {
    told: tokio::sync::Mutex<watch::Receiver<()>>,
    idle: Arc<Notify>,
    /// Reads in turn that brought nothing.
    empty_reads: AtomicU32,
}

impl Heard {
    /// Waits for the next hint. Cancel safe.
    pub(super) async fn hint(&self) {
        if self.told.lock().await.changed().await.is_err() {
            std::future::pending().await
        }
        self.empty_reads.store(0, Relaxed);
    }

    /// A read brought all that there was: something, or nothing.
    pub(super) fn read(&self, something: bool) {
        if something {
            self.empty_reads.store(0, Relaxed);
        } else if self.empty_reads.fetch_add(1, Relaxed) >= IDLE_READS - 1 {
            self.idle.notify_one();
        }
    }
}

impl Hints {
    /// Listens for as long as anybody hears it.
    pub(super) fn listen(&self, connector: &Arc<Connector>) -> Heard {
        let mut line = self.line.lock().unwrap_or_else(PoisonError::into_inner);
        // A listener whose hearers are gone is about to end.
        let running = line
            .take()
            .filter(|line: &Line| line.told.receiver_count() > 0);
        let running = running.unwrap_or_else(|| {
            let new = Line {
                told: watch::Sender::new(()),
                idle: Arc::default(),
            };
            tokio::spawn(keep_listening(Arc::clone(connector), new.clone()));
            new
        });
        let line = line.insert(running);
        Heard {
            told: tokio::sync::Mutex::new(line.told.subscribe()),
            idle: Arc::clone(&line.idle),
            empty_reads: AtomicU32::new(0),
        }
    }
}

async fn keep_listening(connector: Arc<Connector>, line: Line) {
    let mut said = false;
    loop {
        let listening = listen(&connector, &line);
        tokio::select! {
            () = line.told.closed() => return,
            ended = listening => if let Err(error) = ended && !std::mem::replace(&mut said, true) {
                tell_of(&error);
            }
        }
        tokio::select! {
            () = line.told.closed() => return,
            () = tokio::time::sleep(AGAIN) => {}
        }
    }
}

/// No warning: hints are on by default, and nothing depends on them.
fn tell_of(error: &StoreError) {
    tracing::info!(
        "no hints are heard, so that the first event after a pause is found by polling: {error}"
    );
}

fn swallowed() -> StoreError {
    StoreError::Misconfigured {
        operation: OPERATION,
        reason: "a transaction pooler passes no notifications on; a relay that connects to the \
                 server itself hears them"
            .to_owned(),
    }
}

/// Listens until the connection ends.
async fn listen(connector: &Connector, line: &Line) -> Result<(), StoreError> {
    let heard = Arc::new(Notify::new());
    let (told, hears) = (line.told.clone(), Arc::clone(&heard));
    let told = move |channel: &str| {
        if channel == CHANNEL {
            told.send_replace(());
            hears.notify_one();
        }
    };
    let client = connector.connect_and(Work::Change, told).await?;
    if client.is_pooled() {
        // Our notifications would go to the next user of the session.
        drop(client);
        tell_of(&swallowed());
        return std::future::pending().await;
    }
    run(&client, &format!("listen {CHANNEL}; notify {CHANNEL}")).await?;
    // Our own notification, which says that it listens.
    if tokio::time::timeout(ANSWER, heard.notified())
        .await
        .is_err()
    {
        return Err(swallowed());
    }
    loop {
        until(&client, &line.idle).await?;
        // A hint from before does not end the wait that begins now.
        let _ = heard.notified().now_or_never();
        run(&client, ARM).await?;
        until(&client, &heard).await?;
        // Every read of an idle claim says so again; the hint has woken all of them.
        let _ = line.idle.notified().now_or_never();
        run(&client, DISARM).await?;
    }
}

/// Waits for it on a connection that still answers.
async fn until(client: &Client, signal: &Notify) -> Result<(), StoreError> {
    while tokio::time::timeout(LOOK, signal.notified()).await.is_err() {
        run(client, "select").await?;
    }
    Ok(())
}

async fn run(client: &Client, sql: &str) -> Result<(), StoreError> {
    let answered = tokio::time::timeout(ANSWER, client.batch_execute(sql)).await;
    let late = |_| StoreError::Unavailable {
        operation: OPERATION,
        reason: format!("no answer within {ANSWER:?}"),
        source: None,
    };
    answered
        .map_err(late)?
        .map_err(|error| classify(OPERATION, error))
}
