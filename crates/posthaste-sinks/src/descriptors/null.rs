//! The row of the sink `null`.

use posthaste_engine::{AddressForm, FenceKind, KeyOrder, PlugIn, SinkMode};

use crate::descriptor::{SinkDescriptor, SinkSummary};

pub(crate) const NULL: SinkDescriptor = SinkDescriptor {
    plug_in: PlugIn {
        name: "null",
        title: "null",
        schemes: &["null"],
        example: "null:",
        address: AddressForm::Bare,
        options: &[],
        feature: None,
        server: None,
    },
    modes: &[SinkMode {
        name: "null",
        key_order: KeyOrder::Pipelined,
        fence: FenceKind::Exact,
        single_lane: false,
        requests_max: None,
        deduplication: None,
    }],
    summary: SinkSummary {
        accepted: "read",
        order: "any",
        id: "none",
        fence: "nothing is kept",
    },
    writes_to_stdout: false,
    open: None,
};
