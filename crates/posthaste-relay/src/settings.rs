use std::time::Duration;

use posthaste_engine::PipelineLimits;

use crate::jitter::Jitter;

/// The lease: a take-over waits at most 1.1 times this long. Shorter adds take-overs, not safety.
pub(crate) const LEASE: Duration = Duration::from_secs(15);

/// Numbers of a running relay.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    pub(crate) name: String,
    pub(crate) lease: Duration,
    pub(crate) publish_timeout: Duration,
    pub(crate) margin: Duration,
    pub(crate) settle: Duration,
    pub(crate) shutdown_timeout: Duration,
    pub(crate) partitions_max: u16,
    pub(crate) until_drained: bool,
    pub(crate) limits: PipelineLimits,
    pub(crate) jitter: Jitter,
}
