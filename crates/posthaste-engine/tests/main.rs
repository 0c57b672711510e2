//! The engine from outside, in one binary: to link is most of what a small test costs.

mod fuzz;
mod lane_records;
mod outage;
mod pipeline;
mod properties;
mod routed_keys;
mod sharing;
