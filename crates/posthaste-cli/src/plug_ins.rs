//! Texts about the stores and sinks that there are, from their rows.

use posthaste_engine::{AddressForm, PlugIn};
use posthaste_sinks::SINKS;
use posthaste_stores::STORES;

/// The help of `--store` and `--from`, which an environment variable can stand in for.
pub(crate) fn store_help(variable: &str) -> String {
    format!("The database: {} [env: {variable}]", store_examples())
}

/// The help of `--to`.
pub(crate) fn sink_help(variable: &str) -> String {
    format!("The destination: {} [env: {variable}]", sink_examples())
}

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

/// The form of an address, by the scheme with which the text before its colon ends.
pub(crate) fn address_form(before_colon: &str) -> Option<AddressForm> {
    plug_in(before_colon).map(|plug_in| plug_in.address)
}

/// The plug-in of an address, by the scheme with which the text before its colon ends.
pub(crate) fn plug_in(before_colon: &str) -> Option<&'static PlugIn> {
    let before_colon = before_colon.to_ascii_lowercase();
    let sinks = SINKS.iter().map(|sink| &sink.plug_in);
    let stores = STORES.iter().map(|store| &store.plug_in);
    let is_it = |plug_in: &&PlugIn| {
        let mut schemes = plug_in.schemes.iter();
        schemes.any(|scheme| {
            let before = before_colon.strip_suffix(scheme);
            before.is_some_and(|before| !before.ends_with(|c: char| c.is_ascii_alphanumeric()))
        })
    };
    sinks.chain(stores).find(is_it)
}
