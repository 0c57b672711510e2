use std::future::pending;

use posthaste_engine::StoreError;
use tokio::task::JoinHandle;

/// A call to the store or the sink that goes on beside the others; dropping it aborts it.
pub(crate) struct Call<T>(Option<JoinHandle<T>>);

/// A call to the store.
pub(crate) type StoreCall<T> = Call<Result<T, StoreError>>;

impl<T: Send + 'static> Call<T> {
    pub(crate) const fn none() -> Self {
        Self(None)
    }

    pub(crate) fn is_under_way(&self) -> bool {
        self.0.is_some()
    }

    pub(crate) fn start(&mut self, call: impl Future<Output = T> + Send + 'static) {
        self.0 = Some(tokio::spawn(call));
    }

    /// Waits for the answer; for ever when nothing is under way. Cancel safe.
    pub(crate) async fn answer(&mut self) -> Result<T, StoreError> {
        let Some(call) = &mut self.0 else {
            return pending().await;
        };
        let answer = call.await;
        self.0 = None;
        answer.map_err(|error| StoreError::Bug {
            operation: "running a call",
            reason: error.to_string(),
        })
    }
}

impl<T> Drop for Call<T> {
    fn drop(&mut self) {
        if let Some(call) = &self.0 {
            call.abort();
        }
    }
}
