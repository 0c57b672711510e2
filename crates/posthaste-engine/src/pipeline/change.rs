use crate::{Cursor, Parking, Settlement};

/// A change that the store is to make; one at a time.
#[derive(Debug)]
pub enum Change {
    /// [`crate::Claimed::park`].
    Park(Vec<Parking>),
    /// [`crate::Claimed::settle`].
    Settle {
        /// The parked copy.
        id: i64,
        /// How its attempt ended.
        settlement: Settlement,
    },
    /// [`crate::Claimed::advance`].
    Advance {
        /// To here.
        up_to: Cursor,
        /// The `seq` of each finished event.
        finished: Vec<i64>,
    },
    /// [`crate::Claimed::report`].
    Report {
        /// State of the breaker.
        breaker: &'static str,
        /// Why it is open.
        last_error: Option<String>,
    },
    /// [`crate::Claimed::due`].
    Due {
        /// How many.
        limit: usize,
    },
}
