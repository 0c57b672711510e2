//! The row of the sink `sqs`, and the options that the other sinks on AWS have too.

use posthaste_engine::{
    AddressForm, DedupWindow, Deduplication, Feature, FenceKind, KeyOrder, OptionDefault,
    OptionSpec, OptionValue, PlugIn, SinkMode,
};

use crate::descriptor::{SinkDescriptor, SinkSummary};

pub(crate) const SQS: SinkDescriptor = SinkDescriptor {
    plug_in: PlugIn {
        name: "sqs",
        title: "Amazon SQS",
        schemes: &["sqs"],
        example: "sqs://QUEUE?region=REGION",
        address: AddressForm::Servers,
        options: &[
            REGION,
            PROFILE,
            ACCESS_KEY_ID,
            SECRET_ACCESS_KEY,
            ENDPOINT,
            EVENT_BYTES_MAX,
            CA_FILE,
        ],
        feature: Some(Feature {
            name: "sqs",
            needs: None,
        }),
        server: Some("sqs"),
    },
    modes: &[STANDARD, FIFO],
    summary: SinkSummary {
        accepted: "SQS has answered that it stored the message, in several data centres",
        order: "FIFO queues: a message group, one event of a key at a time. Standard queues \
                promise none",
        id: "attribute `id`",
        fence: "time",
    },
    writes_to_stdout: false,
    open: None,
};

const STANDARD: SinkMode = SinkMode {
    name: "sqs",
    // Requests overtake each other, and a part of one may fail.
    key_order: KeyOrder::OneAtATime,
    fence: FenceKind::Timing,
    single_lane: false,
    requests_max: Some(CALLS_MAX),
    deduplication: None,
};

const FIFO: SinkMode = SinkMode {
    name: "sqs-fifo",
    deduplication: Some(FIFO_DEDUPLICATION),
    ..STANDARD
};

/// Five minutes, however many ids that are. Nothing in an answer tells a repeat.
pub(crate) const FIFO_DEDUPLICATION: Deduplication = Deduplication {
    window: DedupWindow::AtTheReceiver,
    ids_max: None,
};

/// Requests of a lane under way at once. Each takes some 10 ms, for ten events or more: so many
/// carry ten thousand events a second.
pub(crate) const CALLS_MAX: u32 = 16;

pub(crate) const REGION: OptionSpec = OptionSpec {
    name: "region",
    value: OptionValue::Text,
    default: OptionDefault::Unset("`AWS_REGION`, or that of the profile or of the machine"),
    help: "The region, such as `eu-central-1`.",
};

pub(crate) const PROFILE: OptionSpec = OptionSpec {
    name: "profile",
    value: OptionValue::Text,
    default: OptionDefault::Unset("`AWS_PROFILE`, or `default`"),
    help: "The profile of `~/.aws/config` that credentials and region are of.",
};

pub(crate) const ACCESS_KEY_ID: OptionSpec = OptionSpec {
    name: "access_key_id",
    value: OptionValue::Text,
    default: OptionDefault::Unset("found as all programs on AWS do"),
    help: "An access key, for servers that have no other credentials.",
};

pub(crate) const SECRET_ACCESS_KEY: OptionSpec = OptionSpec {
    name: "secret_access_key",
    value: OptionValue::Text,
    default: OptionDefault::Unset("none"),
    help: "Its secret. It is never shown.",
};

pub(crate) const ENDPOINT: OptionSpec = OptionSpec {
    name: "endpoint",
    value: OptionValue::Text,
    default: OptionDefault::Unset("that of the region"),
    help: "The URL of another endpoint, without a path: of a VPC, or of a server such as \
           ElasticMQ, LocalStack or moto.",
};

pub(crate) const EVENT_BYTES_MAX: OptionSpec = OptionSpec {
    name: "max_event_bytes",
    value: OptionValue::Number {
        unit: "bytes",
        least: 1,
    },
    // A message has 1 MiB, its attributes included: 64 KiB are left for these.
    default: OptionDefault::Value("983040"),
    help: "An event with a larger payload is rejected.",
};

pub(crate) const CA_FILE: OptionSpec = OptionSpec {
    name: "ca_file",
    value: OptionValue::File,
    default: OptionDefault::Unset("the system's authorities"),
    help: "PEM file with the authorities to trust, with `https:`.",
};
