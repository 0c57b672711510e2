//! Opens stores and sinks by their URLs.

use std::sync::Arc;

use posthaste_engine::{Sink, Store};
use posthaste_relay::BoundedStore;
use posthaste_stores::{postgres::PostgresStore, sqlite::SqliteStore};

use crate::{failure::Failure, secret::SecretUrl};

/// Examples of a sink's URL, for messages.
pub(crate) const SINK_EXAMPLES: &str = "kafka://HOST:PORT, amqp://HOST/VHOST?exchange=NAME, \
     file:///PATH/events.jsonl, stdout: or null:";

/// The kinds of store in this build.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StoreKind {
    Postgres,
    Sqlite,
}

impl StoreKind {
    /// The kind that a URL's scheme names.
    ///
    /// # Errors
    /// A scheme of no store in this build; the message names those there are.
    pub(crate) fn of(url: &SecretUrl) -> Result<Self, Failure> {
        match url.scheme().as_deref() {
            Some("postgres" | "postgresql") => Ok(Self::Postgres),
            Some("sqlite") => Ok(Self::Sqlite),
            Some("file") => Err(Failure::usage(
                "`file:` is no store; this build has postgres and sqlite\nfix: write sqlite:PATH for \
                 an SQLite file; in a configuration file, ${file:PATH} reads the URL from a file",
            )),
            Some(scheme) if scheme.chars().all(|c| c.is_ascii_alphanumeric()) => {
                Err(Failure::usage(format!(
                    "this build has no store `{scheme}`, it has postgres and sqlite\nfix: write \
                     postgres://USER@HOST/DATABASE or sqlite:PATH"
                )))
            }
            _ => Err(Failure::usage(
                "the store's URL has no scheme\nfix: write postgres://USER@HOST/DATABASE or sqlite:PATH",
            )),
        }
    }
}

/// The store at a URL; touches nothing yet.
///
/// # Errors
/// The URL is wrong.
pub(crate) fn store(url: &SecretUrl) -> Result<Arc<dyn Store>, Failure> {
    Ok(match StoreKind::of(url)? {
        StoreKind::Postgres => Arc::new(PostgresStore::new(url.expose())?),
        StoreKind::Sqlite => Arc::new(SqliteStore::new(url.expose())?),
    })
}

/// The same for questions of our own, each of which is answered or fails in time. A relay sets its
/// own limits.
///
/// # Errors
/// The URL is wrong.
pub(crate) fn bounded_store(url: &SecretUrl) -> Result<Arc<dyn Store>, Failure> {
    Ok(Arc::new(BoundedStore::new(store(url)?)))
}

/// The sink at a URL; touches nothing yet.
///
/// # Errors
/// The URL is wrong.
pub(crate) fn sink(url: &SecretUrl) -> Result<Arc<dyn Sink>, Failure> {
    Ok(posthaste_sinks::open(url.expose())?)
}
