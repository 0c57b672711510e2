//! The row of the sink `rabbitmq`.

use posthaste_engine::{
    AddressForm, Feature, FenceKind, KeyOrder, OptionDefault, OptionSpec, OptionValue, PlugIn,
    SinkMode,
};

use crate::descriptor::{SinkDescriptor, SinkSummary};

pub(crate) const RABBITMQ: SinkDescriptor = SinkDescriptor {
    plug_in: PlugIn {
        name: "rabbitmq",
        title: "RabbitMQ",
        schemes: &["amqp", "amqps"],
        example: "amqp://HOST/VHOST?exchange=NAME",
        address: AddressForm::Servers,
        options: &[EXCHANGE, EVENT_BYTES_MAX, CA_FILE, CERT_FILE, KEY_FILE],
        feature: Some(Feature {
            name: "rabbitmq",
            needs: None,
        }),
        server: Some("rabbitmq"),
    },
    modes: &[SinkMode {
        name: "rabbitmq",
        // A message that is returned or refused does not stop those behind it.
        key_order: KeyOrder::OneAtATime,
        fence: FenceKind::Timing,
        single_lane: false,
        requests_max: None,
        deduplication: None,
    }],
    summary: SinkSummary {
        accepted: "confirmed by every queue that took it, and one did",
        order: "one event of a key at a time",
        id: "`message_id`",
        fence: "time",
    },
    writes_to_stdout: false,
    open: None,
};

pub(crate) const EXCHANGE: OptionSpec = OptionSpec {
    name: "exchange",
    value: OptionValue::Text,
    default: OptionDefault::Required,
    help: "Where to publish. `exchange=` alone is the default exchange, where a topic is the name \
           of a queue.",
};

pub(crate) const EVENT_BYTES_MAX: OptionSpec = OptionSpec {
    name: "max_event_bytes",
    value: OptionValue::Number {
        unit: "bytes",
        least: 1,
    },
    // RabbitMQ 4's own default.
    default: OptionDefault::Value("16777216"),
    help: "An event with a larger payload is rejected. The default is RabbitMQ 4's own limit.",
};

pub(crate) const CA_FILE: OptionSpec = OptionSpec {
    name: "ca_file",
    value: OptionValue::File,
    default: OptionDefault::Unset("the system's authorities"),
    help: "`amqps`: PEM file with the authorities to trust.",
};

pub(crate) const CERT_FILE: OptionSpec = OptionSpec {
    name: "cert_file",
    value: OptionValue::File,
    default: OptionDefault::Unset("none"),
    help: "`amqps`: PEM file with our certificate, for brokers that ask for one.",
};

pub(crate) const KEY_FILE: OptionSpec = OptionSpec {
    name: "key_file",
    value: OptionValue::File,
    default: OptionDefault::Unset("none"),
    help: "`amqps`: PEM file with its key.",
};
