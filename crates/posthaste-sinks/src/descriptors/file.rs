//! The row of the sink `file`.

use posthaste_engine::{
    AddressForm, FenceKind, KeyOrder, OptionDefault, OptionSpec, OptionValue, PlugIn, SinkMode,
};

use crate::descriptor::{SinkDescriptor, SinkSummary};

pub(crate) const FILE: SinkDescriptor = SinkDescriptor {
    plug_in: PlugIn {
        name: "file",
        title: "file",
        schemes: &["file"],
        example: "file:///var/spool/events.jsonl",
        address: AddressForm::File,
        options: &[EVENT_BYTES_MAX, MODE],
        feature: None,
        server: None,
    },
    modes: &[SinkMode {
        name: "file",
        key_order: KeyOrder::Pipelined,
        fence: FenceKind::Exact,
        single_lane: true,
        requests_max: Some(1),
        deduplication: None,
    }],
    summary: SinkSummary {
        accepted: "synced to the device",
        order: "one file",
        id: "field `id`",
        fence: "the file's lock",
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
    default: OptionDefault::Unset("no limit"),
    help: "An event with a larger payload is rejected.",
};

pub(crate) const MODE: OptionSpec = OptionSpec {
    name: "mode",
    value: OptionValue::FileMode,
    default: OptionDefault::Unset("`0640`, less what the process's umask takes away"),
    help: "The rights of a file that the sink creates, set exactly; its owner must be able to \
           read and write. A file that is there keeps its own.",
};
