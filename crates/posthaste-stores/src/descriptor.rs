//! The type of a store's row.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use posthaste_engine::{PlugIn, Store, StoreError};

use crate::init::{InitOption, InitOptions, Initialised, NewEra};

/// The row of a store. There is one for every store, also for those that this build left out.
#[derive(Debug)]
pub struct StoreDescriptor {
    /// Names, address, options and feature.
    pub plug_in: PlugIn,
    /// The versions that are tested, in words.
    pub versions: &'static str,
    /// Whether relays may own different partitions of a destination. The suite demands it.
    pub shares_out: bool,
    /// The options of `init` that it takes, of those that not every store has.
    pub init_options: &'static [InitOption],
    /// Why it takes no other, behind "which"; empty where it takes all.
    pub init_lacks: &'static str,
    /// Added where this build lists its stores. None: the build left it out.
    pub(crate) functions: Option<Functions>,
}

/// The functions of a store that this build has.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Functions {
    pub(crate) open: fn(&str) -> Result<Arc<dyn Store>, StoreError>,
    pub(crate) init: InitFunction,
    pub(crate) init_sql: fn(&InitOptions) -> Result<String, StoreError>,
    pub(crate) schema_version: fn() -> u32,
    /// None: it tells no copy from its original.
    pub(crate) plan_new_era: Option<PlanFunction>,
}

pub(crate) type InitFunction =
    for<'a> fn(&'a str, &'a InitOptions) -> BoxFuture<'a, Result<Initialised, StoreError>>;

pub(crate) type PlanFunction = fn(&str) -> BoxFuture<'_, Result<Option<NewEra>, StoreError>>;

impl StoreDescriptor {
    /// Whether this build has the store.
    #[must_use]
    pub fn is_built(&self) -> bool {
        self.functions.is_some()
    }

    /// The version of the schema that [`init`](Self::init) makes; none: this build left the store
    /// out.
    #[must_use]
    pub fn schema_version(&self) -> Option<u32> {
        self.functions.map(|functions| (functions.schema_version)())
    }

    /// The store at a URL. Touches nothing outside this process.
    ///
    /// # Errors
    /// [`StoreError::Misconfigured`] when the URL is wrong, or this build left the store out.
    pub fn open(&self, url: &str) -> Result<Arc<dyn Store>, StoreError> {
        (self.functions()?.open)(url)
    }

    /// Creates or migrates the schema, and stores what all relays share. Safe to run again.
    ///
    /// # Errors
    /// [`StoreError::Schema`] when the schema is newer than this build;
    /// [`StoreError::Misconfigured`] for a wrong option; [`StoreError::Denied`] when rights
    /// are missing.
    pub async fn init(&self, url: &str, options: &InitOptions) -> Result<Initialised, StoreError> {
        (self.functions()?.init)(url, options).await
    }

    /// The SQL that [`init`](Self::init) runs on an empty database, for another migration tool.
    ///
    /// # Errors
    /// [`StoreError::Misconfigured`] for an option that is wrong.
    pub fn init_sql(&self, options: &InitOptions) -> Result<String, StoreError> {
        (self.functions()?.init_sql)(options)
    }

    /// The effects of a new era here; none: the database is no copy. Changes nothing.
    ///
    /// # Errors
    /// [`StoreError::Schema`] when the schema is older than this build.
    pub async fn plan_new_era(&self, url: &str) -> Result<Option<NewEra>, StoreError> {
        match self.functions()?.plan_new_era {
            Some(plan) => plan(url).await,
            None => Ok(None),
        }
    }

    fn functions(&self) -> Result<Functions, StoreError> {
        self.functions.ok_or_else(|| {
            let advice = self.plug_in.build_advice().unwrap_or_default();
            StoreError::Misconfigured {
                operation: "read the store's URL",
                reason: format!("this build has no store `{}`; {advice}", self.plug_in.name),
            }
        })
    }
}
