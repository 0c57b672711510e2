//! A run of the test binary that gets killed, so that its servers have nobody to stop them.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

/// Set for that run.
const VICTIM: &str = "POSTHASTE_TESTKIT_VICTIM";
/// Begins the line in which it tells of its servers.
const TELLS: &str = "victim ";

/// In the victim: tells of the servers it has started, and waits to be killed. Elsewhere: nothing.
pub(crate) fn be_one(start: impl FnOnce() -> (String, Box<dyn std::any::Any>)) {
    if std::env::var_os(VICTIM).is_none() {
        return;
    }
    let (told, _servers) = start();
    println!("{TELLS}{told}");
    loop {
        std::thread::park();
    }
}

/// Runs the test of this name once more, as the victim. Answers what it tells.
pub(crate) fn start(name: &str) -> (Child, String) {
    let mut victim = Command::new(std::env::current_exe().unwrap())
        .args([name, "--exact", "--nocapture"])
        .env(VICTIM, "1")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let told = BufReader::new(victim.stdout.take().unwrap())
        .lines()
        .map_while(Result::ok)
        .find_map(|line| line.split_once(TELLS).map(|(_, told)| told.to_owned()))
        .expect("the victim started its server");
    (victim, told)
}
