//! A server stopped like a crash, so that it gives again the numbers that only aborted transactions
//! had drawn.

use std::any::Any;

use async_trait::async_trait;

/// A server and the tortured database on it.
#[async_trait]
pub trait Crashing: Send + Sync {
    /// Draws numbers that nobody has made durable. Answers the next one, and the value that has to
    /// live until the crash.
    async fn draw(&self) -> (u64, Box<dyn Any + Send>);

    /// Stops it, as `kill -9` does.
    fn crash(&self);

    /// Starts it with what it has written.
    fn start_again(&self);

    /// The next number that will be drawn.
    fn next(&self) -> u64;
}

/// Crashes the server behind numbers that were drawn in vain, starts it again, and counts whether
/// it gives them again.
pub async fn crash_server<T>(
    server: &dyn Crashing,
    again: &mut u32,
    meanwhile: impl FnOnce() -> T,
) -> T {
    let (next, drawn) = server.draw().await;
    server.crash();
    drop(drawn);
    let outcome = meanwhile();
    server.start_again();
    *again += u32::from(server.next() < next);
    outcome
}
