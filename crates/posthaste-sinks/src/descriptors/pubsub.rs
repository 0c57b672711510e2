//! The row of the sink `pubsub`.

use posthaste_engine::{
    AddressForm, Feature, FenceKind, KeyOrder, OptionDefault, OptionSpec, OptionValue, PlugIn,
    SinkMode,
};

use super::sqs::{CA_FILE, CALLS_MAX};
use crate::descriptor::{SinkDescriptor, SinkSummary};

pub(crate) const PUBSUB: SinkDescriptor = SinkDescriptor {
    plug_in: PlugIn {
        name: "pubsub",
        title: "Google Pub/Sub",
        schemes: &["pubsub"],
        example: "pubsub://PROJECT/TOPIC",
        address: AddressForm::Servers,
        options: &[CREDENTIALS_FILE, ENDPOINT, EVENT_BYTES_MAX, CA_FILE],
        feature: Some(Feature {
            name: "pubsub",
            needs: None,
        }),
        server: Some("pubsub"),
    },
    modes: &[SinkMode {
        name: "pubsub",
        // Requests overtake each other.
        key_order: KeyOrder::OneAtATime,
        fence: FenceKind::Timing,
        single_lane: false,
        requests_max: Some(CALLS_MAX),
        deduplication: None,
    }],
    summary: SinkSummary {
        accepted: "Pub/Sub has answered that it stored the message, in several zones",
        order: "an ordering key, one event of a key at a time; for subscriptions with message \
                ordering",
        id: "attribute `id`",
        fence: "time",
    },
    writes_to_stdout: false,
    open: None,
};

pub(crate) const CREDENTIALS_FILE: OptionSpec = OptionSpec {
    name: "credentials_file",
    value: OptionValue::File,
    default: OptionDefault::Unset("found as all programs on Google Cloud do"),
    help: "A service account's key, or a login that `gcloud` has written, in JSON.",
};

pub(crate) const ENDPOINT: OptionSpec = OptionSpec {
    name: "endpoint",
    value: OptionValue::Text,
    default: OptionDefault::Unset("`PUBSUB_EMULATOR_HOST`, or `https://pubsub.googleapis.com`"),
    help: "The URL of another endpoint, without a path: of a region, such as \
           `https://europe-west1-pubsub.googleapis.com`, or of an emulator. With `http:` no \
           credentials are sent.",
};

pub(crate) const EVENT_BYTES_MAX: OptionSpec = OptionSpec {
    name: "max_event_bytes",
    value: OptionValue::Number {
        unit: "bytes",
        least: 1,
    },
    // A request has 10 000 000 bytes. Some 550 000 are left for key and attributes, of which a
    // message has 130 000 at the most.
    default: OptionDefault::Value("9437184"),
    help: "An event with a larger payload is rejected.",
};
