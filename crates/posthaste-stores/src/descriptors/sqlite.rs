//! The row of the store `sqlite`.

use posthaste_engine::{AddressForm, Feature, OptionDefault, OptionSpec, OptionValue, PlugIn};

use crate::descriptor::{Functions, StoreDescriptor};

pub(crate) static SQLITE: StoreDescriptor = StoreDescriptor {
    plug_in: PlugIn {
        name: "sqlite",
        title: "SQLite",
        schemes: &["sqlite"],
        example: "sqlite:PATH",
        address: AddressForm::File,
        options: &[BUSY_TIMEOUT],
        feature: Some(Feature {
            name: "sqlite",
            needs: None,
        }),
        server: None,
    },
    versions: "built in",
    shares_out: false,
    init_options: &[],
    init_lacks: "has neither roles nor leaves nor notifications nor eras; its rights are those of \
                 the file",
    functions: FUNCTIONS,
};

pub(crate) const BUSY_TIMEOUT: OptionSpec = OptionSpec {
    name: "busy_timeout",
    value: OptionValue::Duration {
        shortest_ms: 1,
        // SQLite takes milliseconds as a C int.
        longest_ms: 3_600_000,
        range: "from 1ms to an hour",
        example: "500ms",
    },
    // Many times what a healthy writer holds the lock, a third of the default lease.
    default: OptionDefault::Value("5s"),
    help: "How long a call waits for another process's lock before it answers *unavailable*.",
};

#[cfg(feature = "sqlite")]
const FUNCTIONS: Option<Functions> = {
    use std::sync::Arc;

    use crate::sqlite::{InitOptions, SqliteStore, init, sql};

    fn options(options: &crate::InitOptions) -> InitOptions {
        InitOptions {
            partitions: options.partitions,
            retention: options.retention,
        }
    }

    Some(Functions {
        open: |url| Ok(Arc::new(SqliteStore::new(url)?)),
        init: |url, asked| {
            Box::pin(async move {
                let done = init(url, options(asked)).await?;
                Ok(crate::Initialised {
                    applied: done.applied,
                    version: done.version,
                    new_era: None,
                })
            })
        },
        init_sql: |asked| sql(options(asked)),
        plan_new_era: None,
    })
};
#[cfg(not(feature = "sqlite"))]
const FUNCTIONS: Option<Functions> = None;
