//! The row of the sink `kinesis`.

use posthaste_engine::{
    AddressForm, Feature, FenceKind, KeyOrder, OptionDefault, OptionSpec, OptionValue, PlugIn,
    SinkMode,
};

use super::sqs::{ACCESS_KEY_ID, CA_FILE, CALLS_MAX, ENDPOINT, PROFILE, REGION, SECRET_ACCESS_KEY};
use crate::descriptor::{SinkDescriptor, SinkSummary};

pub(crate) const KINESIS: SinkDescriptor = SinkDescriptor {
    plug_in: PlugIn {
        name: "kinesis",
        title: "Amazon Kinesis",
        schemes: &["kinesis"],
        example: "kinesis://STREAM?region=REGION",
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
            name: "kinesis",
            needs: None,
        }),
        server: Some("moto"),
    },
    modes: &[SinkMode {
        name: "kinesis",
        // A part of a request may fail, and the rest of it is taken.
        key_order: KeyOrder::OneAtATime,
        fence: FenceKind::Timing,
        single_lane: false,
        requests_max: Some(CALLS_MAX),
        deduplication: None,
    }],
    summary: SinkSummary {
        accepted: "Kinesis has answered that it stored the record, in three data centres",
        order: "one event of a key at a time, into one shard",
        id: "field `id`",
        fence: "time",
    },
    writes_to_stdout: false,
    open: None,
};

pub(crate) const EVENT_BYTES_MAX: OptionSpec = OptionSpec {
    name: "max_event_bytes",
    value: OptionValue::Number {
        unit: "bytes",
        least: 1,
    },
    // A record has 1 MiB, unless its stream takes more. In base64 such a payload has 64 KiB less
    // than that, which are left for the key and the other fields.
    default: OptionDefault::Value("737280"),
    help: "An event with a larger payload is rejected.",
};
