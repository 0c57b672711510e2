use crate::{Cursor, DueAt, Parking, Settlement};

/// A change that the store is to make; one at a time.
#[derive(Debug)]
pub enum Change {
    /// [`crate::ClaimParking::park`].
    Park(Vec<Parking>),
    /// [`crate::ClaimParking::settle`].
    Settle {
        /// The parked copy.
        id: i64,
        /// How its attempt ended.
        settlement: Settlement,
    },
    /// [`crate::ClaimProgress::advance`].
    Advance {
        /// To here.
        up_to: Cursor,
        /// The `seq` of each finished event.
        finished: Vec<i64>,
    },
    /// [`crate::ClaimReports::report`].
    Report {
        /// State of the breaker.
        breaker: &'static str,
        /// Why it is open.
        last_error: Option<String>,
    },
    /// [`crate::ClaimParking::due`].
    Due {
        /// How many.
        limit: usize,
    },
    /// [`crate::ClaimParking::put_off`].
    PutOff {
        /// Behind which copy.
        after: Option<DueAt>,
        /// How many.
        limit: usize,
    },
}
