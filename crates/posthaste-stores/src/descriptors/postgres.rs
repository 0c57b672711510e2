//! The row of the store `postgres`. Its options have libpq's names and meanings.

use posthaste_engine::{AddressForm, Feature, OptionDefault, OptionSpec, OptionValue, PlugIn};

use crate::{descriptor::StoreDescriptor, init::InitOption};

pub(crate) const POSTGRES: StoreDescriptor = StoreDescriptor {
    plug_in: PlugIn {
        name: "postgres",
        title: "PostgreSQL",
        schemes: &["postgres", "postgresql"],
        example: "postgres://USER@HOST/DATABASE",
        address: AddressForm::Servers,
        options: OPTIONS,
        feature: Some(Feature {
            name: "postgres",
            needs: None,
        }),
        server: Some("postgres"),
    },
    versions: "14 or later",
    shares_out: true,
    init_options: &[
        InitOption::Writer,
        InitOption::Relay,
        InitOption::LeafRows,
        InitOption::Notify,
        InitOption::RetentionMode,
        InitOption::NewEra,
    ],
    init_lacks: "",
    functions: None,
};

const SECONDS: OptionValue = OptionValue::Number {
    unit: "seconds",
    least: 0,
};

const MILLISECONDS: OptionValue = OptionValue::Number {
    unit: "milliseconds",
    least: 0,
};

const OPTIONS: &[OptionSpec] = &[
    OptionSpec {
        name: "application_name",
        value: OptionValue::Text,
        default: OptionDefault::Unset("none"),
        help: "Our name in the server's lists and logs.",
    },
    OptionSpec {
        name: "channel_binding",
        value: OptionValue::Word(&["disable", "prefer", "require"]),
        default: OptionDefault::Value("prefer"),
        help: "Whether the login is bound to the TLS connection.",
    },
    OptionSpec {
        name: "connect_timeout",
        value: SECONDS,
        default: OptionDefault::Value("5"),
        help: "How long to try one host: one that does not answer at all must not hold the \
               others up.",
    },
    OptionSpec {
        name: "dbname",
        value: OptionValue::Text,
        default: OptionDefault::Unset("the path, else the user's name"),
        help: "The database.",
    },
    OptionSpec {
        name: "host",
        value: OptionValue::Text,
        default: OptionDefault::Unset("the authority, else `localhost`"),
        help: "Hosts or directories of sockets, separated by commas.",
    },
    OptionSpec {
        name: "keepalives",
        value: OptionValue::Text,
        default: OptionDefault::Value("1"),
        help: "`0` asks no idle connection whether it lives.",
    },
    OptionSpec {
        name: "keepalives_idle",
        value: SECONDS,
        default: OptionDefault::Value("10"),
        help: "An idle connection is asked after this time, so that a silent firewall is noticed.",
    },
    OptionSpec {
        name: "keepalives_interval",
        value: SECONDS,
        default: OptionDefault::Value("5"),
        help: "The time between such questions.",
    },
    OptionSpec {
        name: "options",
        value: OptionValue::Text,
        default: OptionDefault::Unset("none"),
        help: "Settings of the session, as `-c name=value`.",
    },
    OptionSpec {
        name: "passfile",
        value: OptionValue::File,
        default: OptionDefault::Unset("`~/.pgpass`"),
        help: "The password file. Others must not be able to read it.",
    },
    OptionSpec {
        name: "password",
        value: OptionValue::Text,
        default: OptionDefault::Unset("the authority, else the password file"),
        help: "The password.",
    },
    OptionSpec {
        name: "port",
        value: OptionValue::Text,
        default: OptionDefault::Unset("the authority, else `5432`"),
        help: "One port, or one for each host, separated by commas.",
    },
    OptionSpec {
        name: "service",
        value: OptionValue::Text,
        default: OptionDefault::Unset("none"),
        help: "A section of `~/.pg_service.conf` that gives further options.",
    },
    OptionSpec {
        name: "sslmode",
        value: OptionValue::Word(&["disable", "prefer", "require", "verify-ca", "verify-full"]),
        default: OptionDefault::Value("prefer"),
        help: "How far the server's certificate is believed. `verify-ca` and `verify-full` ask \
               an authority.",
    },
    OptionSpec {
        name: "sslrootcert",
        value: OptionValue::File,
        default: OptionDefault::Unset("the system's authorities"),
        help: "PEM file of trusted authorities, or `system`. With a file `require` means \
               `verify-ca`.",
    },
    OptionSpec {
        name: "target_session_attrs",
        value: OptionValue::Word(&["any", "read-write", "primary"]),
        default: OptionDefault::Unset("`read-write` with several hosts, else `any`"),
        help: "Which of several hosts will do. A replica is refused in any case.",
    },
    OptionSpec {
        name: "tcp_user_timeout",
        value: MILLISECONDS,
        default: OptionDefault::Value("10000"),
        help: "A dead peer is noticed after this time, well before a lease of 15 s ends.",
    },
    OptionSpec {
        name: "user",
        value: OptionValue::Text,
        default: OptionDefault::Unset("the authority"),
        help: "The role.",
    },
];
