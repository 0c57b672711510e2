//! The list of cases. It exists once; what a sink is excused from follows from its needs.

mod contents;
mod ending;
mod faults;
mod order;
mod overrides;
mod rejections;
mod verdicts;

use std::pin::Pin;

use super::{bench::Bench, expected::Need};

type Running = Pin<Box<dyn Future<Output = ()>>>;

pub(super) struct Case {
    pub(super) name: &'static str,
    pub(super) needs: &'static [Need],
    pub(super) run: fn(Bench) -> Running,
}

macro_rules! cases {
    ($($module:ident :: $case:ident $([$($need:ident),+])?),+ $(,)?) => {
        &[$(Case {
            name: stringify!($case),
            needs: &[$($(Need::$need),+)?],
            run: |bench| Box::pin($module::$case(bench)),
        }),+]
    };
}

/// Every case, with what it needs of a sink.
pub(super) const CASES: &[Case] = cases![
    // The longest, which wait for time-outs mostly: the others run beside them.
    faults::a_new_lane_goes_on_after_the_fault[Breakable],
    ending::lanes_follow_aborted_lanes,
    faults::a_failure_stops_the_lane[Breakable],
    faults::a_loss_in_mid_flight_keeps_what_was_accepted[Breakable],
    verdicts::declares_what_is_expected,
    verdicts::check_passes_and_leaves_no_trace,
    verdicts::a_batch_of_one,
    verdicts::a_batch_of_the_limit,
    verdicts::many_batches_beyond_the_limit,
    verdicts::an_empty_batch_has_no_verdict,
    verdicts::outcomes_waits_when_nothing_is_in_flight,
    verdicts::outcomes_is_cancel_safe,
    verdicts::a_repeat_is_accepted_again,
    verdicts::receipts_are_given_as_expected,
    verdicts::a_repeated_id_is_suppressed[Readable, Deduplicating],
    contents::everything_arrives_unchanged[Readable],
    contents::ten_megabytes_arrive_unchanged[Readable, Roomy],
    contents::routed_topic_and_key_arrive[Readable],
    overrides::a_key_of_bytes_arrives[Readable],
    overrides::another_value_arrives[Readable],
    overrides::given_headers_arrive_alone[Readable],
    overrides::another_timestamp_arrives[Readable],
    overrides::another_partition_is_taken[Readable],
    overrides::another_wire_id_arrives[Readable],
    overrides::repeats_are_told_by_their_dedup_id[Readable],
    order::order_is_kept_across_batches[Readable],
    order::order_is_kept_with_the_most_in_flight[Readable],
    order::order_is_kept_across_lanes[Readable],
    rejections::a_bad_event_is_rejected_alone[Rejecting],
    rejections::the_largest_event_is_the_declared_one[Limited],
    rejections::followers_in_flight_are_not_accepted[Rejecting, Pipelined],
    rejections::followers_pass_once_the_verdict_is_known[Rejecting],
    rejections::followers_wait_for_the_verdict_to_be_handed_out[Rejecting, Pipelined],
    faults::an_absent_destination_is_unavailable[Breakable],
    faults::check_finds_an_absent_destination[Breakable],
    faults::closing_on_an_absent_destination_answers_all[Breakable],
    faults::a_stall_is_bounded_by_the_limit_of_close[Stallable],
    faults::a_stall_does_not_hold_abort[Stallable],
    ending::close_answers_all_in_flight,
    ending::close_of_an_idle_lane_answers_nothing,
    ending::close_without_time_answers_all,
    ending::nothing_arrives_after_abort[Readable, ExactFence],
    ending::a_dropped_lane_makes_room,
];
