//! The row of the sink `sns`.

use posthaste_engine::{
    AddressForm, Feature, FenceKind, KeyOrder, OptionDefault, OptionSpec, OptionValue, PlugIn,
    SinkMode,
};

use super::sqs::{
    ACCESS_KEY_ID, CA_FILE, CALLS_MAX, ENDPOINT, FIFO_DEDUPLICATION, PROFILE, REGION,
    SECRET_ACCESS_KEY,
};
use crate::descriptor::{SinkDescriptor, SinkSummary};

pub(crate) const SNS: SinkDescriptor = SinkDescriptor {
    plug_in: PlugIn {
        name: "sns",
        title: "Amazon SNS",
        schemes: &["sns"],
        example: "sns://arn:aws:sns:REGION:ACCOUNT:TOPIC",
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
            name: "sns",
            needs: None,
        }),
        server: Some("moto"),
    },
    modes: &[STANDARD, FIFO],
    summary: SinkSummary {
        accepted: "SNS has answered that it stored the message; it delivers to subscribers later",
        order: "FIFO topics: a message group, one event of a key at a time. Standard topics \
                promise none",
        id: "attribute `id`",
        fence: "time",
    },
    writes_to_stdout: false,
    open: None,
};

const STANDARD: SinkMode = SinkMode {
    name: "sns",
    // Requests overtake each other, and a part of one may fail.
    key_order: KeyOrder::OneAtATime,
    fence: FenceKind::Timing,
    single_lane: false,
    requests_max: Some(CALLS_MAX),
    deduplication: None,
};

const FIFO: SinkMode = SinkMode {
    name: "sns-fifo",
    deduplication: Some(FIFO_DEDUPLICATION),
    ..STANDARD
};

pub(crate) const EVENT_BYTES_MAX: OptionSpec = OptionSpec {
    name: "max_event_bytes",
    value: OptionValue::Number {
        unit: "bytes",
        least: 1,
    },
    // A message has 256 KiB, its attributes included: 32 KiB are left for these.
    default: OptionDefault::Value("229376"),
    help: "An event with a larger payload is rejected.",
};
