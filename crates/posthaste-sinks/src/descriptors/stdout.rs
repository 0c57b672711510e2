//! The row of the sink `stdout`.

use posthaste_engine::{AddressForm, FenceKind, KeyOrder, PlugIn, SinkMode};

use crate::descriptor::{SinkDescriptor, SinkSummary};

pub(crate) const STDOUT: SinkDescriptor = SinkDescriptor {
    plug_in: PlugIn {
        name: "stdout",
        title: "stdout",
        schemes: &["stdout"],
        example: "stdout:",
        address: AddressForm::Bare,
        options: &[],
        feature: None,
        server: None,
    },
    modes: &[SinkMode {
        name: "stdout",
        key_order: KeyOrder::Pipelined,
        fence: FenceKind::Exact,
        single_lane: true,
        requests_max: Some(1),
        deduplication: None,
    }],
    summary: SinkSummary {
        accepted: "the system has taken the line",
        order: "one stream",
        id: "field `id`",
        fence: "its process",
    },
    writes_to_stdout: true,
    open: None,
};
