//! Pages that stores fill row by row.

use posthaste_engine::{Budget, OrderBy, PageBuilder, StoreError, StoredEvent, StoredFields};

use crate::headers;

/// Whether an event was added to the page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pushed {
    /// Added.
    Added,
    /// It does not fit into what is left of the budget.
    NoRoom,
}

/// An empty page with room for a usual one.
pub(crate) fn page(budget: Budget, order_by: OrderBy) -> PageBuilder {
    PageBuilder::with_capacity(budget.events.min(256), budget.bytes.min(64 << 10))
        .ordered_by(order_by)
}

/// Adds an event, with the texts of its headers in turn, and what is wrong with its row. The first
/// event of a page always fits.
pub(crate) fn push(
    page: &mut PageBuilder,
    budget: Budget,
    operation: &'static str,
    fields: &StoredFields<'_>,
    header_texts: &[Option<String>],
    fault: Option<&str>,
) -> Result<Pushed, StoreError> {
    let texts_bytes: usize = fields.texts.iter().flatten().map(|text| text.len()).sum();
    let header_bytes = header_texts
        .iter()
        .map(|text| 4 + text.as_ref().map_or(0, String::len));
    let bytes = size_of::<StoredEvent>()
        + texts_bytes
        + header_bytes.sum::<usize>()
        + fields.payload.map_or(0, <[u8]>::len);
    if !page.is_empty() && page.bytes() + bytes > budget.bytes {
        return Ok(Pushed::NoRoom);
    }
    let headers = headers::pairs(header_texts).unwrap_or_default();
    let pushed = match fault {
        None => page.push(fields, headers.into_iter()),
        Some(fault) => page.push_faulty(fields, fault),
    };
    match pushed {
        Ok(()) => Ok(Pushed::Added),
        Err(full) if page.is_empty() => Err(StoreError::Bug {
            operation,
            reason: format!("event {}: {full}", fields.seq),
        }),
        Err(_) => Ok(Pushed::NoRoom),
    }
}
