//! The row of the store `sqlite`.

use posthaste_engine::{AddressForm, Feature, OptionDefault, OptionSpec, OptionValue, PlugIn};

use crate::descriptor::StoreDescriptor;

pub(crate) const SQLITE: StoreDescriptor = StoreDescriptor {
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
    functions: None,
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
