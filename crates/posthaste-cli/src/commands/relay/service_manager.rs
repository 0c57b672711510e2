//! Tells systemd, or a manager that speaks as it does, how the relay is.

use posthaste_relay::{DestinationHealth, Health};
use sd_notify::NotifyState;
use tracing::warn;

use crate::task::AbortOnDrop;

/// The relay runs from now on. Where the manager has a watchdog, it is fed while the relay makes
/// progress, or knows why it cannot, until the answer is dropped.
pub(super) fn started(health: Health) -> Option<AbortOnDrop> {
    tell(NotifyState::Ready);
    sd_notify::watchdog_enabled().map(|limit| {
        AbortOnDrop(tokio::spawn(async move {
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
        }))
    })
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
