//! Tasks that drive connections.

use std::fmt;

use tokio::task::JoinHandle;

/// The task of a connection, whose sender is elsewhere. Dropping it destroys the socket: what the
/// kernel had not sent yet is thrown away.
#[derive(Debug)]
pub(crate) struct Driver {
    /// None once it ends by itself.
    task: Option<JoinHandle<()>>,
}

impl Driver {
    /// Drives a connection to such a peer.
    pub(crate) fn start<E: fmt::Display>(
        connection: impl Future<Output = Result<(), E>> + Send + 'static,
        peer: &'static str,
    ) -> Self {
        let task = tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(%error, "a connection to {peer} ended");
            }
        });
        Self { task: Some(task) }
    }

    #[cfg(feature = "pubsub")]
    pub(crate) fn has_ended(&self) -> bool {
        self.task.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Takes leave of a server to which no request is under way: it reads an end, not a reset. The
    /// sender is dropped behind it.
    pub(crate) fn let_go(mut self) {
        self.task = None;
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        if let Some(task) = &self.task {
            task.abort();
        }
    }
}
