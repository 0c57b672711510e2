//! The row of the sink `amqp10`.

use posthaste_engine::{
    AddressForm, Feature, FenceKind, KeyOrder, OptionDefault, OptionSpec, OptionValue, PlugIn,
    SinkMode,
};

use crate::descriptor::{SinkDescriptor, SinkSummary};

pub(crate) const AMQP10: SinkDescriptor = SinkDescriptor {
    plug_in: PlugIn {
        name: "amqp10",
        title: "AMQP 1.0",
        schemes: &["amqp10", "amqp10s"],
        example: "amqp10://HOST/ADDRESS",
        address: AddressForm::Servers,
        options: &[KIND, GROUP_ID, PARTITION_KEY, CA_FILE, CERT_FILE, KEY_FILE],
        feature: Some(Feature {
            name: "amqp10",
            needs: None,
        }),
        server: Some("artemis"),
    },
    modes: &[SinkMode {
        name: "amqp10",
        // A message that is rejected or released does not stop those behind it.
        key_order: KeyOrder::OneAtATime,
        fence: FenceKind::Timing,
        single_lane: false,
        requests_max: None,
        deduplication: None,
    }],
    summary: SinkSummary {
        accepted: "the broker has settled the message as accepted; a durable queue has it on its \
                   disk",
        order: "one event of a key at a time",
        id: "`message-id`",
        fence: "time",
    },
    writes_to_stdout: false,
    open: None,
};

pub(crate) const KIND: OptionSpec = OptionSpec {
    name: "kind",
    value: OptionValue::Word(&["queue", "topic", "any"]),
    // A broker that makes addresses makes a topic otherwise, which forgets what nobody listens to.
    default: OptionDefault::Value("queue"),
    help: "The kind of address that the broker is told to expect, or to make where it makes \
           addresses; with `any` it is told nothing.",
};

pub(crate) const GROUP_ID: OptionSpec = OptionSpec {
    name: "group_id",
    value: OptionValue::Word(&["key", "none"]),
    default: OptionDefault::Value("key"),
    help: "The `group-id` of a message: the key, or none. It is the message group of JMS, and the \
           session of Service Bus.",
};

pub(crate) const PARTITION_KEY: OptionSpec = OptionSpec {
    name: "partition_key",
    value: OptionValue::Word(&["true", "false"]),
    default: OptionDefault::Value("false"),
    help: "Whether the `group-id` is the annotation `x-opt-partition-key` too, by which Service \
           Bus chooses a partition.",
};

pub(crate) const CA_FILE: OptionSpec = OptionSpec {
    name: "ca_file",
    value: OptionValue::File,
    default: OptionDefault::Unset("the system's authorities"),
    help: "`amqp10s`: PEM file with the authorities to trust.",
};

pub(crate) const CERT_FILE: OptionSpec = OptionSpec {
    name: "cert_file",
    value: OptionValue::File,
    default: OptionDefault::Unset("none"),
    help: "`amqp10s`: PEM file with our certificate, for brokers that ask for one. Without a user \
           it is the login too (SASL EXTERNAL), where the broker offers that.",
};

pub(crate) const KEY_FILE: OptionSpec = OptionSpec {
    name: "key_file",
    value: OptionValue::File,
    default: OptionDefault::Unset("none"),
    help: "`amqp10s`: PEM file with its key.",
};
