//! The row of the sink `redis`.

use posthaste_engine::{
    AddressForm, DedupWindow, Deduplication, Feature, FenceKind, KeyOrder, OptionDefault,
    OptionSpec, OptionValue, PlugIn, SinkMode,
};

use crate::descriptor::{SinkDescriptor, SinkSummary};

pub(crate) const REDIS: SinkDescriptor = SinkDescriptor {
    plug_in: PlugIn {
        name: "redis",
        title: "Redis Streams",
        schemes: &["redis", "rediss"],
        example: "redis://HOST/?stream={topic}",
        address: AddressForm::Servers,
        options: &[
            STREAM,
            MAXLEN,
            EVENT_BYTES_MAX,
            KNOWN_IDS,
            WAIT,
            CA_FILE,
            CERT_FILE,
            KEY_FILE,
        ],
        feature: Some(Feature {
            name: "redis",
            needs: None,
        }),
        server: Some("redis"),
    },
    modes: &[SinkMode {
        name: "redis",
        // The script stops at an event that it cannot add.
        key_order: KeyOrder::Pipelined,
        fence: FenceKind::Exact,
        single_lane: false,
        requests_max: Some(CALLS_MAX),
        deduplication: Some(Deduplication {
            window: DedupWindow::AtTheReceiver,
            ids_max: Some(KNOWN_IDS_DEFAULT),
        }),
    }],
    summary: SinkSummary {
        accepted: "the server has added it; with `appendfsync always` it is on the disk",
        order: "one script stops at what it cannot add",
        id: "field `id`",
        fence: "the lane's name, which each script compares",
    },
    writes_to_stdout: false,
    open: None,
};

/// Scripts of a lane under way at once. Each is of another stream, and a server runs one at a time.
pub(crate) const CALLS_MAX: u32 = 16;

/// The window of a relay is as large by default, and a crash repeats no more than that.
const KNOWN_IDS_DEFAULT: u64 = 10_000;

pub(crate) const STREAM: OptionSpec = OptionSpec {
    name: "stream",
    value: OptionValue::Text,
    default: OptionDefault::Value("{topic}"),
    help: "The stream's key. `{topic}` stands for the topic, after routing; `{{` and `}}` are \
           braces, for the hash tag of a cluster: `{{outbox}}:{topic}`.",
};

pub(crate) const MAXLEN: OptionSpec = OptionSpec {
    name: "maxlen",
    value: OptionValue::Text,
    default: OptionDefault::Unset("streams are never trimmed"),
    help: "How many entries a stream keeps: `~1000000` trims whole nodes and is cheap, \
           `1000000` is exact. Older ones go, read or not.",
};

pub(crate) const EVENT_BYTES_MAX: OptionSpec = OptionSpec {
    name: "max_event_bytes",
    value: OptionValue::Number {
        unit: "bytes",
        least: 1,
    },
    // 32 MiB: the server does nothing else while it copies a value a few times. Its own limit,
    // `proto-max-bulk-len`, is 512 MiB, and a larger value ends the connection.
    default: OptionDefault::Value("33554432"),
    help: "An event with a larger payload is rejected. Not above the server's \
           `proto-max-bulk-len`.",
};

pub(crate) const KNOWN_IDS: OptionSpec = OptionSpec {
    name: "known_ids",
    value: OptionValue::Number {
        unit: "ids",
        least: 1_000,
    },
    default: OptionDefault::Value("10000"),
    help: "How many ids of its latest events a stream knows, by which a repeat is suppressed.",
};

pub(crate) const WAIT: OptionSpec = OptionSpec {
    name: "wait",
    value: OptionValue::Number {
        unit: "replicas",
        least: 1,
    },
    default: OptionDefault::Unset("the primary alone"),
    help: "An event is accepted once so many replicas have it too (`WAIT`).",
};

pub(crate) const CA_FILE: OptionSpec = OptionSpec {
    name: "ca_file",
    value: OptionValue::File,
    default: OptionDefault::Unset("the system's authorities"),
    help: "PEM file with the authorities to trust, with `rediss:`.",
};

pub(crate) const CERT_FILE: OptionSpec = OptionSpec {
    name: "cert_file",
    value: OptionValue::File,
    default: OptionDefault::Unset("none"),
    help: "PEM file with our certificate, for servers that ask for one (`tls-auth-clients`).",
};

pub(crate) const KEY_FILE: OptionSpec = OptionSpec {
    name: "key_file",
    value: OptionValue::File,
    default: OptionDefault::Unset("none"),
    help: "PEM file with its key.",
};
