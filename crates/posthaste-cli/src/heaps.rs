//! One heap for all threads, so that memory stays what it was before an outage.

/// Begins this program anew, in the same process, with one heap.
///
/// glibc gives threads heaps of their own, up to eight a processor, and each keeps what it once
/// held. A relay holds one window of events, but now one thread reads it and now another, and
/// Kafka's client begins threads anew with each lane: left alone, memory grows from outage to
/// outage, the more the more processors there are. Measured with Kafka, one heap costs no speed:
/// events are allocated by the page. glibc reads the setting only when a program begins. A setting
/// that is there is left alone; where nothing can be begun, this goes on as it is.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
pub(crate) fn share() {
    use std::{env, os::unix::process::CommandExt, process::Command};

    const SETTING: &str = "MALLOC_ARENA_MAX";
    if env::var_os(SETTING).is_some() {
        return;
    }
    // By its path, since `/proc/self/exe` would become the process's name.
    let Ok(program) = env::current_exe() else {
        return;
    };
    let mut words = env::args_os();
    let mut command = Command::new(program);
    if let Some(name) = words.next() {
        command.arg0(name);
    }
    // It returns only when it has failed.
    let _ = command.args(words).env(SETTING, "1").exec();
}

/// Other systems' allocators have no such setting.
#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
pub(crate) fn share() {}
