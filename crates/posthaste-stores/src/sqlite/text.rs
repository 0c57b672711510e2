//! Texts in SQL as our reads have them.

use rusqlite::{Connection, functions::FunctionFlags, types::ValueRef};

/// Gives the connection `posthaste_text(value)`: the text that `row.rs` reads there, with U+FFFD
/// for what is not UTF-8. Markers and copies bear such texts, and SQLite compares bytes.
pub(super) fn add_function(connection: &Connection) -> rusqlite::Result<()> {
    let flags = FunctionFlags::SQLITE_UTF8 | FunctionFlags::SQLITE_DETERMINISTIC;
    connection.create_scalar_function("posthaste_text", 1, flags, |arguments| {
        Ok(match arguments.get_raw(0) {
            ValueRef::Text(bytes) | ValueRef::Blob(bytes) => {
                Some(String::from_utf8_lossy(bytes).into_owned())
            }
            _ => None,
        })
    })
}
