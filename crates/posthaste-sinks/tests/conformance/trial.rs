//! Tests of one broker's sink alone, bounded like the suite's own cases.

use std::time::Duration;

use libtest_mimic::Trial;
use tokio::runtime::Builder;

/// Bounds a hang, nothing more. Far above what any test needs on a busy machine: one starts five
/// servers, and each start may take two minutes.
pub(crate) const HANG: Duration = Duration::from_secs(900);

/// A runtime in which a lane, and its heartbeats, go on while the test kit's calls block.
#[cfg(feature = "_transport")]
pub(crate) fn beside_blocking_calls() -> Builder {
    let mut runtime = Builder::new_multi_thread();
    runtime.worker_threads(1);
    runtime
}

/// A test that runs in such a runtime.
pub(crate) fn trial<F: Future<Output = ()> + 'static>(
    name: String,
    runtime: fn() -> Builder,
    test: impl FnOnce() -> F + Send + 'static,
) -> Trial {
    Trial::test(name, move || {
        let runtime = runtime().enable_all().build().unwrap();
        runtime.block_on(async {
            tokio::time::timeout(HANG, test()).await.expect("hung");
        });
        Ok(())
    })
}
