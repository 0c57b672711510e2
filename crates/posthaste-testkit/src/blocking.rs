//! The brokers' clients are asynchronous; the kit's calls block, wherever they are made.

use std::thread;
use tokio::runtime::Builder;

/// Runs asynchronous work to its end on a runtime of its own, and blocks meanwhile.
///
/// On a thread of its own, since the caller's may be inside a runtime, where another one cannot be
/// blocked on.
pub(crate) fn wait_for<T: Send, F: Future<Output = T>>(work: impl FnOnce() -> F + Send) -> T {
    let run = || {
        let runtime = Builder::new_current_thread().enable_all().build();
        runtime.expect("a runtime").block_on(async { work().await })
    };
    thread::scope(|scope| scope.spawn(run).join())
        // The caller's test fails with the message of the panic itself.
        .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}
