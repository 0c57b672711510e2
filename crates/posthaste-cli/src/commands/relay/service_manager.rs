//! Tells systemd, or a manager that speaks as it does, how the relay is.

use posthaste_relay::{DestinationHealth, Health};
use sd_notify::NotifyState;
use tokio::task::JoinHandle;
use tracing::warn;

/// Told for as long as this is not dropped.
pub(super) struct Told(Option<JoinHandle<()>>);

impl Drop for Told {
    fn drop(&mut self) {
        if let Some(watchdog) = &self.0 {
            watchdog.abort();
        }
    }
}

/// The relay runs from now on. Where the manager has a watchdog, it is fed while the relay makes
/// progress, or knows why it cannot.
pub(super) fn started(health: Health) -> Told {
    tell(NotifyState::Ready);
    let watchdog = sd_notify::watchdog_enabled().map(|limit| {
        tokio::spawn(async move {
            loop {
                // A new start would not bring back a broker or a database, and might repeat events.
                if !health
                    .destinations()
                    .iter()
                    .any(DestinationHealth::is_stuck)
                {
                    tell(NotifyState::Watchdog);
                }
                tokio::time::sleep(limit / 3).await;
            }
        })
    });
    Told(watchdog)
}

/// The relay was asked to stop.
pub(super) fn stopping() {
    tell(NotifyState::Stopping);
}

fn tell(state: NotifyState<'_>) {
    if let Err(error) = sd_notify::notify(&[state]) {
        warn!("the service manager cannot be told how the relay is: {error}");
    }
}
