//! The row of the sink `mqtt`.

use posthaste_engine::{
    AddressForm, Feature, FenceKind, KeyOrder, OptionDefault, OptionSpec, OptionValue, PlugIn,
    SinkMode,
};

use crate::descriptor::{SinkDescriptor, SinkSummary};

pub(crate) const MQTT: SinkDescriptor = SinkDescriptor {
    plug_in: PlugIn {
        name: "mqtt",
        title: "MQTT",
        schemes: &["mqtt", "mqtts"],
        example: "mqtt://HOST/?topic={topic}",
        address: AddressForm::Servers,
        options: &[
            TOPIC,
            QOS,
            VERSION,
            FORMAT,
            SOURCE,
            RETAIN,
            REQUIRE_SUBSCRIBERS,
            IN_FLIGHT_MAX,
            EVENT_BYTES_MAX,
            CA_FILE,
            CERT_FILE,
            KEY_FILE,
        ],
        feature: Some(Feature {
            name: "mqtt",
            needs: None,
        }),
        server: Some("mqtt"),
    },
    modes: &[SinkMode {
        name: "mqtt",
        // A broker that refuses a message takes those behind it.
        key_order: KeyOrder::OneAtATime,
        fence: FenceKind::Timing,
        single_lane: false,
        requests_max: None,
        deduplication: None,
    }],
    summary: SinkSummary {
        accepted: "the broker has acknowledged it, which tells nothing of disks and subscribers",
        order: "one event of a key at a time",
        id: "user property `id`; with 3.1.1 `id` of the CloudEvent",
        fence: "time, and the take-over of its client id",
    },
    writes_to_stdout: false,
    open: None,
};

pub(crate) const TOPIC: OptionSpec = OptionSpec {
    name: "topic",
    value: OptionValue::Text,
    default: OptionDefault::Value("{topic}"),
    help: "Where to publish. `{topic}` stands for the topic, after routing.",
};

pub(crate) const QOS: OptionSpec = OptionSpec {
    name: "qos",
    value: OptionValue::Word(&["1", "2"]),
    default: OptionDefault::Value("1"),
    help: "At least once, or exactly once on the way to the broker; a crash of the relay repeats \
           events with both. `2` takes two round trips.",
};

pub(crate) const VERSION: OptionSpec = OptionSpec {
    name: "version",
    value: OptionValue::Word(&["5", "3.1.1"]),
    default: OptionDefault::Value("5"),
    help: "The version of the protocol. A broker of 3.1.1 cannot say that it refuses a message.",
};

pub(crate) const FORMAT: OptionSpec = OptionSpec {
    name: "format",
    value: OptionValue::Word(&["raw", "structured"]),
    default: OptionDefault::Unset("`raw`; with `version=3.1.1` `structured`"),
    help: "How an event stands in a message: its payload with user properties (`raw`), or as a \
           CloudEvent that is one JSON object (`structured`).",
};

pub(crate) const SOURCE: OptionSpec = OptionSpec {
    name: "source",
    value: OptionValue::Text,
    default: OptionDefault::Value("posthaste"),
    help: "The `source` of CloudEvents: a URI that names your service.",
};

pub(crate) const RETAIN: OptionSpec = OptionSpec {
    name: "retain",
    value: OptionValue::Word(&["true", "false"]),
    default: OptionDefault::Value("false"),
    help: "Whether the broker keeps the last message of each topic for new subscribers.",
};

pub(crate) const REQUIRE_SUBSCRIBERS: OptionSpec = OptionSpec {
    name: "require_subscribers",
    value: OptionValue::Word(&["true", "false"]),
    default: OptionDefault::Value("false"),
    help: "Whether an event that nobody has subscribed to is put off. Without, it counts as \
           accepted, and the log says so. Needs MQTT 5 and `qos=1`.",
};

pub(crate) const IN_FLIGHT_MAX: OptionSpec = OptionSpec {
    name: "max_in_flight",
    value: OptionValue::Number {
        unit: "messages",
        least: 1,
    },
    // The reasons stand beside the numbers, in `mqtt.rs`.
    default: OptionDefault::Unset("512; with `version=3.1.1` 20"),
    help: "Messages without an answer, up to 512. A broker of MQTT 5 says how many it takes, and \
           gets no more (mosquitto: 20).",
};

pub(crate) const EVENT_BYTES_MAX: OptionSpec = OptionSpec {
    name: "max_event_bytes",
    value: OptionValue::Number {
        unit: "bytes",
        least: 1,
    },
    // A message is held in memory by the relay and by the broker; 16 MiB as with RabbitMQ.
    default: OptionDefault::Value("16777216"),
    help: "An event with a larger payload is rejected. A broker of MQTT 5 says what it takes; one \
           of 3.1.1 ends the connection at a larger message, or drops it in silence.",
};

pub(crate) const CA_FILE: OptionSpec = OptionSpec {
    name: "ca_file",
    value: OptionValue::File,
    default: OptionDefault::Unset("the system's authorities"),
    help: "`mqtts`: PEM file with the authorities to trust.",
};

pub(crate) const CERT_FILE: OptionSpec = OptionSpec {
    name: "cert_file",
    value: OptionValue::File,
    default: OptionDefault::Unset("none"),
    help: "`mqtts`: PEM file with our certificate, for brokers that ask for one.",
};

pub(crate) const KEY_FILE: OptionSpec = OptionSpec {
    name: "key_file",
    value: OptionValue::File,
    default: OptionDefault::Unset("none"),
    help: "`mqtts`: PEM file with its key.",
};
