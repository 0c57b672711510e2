//! The row of the store `mysql`. Its options have the names of MySQL's own clients.

use posthaste_engine::{AddressForm, Feature, OptionDefault, OptionSpec, OptionValue, PlugIn};

use crate::{descriptor::StoreDescriptor, init::InitOption};

pub(crate) const MYSQL: StoreDescriptor = StoreDescriptor {
    plug_in: PlugIn {
        name: "mysql",
        title: "MySQL and MariaDB",
        schemes: &["mysql", "mariadb"],
        example: "mysql://USER@HOST/DATABASE",
        address: AddressForm::Servers,
        options: &[CONNECT_TIMEOUT, HOLE_PROOF, SSL_CA, SSL_MODE],
        feature: Some(Feature {
            name: "mysql",
            needs: None,
        }),
        server: Some("mysql"),
    },
    versions: "MySQL 8.0 or later, MariaDB 10.6 or later",
    shares_out: true,
    init_options: &[InitOption::Writer, InitOption::Relay],
    init_lacks: "has neither leaves nor notifications nor eras",
    functions: None,
};

pub(crate) const CONNECT_TIMEOUT: OptionSpec = OptionSpec {
    name: "connect-timeout",
    value: OptionValue::Duration {
        shortest_ms: 100,
        longest_ms: 60_000,
        range: "from 100ms to a minute",
        example: "5s",
    },
    // A third of the default lease.
    default: OptionDefault::Value("5s"),
    help: "How long to try to connect.",
};

pub(crate) const HOLE_PROOF: OptionSpec = OptionSpec {
    name: "hole-proof",
    value: OptionValue::Word(&["instruments", "lock", "none"]),
    default: OptionDefault::Value("instruments"),
    help: "How it is proven that no event will come for a number that was drawn and not seen. \
           `instruments` asks the server who writes. `lock` takes a lock for reading on the outbox \
           for an instant, at most once a second, where the instruments cannot be trusted. `none` \
           proves nothing: such numbers are looked for again and again.",
};

pub(crate) const SSL_CA: OptionSpec = OptionSpec {
    name: "ssl-ca",
    value: OptionValue::File,
    default: OptionDefault::Unset("the system's authorities"),
    help: "PEM file of trusted authorities.",
};

pub(crate) const SSL_MODE: OptionSpec = OptionSpec {
    name: "ssl-mode",
    value: OptionValue::Word(&[
        "disabled",
        "preferred",
        "required",
        "verify-ca",
        "verify-identity",
    ]),
    default: OptionDefault::Value("preferred"),
    help: "How far the server's certificate is believed. `verify-ca` and `verify-identity` ask an \
           authority.",
};
