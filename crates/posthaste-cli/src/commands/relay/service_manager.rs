//! Tells systemd, or a manager that speaks as it does, how the relay is.

use std::{io, sync::mpsc, thread, time::Duration};

use posthaste_relay::{DestinationHealth, Health};
use sd_notify::NotifyState;
use tokio::{sync::oneshot, time::timeout};
use tracing::warn;

use crate::task::AbortOnDrop;

/// A manager that has not read a message by then gets a warning about it.
const PATIENCE: Duration = Duration::from_secs(5);
/// A manager that reads does so in far less; another one must not hold up a stop.
const STOPPING_MAX: Duration = Duration::from_millis(100);

/// A state, and who waits until it is sent.
type Message = (NotifyState<'static>, oneshot::Sender<()>);

/// The way to the manager. A thread of its own sends, as a socket that nobody reads blocks the
/// sender; the thread ends with the process.
#[derive(Debug, Clone)]
pub(super) struct ServiceManager(mpsc::Sender<Message>);

impl ServiceManager {
    pub(super) fn new() -> io::Result<Self> {
        let (messages, to_send) = mpsc::channel();
        thread::Builder::new()
            .name("service-manager".to_owned())
            .spawn(move || send_all(&to_send))?;
        Ok(Self(messages))
    }

    /// The relay runs from now on. Where the manager has a watchdog, it is fed while the relay
    /// makes progress, or knows why it cannot, until the answer is dropped.
    pub(super) fn started(&self, health: Health) -> AbortOnDrop {
        let manager = self.clone();
        AbortOnDrop(tokio::spawn(async move {
            manager.tell(NotifyState::Ready).await;
            let Some(limit) = sd_notify::watchdog_enabled() else {
                return;
            };
            loop {
                // A new start would not bring back a broker or a database, and might repeat events.
                if !health
                    .destinations()
                    .iter()
                    .any(DestinationHealth::is_stuck)
                {
                    manager.tell(NotifyState::Watchdog).await;
                }
                tokio::time::sleep(limit / 3).await;
            }
        }))
    }

    /// The relay was asked to stop.
    pub(super) async fn stopping(&self) {
        let _unread = timeout(STOPPING_MAX, self.tell(NotifyState::Stopping)).await;
    }

    /// Comes back when the manager has the message.
    async fn tell(&self, state: NotifyState<'static>) {
        let (sent, mut is_sent) = oneshot::channel();
        if self.0.send((state, sent)).is_err() {
            return;
        }
        if timeout(PATIENCE, &mut is_sent).await.is_err() {
            warn!(
                "the service manager has read nothing at NOTIFY_SOCKET for {} s, and may take this \
                 relay for stuck; the relay goes on. Mend the program that listens there, or unset \
                 NOTIFY_SOCKET",
                PATIENCE.as_secs()
            );
            let _ = is_sent.await;
        }
    }
}

fn send_all(messages: &mpsc::Receiver<Message>) {
    for (state, sent) in messages {
        if let Err(error) = sd_notify::notify(&[state]) {
            warn!("the service manager cannot be told how the relay is: {error}");
        }
        let _ = sent.send(());
    }
}
