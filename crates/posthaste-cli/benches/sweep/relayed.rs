//! A relay that drains a backlog, and what that took.

use std::{
    fs,
    process::Command,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Result, ensure};
use posthaste_testkit::process::Running;

use crate::outbox;

pub(crate) struct Drained {
    /// Seconds from start to end.
    pub(crate) wall: f64,
    /// Seconds of processor time, user and system.
    pub(crate) cpu: f64,
    pub(crate) peak_mib: f64,
}

/// Delivers everything that waits, in a process of its own.
pub(crate) fn drained(mut relay: Command, events: u64) -> Result<Drained> {
    relay.args(["--until-drained", "--json"]);
    let started = Instant::now();
    let mut relay = Running::start(&mut relay);
    let (mut peak_kib, mut cpu) = (0, 0.0);
    while relay.is_running() {
        peak_kib = peak_memory_kib(relay.id()).unwrap_or(peak_kib);
        cpu = cpu_seconds(relay.id()).unwrap_or(cpu);
        thread::sleep(Duration::from_millis(2));
    }
    let wall = started.elapsed().as_secs_f64();
    let said: serde_json::Value = serde_json::from_str(&outbox::finish(relay).stdout)?;
    let accepted = &said["destinations"][0]["accepted"];
    ensure!(
        *accepted == events,
        "the relay accepted {accepted} of {events}"
    );
    ensure!(peak_kib > 0, "the relay ended before its memory was seen");
    Ok(Drained {
        wall,
        cpu,
        peak_mib: peak_kib as f64 / 1_024.0,
    })
}

/// The peak so far; none when the process has ended.
pub(crate) fn peak_memory_kib(process: u32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim().strip_suffix(" kB")?.parse().ok()
}

/// The processor time of all threads so far; none when the process has ended.
pub(crate) fn cpu_seconds(process: u32) -> Option<f64> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The name, in brackets, may hold anything; user and system time are the 14th and 15th field.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let ticks = |at: usize| fields.get(at)?.parse::<u64>().ok();
    let ticks = ticks(11)? + ticks(12)?;
    Some(ticks as f64 / rustix::param::clock_ticks_per_second() as f64)
}
