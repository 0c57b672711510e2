//! Hints of writers to idle relays: there is something to read. They save some waiting and are needed for
//! nothing, so that none is waited for, and a connection that breaks is made again without haste.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use posthaste_engine::StoreError;
use tokio::sync::watch;

use super::{client::Work, connection::Connector, error::classify};

const OPERATION: &str = "listen for hints";
const CHANNEL: &str = "posthaste";
/// Between two attempts to listen.
const AGAIN: Duration = Duration::from_secs(10);
/// In which our own notification comes back, unless something between us and the server keeps it.
const ECHO: Duration = Duration::from_secs(5);

/// What all claims of a store hear, on one connection.
#[derive(Debug, Default)]
pub(super) struct Hints {
    heard: Mutex<Option<watch::Sender<()>>>,
}

/// What one claim hears.
#[derive(Debug)]
pub(super) struct Heard(watch::Receiver<()>);

impl Heard {
    /// Waits for the next hint. Cancel safe.
    pub(super) async fn hint(&mut self) {
        if self.0.changed().await.is_err() {
            std::future::pending().await
        }
    }
}

impl Hints {
    /// Listens for as long as anybody hears it.
    pub(super) fn listen(&self, connector: &Arc<Connector>) -> Heard {
        let mut heard = self.heard.lock().unwrap_or_else(PoisonError::into_inner);
        // A listener whose hearers are gone is about to end.
        let running = heard.as_ref().filter(|sender| sender.receiver_count() > 0);
        if let Some(sender) = running {
            return Heard(sender.subscribe());
        }
        let (sender, receiver) = watch::channel(());
        tokio::spawn(keep_listening(Arc::clone(connector), sender.clone()));
        *heard = Some(sender);
        Heard(receiver)
    }
}

async fn keep_listening(connector: Arc<Connector>, hints: watch::Sender<()>) {
    let mut said = false;
    loop {
        let listening = listen(&connector, &hints);
        tokio::select! {
            () = hints.closed() => return,
            ended = listening => if let Err(error) = ended && !std::mem::replace(&mut said, true) {
                warn_of(&error);
            }
        }
        tokio::select! {
            () = hints.closed() => return,
            () = tokio::time::sleep(AGAIN) => {}
        }
    }
}

fn warn_of(error: &StoreError) {
    tracing::warn!(
        "no hints are heard, so that the first event after a pause is found by polling: {error}"
    );
}

fn swallowed() -> StoreError {
    StoreError::Misconfigured {
        operation: OPERATION,
        reason: "a transaction pooler passes no notifications on: connect to the server itself, or switch hints off \
                 with `posthaste init --notify off`"
            .to_owned(),
    }
}

/// Listens until the connection ends.
async fn listen(connector: &Connector, hints: &watch::Sender<()>) -> Result<(), StoreError> {
    let failed = |error| classify(OPERATION, error);
    let (heard, mut echo) = (hints.clone(), hints.subscribe());
    let told = move |channel: &str| {
        if channel == CHANNEL {
            heard.send_replace(());
        }
    };
    let client = connector.connect_and(Work::Change, told).await?;
    if client.is_pooled() {
        // What we ask to be told of would be told to whoever gets the session after us.
        drop(client);
        warn_of(&swallowed());
        return std::future::pending().await;
    }
    client
        .batch_execute(&format!("listen {CHANNEL}; notify {CHANNEL}"))
        .await
        .map_err(failed)?;
    let came = tokio::time::timeout(ECHO, echo.changed()).await;
    drop(echo);
    if came.is_err() {
        return Err(swallowed());
    }
    // Nothing is asked of it any more; it ends when the server or the network ends it.
    while !client.is_closed() {
        tokio::time::sleep(AGAIN).await;
    }
    Err(StoreError::Unavailable {
        operation: OPERATION,
        reason: "the connection ended".to_owned(),
        source: None,
    })
}
