//! The end of a relay's run: what asks for it.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use rustix::process::Signal as RawSignal;
use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    sync::oneshot,
};

use crate::failure::{Failure, Status};

/// A signal so soon after the first is the same request: `timeout` signals its child and then its
/// whole group, and a wrapper passes on the Ctrl-C that the terminal has sent to both. Nobody asks
/// twice by hand in this time.
const SAME_REQUEST: Duration = Duration::from_millis(100);

/// The causes that end a run: a signal, or the limit of draining.
pub(super) struct Stop {
    signalled: oneshot::Receiver<()>,
    limit: Option<Duration>,
    pub(super) timed_out: Arc<AtomicBool>,
}

impl Stop {
    /// Listens for signals from now on. The first asks for a stop in order. One that comes later
    /// than [`SAME_REQUEST`] ends the process.
    pub(super) fn listen(limit: Option<Duration>) -> Result<Self, Failure> {
        // A file that meets the size limit of the process is an outage of that destination; by
        // default the signal would kill us. Listening is the safe way to be rid of that.
        let _handled_for_good = signal(SignalKind::from_raw(RawSignal::XFSZ.as_raw()))?;
        let (mut terminate, mut interrupt) = (
            signal(SignalKind::terminate())?,
            signal(SignalKind::interrupt())?,
        );
        let (first, signalled) = oneshot::channel();
        tokio::spawn(async move {
            either(&mut terminate, &mut interrupt).await;
            let asked_at = Instant::now();
            // The relay may have ended by itself.
            let _ = first.send(());
            while asked_at.elapsed() < SAME_REQUEST {
                either(&mut terminate, &mut interrupt).await;
            }
            eprintln!("a second signal: ending at once; some events may be delivered again");
            std::process::exit(Status::Failure as i32);
        });
        Ok(Self {
            signalled,
            limit,
            timed_out: Arc::default(),
        })
    }

    pub(super) async fn wait(self) {
        let limit = async {
            match self.limit {
                Some(limit) => tokio::time::sleep(limit).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            _ = self.signalled => {}
            () = limit => self.timed_out.store(true, Relaxed),
        }
    }
}

async fn either(one: &mut Signal, other: &mut Signal) {
    tokio::select! {
        _ = one.recv() => {}
        _ = other.recv() => {}
    }
}
