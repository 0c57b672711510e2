//! The row of the sink `nats`.

use posthaste_engine::{
    AddressForm, DedupWindow, Deduplication, Feature, FenceKind, KeyOrder, OptionDefault,
    OptionSpec, OptionValue, PlugIn, SinkMode,
};

use crate::descriptor::{SinkDescriptor, SinkSummary};

pub(crate) const NATS: SinkDescriptor = SinkDescriptor {
    plug_in: PlugIn {
        name: "nats",
        title: "NATS JetStream",
        schemes: &["nats"],
        example: "nats://HOST/?subject={topic}&stream=NAME",
        address: AddressForm::ServersOrToken,
        options: &[SUBJECT, STREAM, TLS, CA_FILE, CERT_FILE, KEY_FILE],
        feature: Some(Feature {
            name: "nats",
            needs: None,
        }),
        server: Some("nats"),
    },
    modes: &[SinkMode {
        name: "nats",
        // A stream that refuses a message takes those behind it.
        key_order: KeyOrder::OneAtATime,
        fence: FenceKind::Timing,
        single_lane: false,
        requests_max: None,
        deduplication: Some(DEDUPLICATION),
    }],
    summary: SinkSummary {
        accepted: "a stream has stored it",
        order: "one event of a key at a time",
        id: "`Nats-Msg-Id`",
        fence: "time",
    },
    writes_to_stdout: false,
    open: None,
};

/// A stream knows the `Nats-Msg-Id` of what it took within its `duplicate_window`.
pub(crate) const DEDUPLICATION: Deduplication = Deduplication {
    window: DedupWindow::AtTheReceiver,
    ids_max: None,
};

pub(crate) const SUBJECT: OptionSpec = OptionSpec {
    name: "subject",
    value: OptionValue::Text,
    default: OptionDefault::Value("{topic}"),
    help: "Where to publish. `{topic}` stands for the topic, after routing.",
};

pub(crate) const STREAM: OptionSpec = OptionSpec {
    name: "stream",
    value: OptionValue::Text,
    default: OptionDefault::Unset("any stream that has the subject"),
    help: "The stream that must take the events; another one refuses them. `check` looks for it.",
};

pub(crate) const TLS: OptionSpec = OptionSpec {
    name: "tls",
    value: OptionValue::Word(&["true", "false"]),
    default: OptionDefault::Value("false"),
    help: "Whether to speak TLS. A server that asks for it is refused without.",
};

pub(crate) const CA_FILE: OptionSpec = OptionSpec {
    name: "ca_file",
    value: OptionValue::File,
    default: OptionDefault::Unset("the system's authorities"),
    help: "PEM file with the authorities to trust.",
};

pub(crate) const CERT_FILE: OptionSpec = OptionSpec {
    name: "cert_file",
    value: OptionValue::File,
    default: OptionDefault::Unset("none"),
    help: "PEM file with our certificate, for servers that ask for one.",
};

pub(crate) const KEY_FILE: OptionSpec = OptionSpec {
    name: "key_file",
    value: OptionValue::File,
    default: OptionDefault::Unset("none"),
    help: "PEM file with its key.",
};
