//! The operators' wishes for a destination, as rows have them that know no arrays.

use posthaste_engine::{DestinationState, StoreError, Wanted};

/// A state, and places as a JSON array.
pub(crate) fn wanted(
    operation: &'static str,
    state: &str,
    places: &str,
) -> Result<Wanted, StoreError> {
    let paused_places = serde_json::from_str(places)
        .map_err(|error| unreadable(operation, format!("paused places: {error}")))?;
    Ok(Wanted {
        state: state_named(operation, state)?,
        paused_places,
    })
}

fn state_named(operation: &'static str, name: &str) -> Result<DestinationState, StoreError> {
    [
        DestinationState::Active,
        DestinationState::Paused,
        DestinationState::Removed,
    ]
    .into_iter()
    .find(|state| state.as_str() == name)
    .ok_or_else(|| unreadable(operation, format!("a destination in state `{name}`")))
}

fn unreadable(operation: &'static str, reason: String) -> StoreError {
    StoreError::Bug { operation, reason }
}
