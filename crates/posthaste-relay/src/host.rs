//! Which process this is, and whether another one of this machine is gone.

use std::{fs, path::Path, sync::OnceLock};

use posthaste_engine::HostIdentity;
use rustix::{
    io::Errno,
    process::{Pid, test_kill_process},
};

const PROC: &str = "/proc";

/// This process. Fields that the system does not tell stay empty, and an empty field matches
/// nothing.
pub(crate) fn this_process() -> &'static HostIdentity {
    static HERE: OnceLock<HostIdentity> = OnceLock::new();
    HERE.get_or_init(look)
}

fn look() -> HostIdentity {
    let pid = std::process::id();
    HostIdentity {
        boot_id: fs::read_to_string("/proc/sys/kernel/random/boot_id")
            .map(|id| id.trim().to_owned())
            .unwrap_or_default(),
        pid_namespace: fs::read_link("/proc/self/ns/pid")
            .map(|link| link.to_string_lossy().into_owned())
            .unwrap_or_default(),
        pid,
        process_started: stat(Path::new(PROC), pid)
            .and_then(|stat| started(&stat))
            .unwrap_or_default(),
    }
}

/// Whether `other` ran on this boot and in this process namespace, and that very process is gone. A
/// process id that was given again bears another start time.
pub(crate) fn is_gone(other: &HostIdentity) -> bool {
    is_gone_by(Path::new(PROC), other)
}

fn is_gone_by(proc: &Path, other: &HostIdentity) -> bool {
    let here = this_process();
    // Several relays may run in one process, and each looks at all the others often.
    if other == here {
        return false;
    }
    let same_place = !here.boot_id.is_empty()
        && !here.pid_namespace.is_empty()
        && other.boot_id == here.boot_id
        && other.pid_namespace == here.pid_namespace;
    if !same_place || other.process_started == 0 {
        return false;
    }
    match stat(proc, other.pid) {
        Some(stat) => started(&stat) != Some(other.process_started),
        None => has_no_process(other.pid),
    }
}

/// A process of another user may be hidden (`hidepid`), and a file may be unreadable for many
/// reasons: only this answer is certain.
fn has_no_process(pid: u32) -> bool {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    pid.is_some_and(|pid| test_kill_process(pid) == Err(Errno::SRCH))
}

fn stat(proc: &Path, pid: u32) -> Option<String> {
    fs::read_to_string(proc.join(pid.to_string()).join("stat")).ok()
}

/// Start time of a process, in clock ticks since boot: field 22 of its `stat`, counted behind the
/// command's closing parenthesis, since a command may hold blanks and parentheses.
fn started(stat: &str) -> Option<u64> {
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_whitespace();
    // A zombie has died; only its parent has not looked yet.
    if fields.next()? == "Z" {
        return None;
    }
    fields.nth(18)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_runs_is_not_gone_even_if_it_is_hidden_and_one_that_ended_is() {
        let here = this_process();
        assert!(!is_gone(here));
        let mut child = std::process::Command::new("sleep")
            .arg("60")
            .spawn()
            .unwrap();
        let there = HostIdentity {
            pid: child.id(),
            process_started: stat(Path::new(PROC), child.id())
                .and_then(|stat| started(&stat))
                .unwrap(),
            ..here.clone()
        };
        let hidden = tempfile::tempdir().unwrap();
        assert!(!is_gone(&there));
        assert!(!is_gone_by(hidden.path(), &there), "hidden is not gone");
        child.kill().unwrap();
        assert!(
            !is_gone_by(hidden.path(), &there),
            "its parent has not looked"
        );
        child.wait().unwrap();
        assert!(is_gone(&there));
        assert!(is_gone_by(hidden.path(), &there));
        let elsewhere = HostIdentity {
            boot_id: "another boot".into(),
            ..there
        };
        assert!(!is_gone(&elsewhere));
    }
}
