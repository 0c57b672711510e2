//! Lanes for sinks. The duties of every lane stand here once: the account of records in flight, one
//! verdict for each record, *behind failure* for records that follow a failure, the answers that a
//! lane owes when it is closed or its worker breaks down, and abort.
//!
//! A sink brings its options, a way to connect, and a [`Publisher`], which encodes and sends
//! records and says what the answers mean. It may answer by slot and in any order
//! ([`LaneRecords::answer`]), or for everything in flight at once ([`LaneRecords::answer_all`]).
//! There are three places where it may run:
//!
//! - in a task of its own ([`WorkerLane::spawn`]), where the client must be driven whatever the
//!   relay does, since it sends heartbeats or has answers to read;
//! - in the relay's task ([`InPlaceLane`]), where the client has a thread of its own;
//! - on a thread ([`WorkerLane::start_thread`]), where each call blocks. A thread is no publisher:
//!   it loops over its [`FarEnd`].

#[cfg(any(feature = "_aws", feature = "http", feature = "pubsub"))]
mod ending;
mod far_end;
mod in_place;
#[cfg(test)]
mod tests;
mod worker_lane;

use std::time::Instant;

use posthaste_engine::LaneRecords;

#[cfg(any(feature = "_aws", feature = "http", feature = "pubsub"))]
pub(crate) use ending::Ending;
pub use far_end::FarEnd;
pub use in_place::{InPlaceLane, InPlacePublisher};
pub use worker_lane::{Stop, WorkerLane};

/// Why a record has no answer when its lane is closed.
const OUT_OF_TIME: &str = "not answered within the time for closing";

/// The records of a publisher's lane.
pub type RecordsOf<P> = LaneRecords<Instant, <P as Publisher>::InFlight, <P as Publisher>::Note>;

/// One connection of a sink: sends records, and turns answers into outcomes.
///
/// A client with a call for each record, a hundred at a time, in a lane of its own task:
///
/// ```
/// use std::{future::pending, panic::resume_unwind};
///
/// use posthaste_engine::{Decision, Outcome, Record};
/// use posthaste_sinks::publisher::{Publisher, RecordsOf, WorkerLane};
/// use tokio::task::JoinSet;
///
/// #[derive(Default)]
/// struct Calls {
///     running: JoinSet<(usize, Outcome)>,
///     answered: Option<(usize, Outcome)>,
/// }
///
/// impl Publisher for Calls {
///     type InFlight = ();
///     type Note = ();
///
///     fn advance(&mut self, records: &mut RecordsOf<Self>) {
///         if let Some((slot, outcome)) = self.answered.take() {
///             records.answer(slot, outcome);
///         }
///         records.decide(|item, next| {
///             if next.in_flight == 100 {
///                 return Decision::WaitAll;
///             }
///             let record = item.record.clone();
///             let call = async move { (next.slot, post(record).await) };
///             self.running.spawn(call);
///             Decision::Sent(())
///         });
///     }
///
///     async fn changed(&mut self) {
///         match self.running.join_next().await {
///             Some(Ok(answered)) => self.answered = Some(answered),
///             // The lane answers for a worker that broke down.
///             Some(Err(broken)) => resume_unwind(broken.into_panic()),
///             None => pending().await,
///         }
///     }
/// }
///
/// async fn post(record: Record) -> Outcome {
///     // Encodes, sends, and classifies the answer.
///     drop(record);
///     Outcome::accepted()
/// }
///
/// # async fn open_lane() -> WorkerLane {
/// WorkerLane::spawn(Calls::default())
/// # }
/// ```
pub trait Publisher: Sized + Send + 'static {
    /// Its note on a record in flight.
    type InFlight: Send + 'static;
    /// Its note on a record that waits.
    type Note: Default + Send + 'static;

    /// Bytes of the largest value that it is given: the lane rejects records with a larger one.
    fn value_bytes_max(&self) -> Option<u64> {
        None
    }

    /// Takes in the answers that have come, then sends what may be sent. Never waits. Called after
    /// each batch that was submitted, and each time that [`changed`](Self::changed) has returned.
    fn advance(&mut self, records: &mut RecordsOf<Self>);

    /// Waits until [`advance`](Self::advance) has something to do. Dropping the future loses
    /// nothing (cancel safe).
    fn changed(&mut self) -> impl Future<Output = ()> + Send;

    /// Takes leave of the broker once every record has its verdict. The caller sets a limit.
    fn goodbye(&mut self) -> impl Future<Output = ()> + Send {
        async {}
    }
}
