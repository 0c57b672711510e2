//! One life of a relay.

use std::time::Duration;

use uuid::Uuid;

/// The marks that tell one life of a process from another, on the machine where it runs.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct HostIdentity {
    /// The kernel's boot id.
    pub boot_id: String,
    /// The process namespace.
    pub pid_namespace: String,
    /// Process id inside that namespace.
    pub pid: u32,
    /// The process's start time, in the kernel's own unit since boot.
    pub process_started: u64,
}

/// A relay's description of itself when it registers.
#[derive(Debug, Clone)]
pub struct Registration {
    /// The relay's name; two live relays may share it.
    pub name: String,
    /// The relay's version.
    pub version: String,
    /// Where it runs.
    pub host: HostIdentity,
    /// How long the right to live lasts without renewal.
    pub lease: Duration,
}

/// A registered relay. A restart registers anew: the registration never comes back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Registered {
    /// The identity of this life of the relay.
    pub registration: Uuid,
}
