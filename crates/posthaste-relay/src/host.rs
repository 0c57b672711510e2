//! Which process this is, and whether another one of this machine is gone.

use std::{fs, sync::OnceLock};

use posthaste_engine::HostIdentity;

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
        process_started: started(pid).unwrap_or_default(),
    }
}

/// Whether `other` ran on this boot and in this process namespace, and that very process is gone. A
/// process id that was given again bears another start time.
pub(crate) fn is_gone(other: &HostIdentity) -> bool {
    let here = this_process();
    // Several relays may run in one process, and each looks at all the others often.
    if other == here {
        return false;
    }
    let same_place = !here.boot_id.is_empty()
        && !here.pid_namespace.is_empty()
        && other.boot_id == here.boot_id
        && other.pid_namespace == here.pid_namespace;
    same_place && other.process_started != 0 && started(other.pid) != Some(other.process_started)
}

/// Start time of a process, in clock ticks since boot: field 22 of its `stat`, counted behind the
/// command's closing parenthesis, since a command may hold blanks and parentheses.
fn started(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
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
    fn a_running_process_is_not_gone_and_a_finished_one_is() {
        let here = this_process();
        assert!(!is_gone(here));
        let mut child = std::process::Command::new("sleep")
            .arg("60")
            .spawn()
            .unwrap();
        let there = HostIdentity {
            pid: child.id(),
            process_started: started(child.id()).unwrap(),
            ..here.clone()
        };
        assert!(!is_gone(&there));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(is_gone(&there));
        let elsewhere = HostIdentity {
            boot_id: "another boot".into(),
            ..there
        };
        assert!(!is_gone(&elsewhere));
    }
}
