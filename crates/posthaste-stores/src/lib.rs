//! The stores of Posthaste: one folder per kind of database, one feature each.
//!
//! [`open`] makes a [`Store`] of a URL; [`STORES`] says what there is.

#[cfg(any(feature = "mysql", feature = "sqlite"))]
mod about;
mod descriptor;
/// The row of each store, compiled into every build.
mod descriptors {
    pub(crate) mod mysql;
    pub(crate) mod postgres;
    pub(crate) mod sqlite;
}
#[cfg(any(feature = "mysql", feature = "sqlite"))]
mod headers;
#[cfg(any(feature = "mysql", feature = "postgres", feature = "sqlite"))]
mod held_places;
mod init;
#[cfg(feature = "mysql")]
pub mod mysql;
#[cfg(any(feature = "mysql", feature = "sqlite"))]
mod page;
#[cfg(any(feature = "mysql", feature = "postgres", feature = "sqlite"))]
mod percent;
#[cfg(feature = "postgres")]
pub mod postgres;
#[cfg(feature = "sqlite")]
pub mod sqlite;
#[cfg(any(feature = "mysql", feature = "sqlite"))]
mod wanted;

use std::sync::Arc;

use posthaste_engine::{NoSuchScheme, PlugIn, Store, StoreError};

pub use descriptor::StoreDescriptor;
pub use init::{EraDestination, InitOption, InitOptions, Initialised, NewEra};

/// Every store, also those that this build left out.
pub static STORES: &[StoreDescriptor] = &[
    StoreDescriptor {
        #[cfg(feature = "mysql")]
        functions: Some(mysql::FUNCTIONS),
        ..descriptors::mysql::MYSQL
    },
    StoreDescriptor {
        #[cfg(feature = "postgres")]
        functions: Some(postgres::FUNCTIONS),
        ..descriptors::postgres::POSTGRES
    },
    StoreDescriptor {
        #[cfg(feature = "sqlite")]
        functions: Some(sqlite::FUNCTIONS),
        ..descriptors::sqlite::SQLITE
    },
];

/// The row of the store that a URL means, if this build has it.
///
/// # Errors
/// The URL has no scheme (none), or one of no store in this build.
pub fn descriptor(url: &str) -> Result<&'static StoreDescriptor, Option<NoSuchScheme>> {
    let (scheme, _) = url.split_once(':').ok_or(None)?;
    let scheme = scheme.to_ascii_lowercase();
    let is_word = |c: char| c.is_ascii_alphanumeric();
    if scheme.is_empty() || !scheme.chars().all(is_word) {
        return Err(None);
    }
    STORES
        .iter()
        .find(|store| store.is_built() && store.plug_in.schemes.contains(&&*scheme))
        .ok_or_else(|| Some(no_such_store(&scheme)))
}

/// The store at a URL. Touches nothing outside this process.
///
/// # Errors
/// [`StoreError::Misconfigured`] when the URL is of no store in this build, or wrong in another
/// way.
pub fn open(url: &str) -> Result<Arc<dyn Store>, StoreError> {
    match descriptor(url) {
        Ok(store) => store.open(url),
        Err(said) => Err(StoreError::Misconfigured {
            operation: "read the store's URL",
            reason: said.map_or_else(
                || format!("it has no scheme; write {}", examples(" or ")),
                |said| said.reason,
            ),
        }),
    }
}

/// The addresses to begin with, of the stores in this build.
#[must_use]
pub fn examples(separator: &str) -> String {
    let built = STORES.iter().filter(|store| store.is_built());
    let examples: Vec<_> = built.map(|store| store.plug_in.example).collect();
    examples.join(separator)
}

/// The advice for a scheme that is of no store in this build.
fn no_such_store(scheme: &str) -> NoSuchScheme {
    let known: Vec<(&PlugIn, bool)> = STORES
        .iter()
        .map(|store| (&store.plug_in, store.is_built()))
        .collect();
    PlugIn::no_such_scheme("store", scheme, &known, &present())
}

/// The names of the stores in this build.
#[must_use]
pub fn present() -> String {
    let built = STORES.iter().filter(|store| store.is_built());
    let names: Vec<_> = built.map(|store| store.plug_in.name).collect();
    match names.as_slice() {
        [] => "none".to_owned(),
        [rest @ .., last] if !rest.is_empty() => format!("{} and {last}", rest.join(", ")),
        names => names.concat(),
    }
}
