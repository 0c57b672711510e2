//! Opens stores and sinks by their URLs.

use std::sync::Arc;

use posthaste_engine::{Sink, Store};
use posthaste_relay::BoundedStore;
use posthaste_stores::StoreDescriptor;

use crate::{config::Destination, failure::Failure, plug_ins::store_examples, secret::SecretUrl};

/// The kind of store that a URL's scheme names.
///
/// # Errors
/// A scheme of no store in this build; the message names those there are.
pub(crate) fn store_kind(url: &SecretUrl) -> Result<&'static StoreDescriptor, Failure> {
    let write = store_examples();
    let is_a_file = url.scheme().as_deref() == Some("file");
    posthaste_stores::descriptor(url.expose()).map_err(|said| {
        Failure::usage(match said {
            Some(_) if is_a_file => format!(
                "`file:` is no store; this build has {}\nfix: write {write}; in a configuration \
                 file, ${{file:PATH}} reads the URL from a file",
                posthaste_stores::present()
            ),
            Some(said) => {
                let fix = said.fix.unwrap_or_else(|| format!("write {write}"));
                format!("{}\nfix: {fix}", said.reason)
            }
            None => format!("the store's URL has no scheme\nfix: write {write}"),
        })
    })
}

/// The store at a URL; touches nothing yet.
///
/// # Errors
/// The URL is wrong.
pub(crate) fn store(url: &SecretUrl) -> Result<Arc<dyn Store>, Failure> {
    Ok(store_kind(url)?.open(url.expose())?)
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

/// The sink of a destination, with what it does with payloads; touches nothing yet.
///
/// # Errors
/// The URL or a setting is wrong.
pub(crate) fn destination(known: &Destination) -> Result<Arc<dyn Sink>, Failure> {
    let sink = posthaste_sinks::open(known.url.expose())?;
    Ok(posthaste_sinks::around(sink, &known.tuning.payloads())?)
}

/// Whether the sink at a URL writes to standard output.
pub(crate) fn writes_to_stdout(url: &SecretUrl) -> bool {
    posthaste_sinks::descriptor(url.expose()).is_some_and(|sink| sink.writes_to_stdout)
}
