//! The row of the sink `kafka`.

use posthaste_engine::{
    AddressForm, DedupWindow, Deduplication, Feature, FenceKind, KeyOrder, OptionDefault,
    OptionSpec, OptionValue, PlugIn, SinkMode,
};

use crate::descriptor::{SinkDescriptor, SinkSummary};

pub(crate) const KAFKA: SinkDescriptor = SinkDescriptor {
    plug_in: PlugIn {
        name: "kafka",
        title: "Kafka",
        schemes: &["kafka"],
        example: "kafka://HOST:PORT",
        address: AddressForm::Servers,
        options: &[
            TLS,
            CA_FILE,
            CERT_FILE,
            KEY_FILE,
            SASL,
            COMPRESSION,
            LINGER,
            DELIVERY,
            PROGRESS_TOPIC,
            CLIENT_ID,
        ],
        feature: Some(Feature {
            name: "kafka",
            needs: Some("make, pkg-config, OpenSSL's headers (Debian: `libssl-dev`)"),
        }),
        server: Some("kafka"),
    },
    modes: &[
        SinkMode {
            name: "kafka",
            key_order: KeyOrder::Pipelined,
            fence: FenceKind::Timing,
            single_lane: false,
            requests_max: Some(5),
            deduplication: None,
        },
        SinkMode {
            name: "kafka-transactional",
            key_order: KeyOrder::Pipelined,
            fence: FenceKind::Exact,
            single_lane: false,
            requests_max: Some(1),
            deduplication: Some(DEDUPLICATION),
        },
    ],
    summary: SinkSummary {
        accepted: "all in-sync replicas have it",
        order: "one idempotent producer",
        id: "header `id`",
        fence: "time; in transactions, the broker",
    },
    writes_to_stdout: false,
    open: None,
};

/// Transactions keep the events that they accepted in the progress topic.
pub(crate) const DEDUPLICATION: Deduplication = Deduplication {
    window: DedupWindow::UntilStored,
    ids_max: None,
};

pub(crate) const TLS: OptionSpec = OptionSpec {
    name: "tls",
    value: OptionValue::Word(&["true", "false"]),
    default: OptionDefault::Value("false"),
    help: "Whether to speak TLS. With a login it must be said; `tls=false` sends a password in \
           `plain` unencrypted.",
};

pub(crate) const CA_FILE: OptionSpec = OptionSpec {
    name: "ca_file",
    value: OptionValue::File,
    default: OptionDefault::Unset("the system's authorities"),
    help: "PEM file of the authority that signed the brokers' certificates. The certificate must \
           name the host as it is written.",
};

pub(crate) const CERT_FILE: OptionSpec = OptionSpec {
    name: "cert_file",
    value: OptionValue::File,
    default: OptionDefault::Unset("none"),
    help: "PEM file of our own certificate, where brokers ask for one.",
};

pub(crate) const KEY_FILE: OptionSpec = OptionSpec {
    name: "key_file",
    value: OptionValue::File,
    default: OptionDefault::Unset("none"),
    help: "PEM file of its key.",
};

pub(crate) const SASL: OptionSpec = OptionSpec {
    name: "sasl",
    value: OptionValue::Word(&["plain", "scram-sha-256", "scram-sha-512"]),
    default: OptionDefault::Unset("no login"),
    help: "How to log in.",
};

pub(crate) const COMPRESSION: OptionSpec = OptionSpec {
    name: "compression",
    value: OptionValue::Word(&["none", "gzip", "snappy", "lz4", "zstd"]),
    default: OptionDefault::Value("lz4"),
    help: "How batches are compressed.",
};

pub(crate) const LINGER: OptionSpec = OptionSpec {
    name: "linger",
    value: OptionValue::Duration {
        shortest_ms: 0,
        // Far below any publish time-out.
        longest_ms: 1_000,
        range: "from 0ms to 1s",
        example: "5ms",
    },
    // Fills batches when many events come, and is small beside one poll of the outbox.
    default: OptionDefault::Value("1ms"),
    help: "How long a batch waits for more events. Longer batches better and answers later.",
};

pub(crate) const DELIVERY: OptionSpec = OptionSpec {
    name: "delivery",
    value: OptionValue::Word(&[IDEMPOTENT, TRANSACTIONAL]),
    default: OptionDefault::Value(IDEMPOTENT),
    help: "Whether events go out in [transactions](#transactions).",
};

pub(crate) const IDEMPOTENT: &str = "idempotent";
pub(crate) const TRANSACTIONAL: &str = "transactional";

pub(crate) const PROGRESS_TOPIC: OptionSpec = OptionSpec {
    name: "progress_topic",
    value: OptionValue::Text,
    default: OptionDefault::Value(PROGRESS_TOPIC_DEFAULT),
    help: "With transactions: where progress is kept.",
};

pub(crate) const PROGRESS_TOPIC_DEFAULT: &str = "posthaste-progress";

pub(crate) const CLIENT_ID: OptionSpec = OptionSpec {
    name: "client_id",
    value: OptionValue::Text,
    default: OptionDefault::Value("posthaste"),
    help: "Our name in the broker's logs and quotas.",
};
