//! Clean-up that also happens when the test process is killed and no destructor runs.

use std::ffi::OsStr;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

/// A watcher process that runs a shell script when this process dies before dropping the guard.
///
/// It holds the reading end of a pipe: the kernel closes the other end however we end, `kill -9`
/// included. The parent-death signal is no substitute, since it follows the spawning *thread*,
/// which in a test harness ends long before the process.
#[derive(Debug)]
pub(crate) struct Guard(Child);

impl Guard {
    /// Watches; the script sees `args` as `$1`, `$2` and so on.
    pub(crate) fn new<A: AsRef<OsStr>>(script: &str, args: &[A]) -> Self {
        // Ctrl-C at a terminal reaches the process group, and a closed terminal sends HUP.
        let script = format!(
            "trap '' HUP INT TERM; word=; read -r word; [ \"$word\" = done ] && exit 0\n{script}"
        );
        let watcher = Command::new("sh")
            .args(["-c", &script, "posthaste-test-guard"])
            .args(args)
            .current_dir("/")
            .process_group(0)
            .stdin(Stdio::piped())
            // Inherited streams would keep a pipeline such as `cargo test | tee` waiting.
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("start a watcher with `sh`");
        Self(watcher)
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if let Some(mut stdin) = self.0.stdin.take() {
            // A watcher that somebody killed leaves nothing to call off.
            let _ = stdin.write_all(b"done\n");
        }
        let _ = self.0.wait();
    }
}
