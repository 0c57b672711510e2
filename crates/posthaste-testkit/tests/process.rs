//! Child processes: signals, captured output, and no survivors.

#![allow(clippy::unwrap_used, clippy::expect_used)] // Clippy's own exception ends at helpers.

use posthaste_testkit::process::{Running, assert_none_ended, run};
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_secs(30);

fn shell(script: &str) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", script]);
    command
}

fn exists(process: u32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    // An orphan that no init reaps stays as a zombie: it holds nothing any more.
    status
        .lines()
        .any(|line| line.starts_with("State:") && !line.contains('Z'))
}

#[test]
fn status_and_both_streams_are_captured() {
    let done = run(&mut shell("echo out; echo err >&2; exit 3"), LIMIT).expect_status(3);
    assert_eq!(
        (done.stdout.as_str(), done.stderr.as_str()),
        ("out\n", "err\n")
    );
    let wrong = std::panic::catch_unwind(|| done.expect_status(0)).unwrap_err();
    let said = wrong.downcast::<String>().unwrap();
    for part in [
        "expected exit status 0",
        "echo out",
        "--- stdout\nout",
        "--- stderr\nerr",
    ] {
        assert!(said.contains(part), "{said}");
    }
}

#[test]
fn more_output_than_a_pipe_holds_does_not_block_the_process() {
    let done = run(&mut shell("head -c 1000000 /dev/zero"), LIMIT).expect_status(0);
    assert_eq!(done.stdout.len(), 1_000_000);
}

#[test]
fn signals_arrive() {
    let child = Running::start(&mut shell(
        "trap 'echo asked; exit 5' TERM; echo up; while :; do sleep 0.01; done",
    ));
    child.wait_for_stdout("up", LIMIT);
    child.pause();
    child.terminate();
    child.resume();
    assert!(child.wait(LIMIT).expect_status(5).stdout.contains("asked"));

    let mut child = Running::start(&mut shell("echo up >&2; exec sleep 1000"));
    child.wait_for_stderr("up", LIMIT);
    assert!(child.is_running());
    assert!(child.peak_memory_kib() > 0);
    assert_eq!(child.kill9().status.signal(), Some(9));
}

#[test]
fn a_text_that_never_comes_is_a_failure_and_not_a_hang() {
    let child = Running::start(&mut shell("echo something else"));
    let waited = std::thread::spawn(move || child.wait_for_stdout("up", LIMIT))
        .join()
        .unwrap_err();
    assert!(
        waited
            .downcast::<String>()
            .unwrap()
            .contains("the stream ended")
    );
}

#[test]
fn a_dropped_child_is_gone() {
    let child = Running::start(&mut shell("exec sleep 1000"));
    let id = child.id();
    assert!(exists(id));
    drop(child);
    assert!(!exists(id));
}

/// Set for the run of this very test binary that gets killed.
const VICTIM: &str = "POSTHASTE_TESTKIT_VICTIM";

#[test]
fn a_wait_notices_that_its_process_ended() {
    let told = Running::start(&mut shell("exec sleep 1000")).goes_on();
    assert_none_ended();
    told.terminate();
    // Its end is wanted, and one that declared nothing may end.
    told.wait(LIMIT);
    run(&mut shell("true"), LIMIT);
    assert_none_ended();

    let _ended = Running::start(&mut shell("echo no database >&2")).goes_on();
    let since = Instant::now();
    let noticed = loop {
        if let Err(noticed) = std::panic::catch_unwind(assert_none_ended) {
            break noticed.downcast::<String>().unwrap();
        }
        assert!(since.elapsed() < LIMIT, "nobody noticed");
        std::thread::sleep(Duration::from_millis(5));
    };
    assert!(noticed.contains("no database"), "{noticed}");
}

#[test]
fn a_killed_test_process_takes_its_children_along() {
    let name = "process::a_killed_test_process_takes_its_children_along";
    if std::env::var_os(VICTIM).is_some() {
        let child = Running::start(&mut shell("exec sleep 1000"));
        println!("\nvictim {} started", child.id());
        loop {
            std::thread::park();
        }
    }
    let mut itself = Command::new(std::env::current_exe().unwrap());
    itself
        .args([name, "--exact", "--nocapture"])
        .env(VICTIM, "1")
        .stderr(Stdio::null());
    let victim = Running::start(&mut itself);
    victim.wait_for_stdout("started\n", LIMIT);
    let grandchild = victim
        .stdout()
        .lines()
        .find_map(|line| {
            line.strip_prefix("victim ")?
                .strip_suffix(" started")?
                .parse()
                .ok()
        })
        .expect("the grandchild's id");
    assert!(exists(grandchild));
    victim.kill9();
    let killed = Instant::now();
    while exists(grandchild) {
        assert!(killed.elapsed() < LIMIT, "process {grandchild} survived");
        std::thread::sleep(Duration::from_millis(5));
    }
}
