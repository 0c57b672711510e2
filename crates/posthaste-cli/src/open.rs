//! Opens stores and sinks by their URLs, and says what URLs there are.

use std::sync::Arc;

use posthaste_engine::{AddressForm, PlugIn, Sink, Store};
use posthaste_relay::BoundedStore;
use posthaste_sinks::SINKS;
use posthaste_stores::{STORES, StoreDescriptor};

use crate::{failure::Failure, secret::SecretUrl};

/// The URLs of stores, for messages: those of this build.
pub(crate) fn store_examples() -> String {
    posthaste_stores::examples(" or ")
}

/// The URLs of sinks, for messages: those of this build, brokers first.
pub(crate) fn sink_examples() -> String {
    let built = SINKS.iter().filter(|sink| sink.is_built());
    let (brokers, local): (Vec<_>, Vec<_>) = built
        .map(|sink| &sink.plug_in)
        .partition(|plug_in| plug_in.server.is_some());
    let examples: Vec<_> = brokers
        .iter()
        .chain(&local)
        .map(|plug_in| plug_in.example)
        .collect();
    match examples.as_slice() {
        [rest @ .., last] if !rest.is_empty() => format!("{} or {last}", rest.join(", ")),
        examples => examples.concat(),
    }
}

/// Schemes behind which the path of a file stands, in which `:` and `@` are letters like others.
pub(crate) fn file_schemes() -> impl Iterator<Item = &'static str> {
    let sinks = SINKS.iter().map(|sink| &sink.plug_in);
    let stores = STORES.iter().map(|store| &store.plug_in);
    let names_a_file = |plug_in: &&PlugIn| plug_in.address == AddressForm::File;
    sinks
        .chain(stores)
        .filter(names_a_file)
        .flat_map(|plug_in| plug_in.schemes.iter().copied())
}

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
                "`file:` is no store; this build has {}\nfix: write {write}; in a configuration file, \
                 ${{file:PATH}} reads the URL from a file",
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

/// Whether the sink at a URL writes to standard output.
pub(crate) fn writes_to_stdout(url: &SecretUrl) -> bool {
    posthaste_sinks::descriptor(url.expose()).is_some_and(|sink| sink.writes_to_stdout)
}
