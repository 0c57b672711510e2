//! The sink `file`: its fixture, and the promises of it alone.

mod fixture;

use std::{
    fs::{self, OpenOptions, Permissions},
    io::Write,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::Command,
    sync::Arc,
    time::Duration,
};

use libtest_mimic::{Completion, Failed, Trial};
use posthaste_engine::{Cause, Lane, Outcome, RejectionKind, Sink, SinkError};
use posthaste_sinks::open;
use posthaste_testkit::{
    process::{self, Running},
    sink_suite::{SuiteEvent, lane_spec},
};
use tempfile::TempDir;

use crate::{
    child::{self, send},
    lines,
};

pub(crate) use fixture::{file_url, rows};

const HANG: Duration = Duration::from_secs(120);

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        trial("torn_line_is_repaired", torn_line_is_repaired),
        trial("foreign_text_is_left_alone", foreign_text_is_left_alone),
        trial("wrong_places_name_the_fix", wrong_places_name_the_fix),
        #[cfg(target_os = "linux")]
        trial(
            "what_cannot_be_synced_is_refused_unwritten",
            what_cannot_be_synced_is_refused_unwritten,
        ),
        trial("limit_is_exact", limit_is_exact),
        trial(
            "a_new_file_is_not_for_everybody",
            a_new_file_is_not_for_everybody,
        ),
        trial(
            "a_second_lane_waits_for_the_first",
            a_second_lane_waits_for_the_first,
        ),
        trial(
            "lock_of_another_process_is_named",
            lock_of_another_process_is_named,
        ),
        trial(
            "a_moved_or_removed_file_is_followed",
            a_moved_or_removed_file_is_followed,
        ),
        trial(
            "a_file_cut_under_the_lane_has_no_hole",
            a_file_cut_under_the_lane_has_no_hole,
        ),
        trial(
            "what_was_accepted_outlives_a_kill",
            what_was_accepted_outlives_a_kill,
        ),
        trial(
            "size_limit_of_the_process_is_a_fault",
            size_limit_of_the_process_is_a_fault,
        ),
        Trial::ignorable_test("file::full_device_heals", full_device_heals),
        Trial::ignorable_test("file::missing_rights_are_denied", missing_rights_are_denied),
    ]
}

fn trial<F: Future<Output = ()> + 'static>(name: &str, test: fn() -> F) -> Trial {
    Trial::test(format!("file::{name}"), move || {
        block_on(test());
        Ok(())
    })
}

fn block_on(test: impl Future<Output = ()>) {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap()
        .block_on(async {
            tokio::time::timeout(HANG, test).await.expect("hung");
        });
}

struct Spool {
    root: TempDir,
}

impl Spool {
    fn new() -> Self {
        Self {
            root: TempDir::new().unwrap(),
        }
    }

    fn path(&self) -> PathBuf {
        self.root.path().join("events.jsonl")
    }

    fn sink(&self) -> Arc<dyn Sink> {
        open(&file_url(&self.path())).unwrap()
    }

    fn events(&self) -> Vec<SuiteEvent> {
        lines::parse_all(&fs::read(self.path()).unwrap())
    }
}

async fn lane(sink: &Arc<dyn Sink>) -> Box<dyn Lane> {
    child::lane(sink, 1).await
}

async fn refusal(sink: &Arc<dyn Sink>) -> SinkError {
    match sink.open_lane(lane_spec(1)).await {
        Ok(_) => panic!("a lane was given"),
        Err(error) => error,
    }
}

async fn accept(lane: &mut Box<dyn Lane>, payload: &str) -> SuiteEvent {
    let event = SuiteEvent::new(Some("k"), payload);
    let outcome = send(lane, &event).await;
    assert!(matches!(outcome, Outcome::Accepted(_)), "{outcome:?}");
    event
}

async fn torn_line_is_repaired() {
    let spool = Spool::new();
    let mut events = Vec::new();
    for torn in [
        "",
        "{",
        "{\"seq\":12",
        "{\"seq\":12,\"id\":\"0190",
        "{\"seq\":1,\"payload\":\"\\",
    ] {
        let mut file = OpenOptions::new()
            .create(true)
            .append(true)
            .open(spool.path())
            .unwrap();
        file.write_all(torn.as_bytes()).unwrap();
        let sink = spool.sink();
        sink.check().await.unwrap();
        assert!(fs::read(spool.path()).unwrap().ends_with(torn.as_bytes()));
        let mut lane = lane(&sink).await;
        events.push(accept(&mut lane, torn).await);
        lane.abort().await;
        assert_eq!(spool.events(), events, "after {torn:?}");
    }
}

async fn foreign_text_is_left_alone() {
    let spool = Spool::new();
    let text = "dear diary\ntoday";
    fs::write(spool.path(), text).unwrap();
    let sink = spool.sink();
    for error in [sink.check().await.unwrap_err(), refusal(&sink).await] {
        assert!(
            matches!(error, SinkError::Misconfigured { .. }),
            "{error:?}"
        );
        assert!(
            error.to_string().contains("not written by Posthaste"),
            "{error}"
        );
    }
    assert_eq!(fs::read_to_string(spool.path()).unwrap(), text);
}

async fn wrong_places_name_the_fix() {
    let spool = Spool::new();
    let root = spool.root.path();
    fs::create_dir(root.join("directory")).unwrap();
    fs::write(root.join("file"), "").unwrap();
    for (place, fix) in [
        (root.join("absent/events.jsonl"), "create its directory"),
        (root.join("directory"), "not a regular file"),
        (root.join("file/events.jsonl"), "correct the path"),
        (PathBuf::from("/dev/null"), "not a regular file"),
    ] {
        let sink = open(&file_url(&place)).unwrap();
        for error in [sink.check().await.unwrap_err(), refusal(&sink).await] {
            assert_eq!(error.cause(), Cause::Misconfigured, "{error}");
            let said = error.to_string();
            assert!(said.contains(fix), "{said}");
            assert!(said.contains(place.to_str().unwrap()), "{said}");
        }
    }
}

/// It says that it is a regular file.
#[cfg(target_os = "linux")]
async fn what_cannot_be_synced_is_refused_unwritten() {
    let error = refusal(&open("file:/proc/self/comm").unwrap()).await;
    assert_eq!(error.cause(), Cause::Misconfigured, "{error}");
    assert!(error.to_string().contains("on a device"), "{error}");
}

async fn limit_is_exact() {
    let spool = Spool::new();
    let url = format!("{}?max_event_bytes=10", file_url(&spool.path()));
    let mut lane = lane(&open(&url).unwrap()).await;
    let fits = accept(&mut lane, "0123456789").await;
    let Outcome::Rejected(why) = send(&mut lane, &SuiteEvent::new(None, "0123456789a")).await
    else {
        panic!("11 bytes passed a limit of 10");
    };
    assert_eq!(why.kind, RejectionKind::TooLarge);
    assert!(why.reason.contains("11 bytes"), "{}", why.reason);
    assert!(why.reason.contains("max_event_bytes=10"), "{}", why.reason);
    lane.abort().await;
    assert_eq!(spool.events(), [fits]);
}

async fn a_second_lane_waits_for_the_first() {
    let spool = Spool::new();
    let first = lane(&spool.sink()).await;
    let error = refusal(&spool.sink()).await;
    assert!(error.is_retryable(), "{error:?}");
    assert!(cfg!(not(target_os = "linux")) || error.to_string().contains("this process itself"));
    first.abort().await;
    lane(&spool.sink()).await.abort().await;
}

async fn lock_of_another_process_is_named() {
    let spool = Spool::new();
    // A relative path, which counts from the working directory.
    let mut command = child::command("hold", "file://events.jsonl", &[]);
    let holder = Running::start(command.current_dir(spool.root.path()));
    holder.wait_for_stdout("holding", HANG);
    let error = refusal(&spool.sink()).await;
    assert!(error.is_retryable(), "{error:?}");
    let named = format!("process {} (", holder.id());
    assert!(
        cfg!(not(target_os = "linux")) || error.to_string().contains(&named),
        "{error}"
    );
    assert!(error.to_string().contains("stop that process"), "{error}");
    holder.kill9();
    lane(&spool.sink()).await.abort().await;
}

async fn a_moved_or_removed_file_is_followed() {
    let spool = Spool::new();
    let moved = spool.root.path().join("events.jsonl.1");
    let mut lane = lane(&spool.sink()).await;
    let first = accept(&mut lane, "first").await;
    fs::rename(spool.path(), &moved).unwrap();
    let second = accept(&mut lane, "second").await;
    assert_eq!(lines::parse_all(&fs::read(&moved).unwrap()), [first]);
    assert_eq!(spool.events(), [second]);
    fs::remove_file(spool.path()).unwrap();
    let third = accept(&mut lane, "third").await;
    assert_eq!(spool.events(), std::slice::from_ref(&third));
    // The new file is locked like the old one.
    assert!(refusal(&spool.sink()).await.is_retryable());
    // Somebody else may have made the new file already.
    fs::rename(spool.path(), &moved).unwrap();
    fs::write(spool.path(), "").unwrap();
    let fourth = accept(&mut lane, "fourth").await;
    assert_eq!(spool.events(), [fourth]);
    assert_eq!(lines::parse_all(&fs::read(&moved).unwrap()), [third]);
}

async fn a_file_cut_under_the_lane_has_no_hole() {
    let spool = Spool::new();
    let mut lane = lane(&spool.sink()).await;
    accept(&mut lane, "gone").await;
    OpenOptions::new()
        .write(true)
        .open(spool.path())
        .unwrap()
        .set_len(0)
        .unwrap();
    let kept = accept(&mut lane, "kept").await;
    assert_eq!(spool.events(), [kept]);
}

async fn what_was_accepted_outlives_a_kill() {
    let rounds = if posthaste_testkit::long_form() {
        30
    } else {
        5
    };
    let spool = Spool::new();
    let mut accepted = 0;
    for round in 0..rounds {
        let mut command = child::command("append", &file_url(&spool.path()), &[]);
        let writer = Running::start(&mut command);
        while writer.stdout().lines().count() < 300 + 50 * round {
            tokio::task::yield_now().await;
        }
        let said = writer.kill9().stdout;
        // The sink repairs the last line before anything else.
        lane(&spool.sink()).await.abort().await;
        let written: Vec<String> = spool.events().iter().map(|e| e.id.to_string()).collect();
        // The pipe may have been cut in the middle of a name.
        let whole = said.rfind('\n').map_or("", |end| &said[..end]);
        let names: Vec<&str> = whole.lines().collect();
        let of_this_round = &written[accepted..];
        assert!(of_this_round.len() >= names.len());
        assert_eq!(&of_this_round[..names.len()], names, "round {round}");
        accepted = written.len();
    }
}

async fn size_limit_of_the_process_is_a_fault() {
    let spool = Spool::new();
    // Without the trap the kernel would kill the writer.
    let limited = ["sh", "-c", "trap '' XFSZ; ulimit -f 100; exec \"$0\""];
    let mut command = child::command("fill", &file_url(&spool.path()), &limited);
    let said = process::run(&mut command, HANG).expect_status(0).stdout;
    assert!(said.contains("(misconfigured)"), "{said}");
    assert!(said.contains("ulimit -f"), "{said}");
    assert!(said.contains(spool.path().to_str().unwrap()), "{said}");
    let accepted = format!("accepted {}, then", spool.events().len());
    assert!(said.contains(&accepted), "{said}");
}

/// A small file system that only the child sees.
fn full_device_heals() -> Result<Completion, Failed> {
    let namespace: &[&str] = if rustix::process::geteuid().is_root() {
        &["unshare", "--mount"]
    } else {
        &["unshare", "--map-root-user", "--mount"]
    };
    if !can_mount(namespace) {
        return Ok(Completion::ignored_with(
            "this machine allows no mount (`unshare --mount`, as root or in a user namespace)",
        ));
    }
    let spool = Spool::new();
    let device = spool.root.path().join("device");
    fs::create_dir(&device).unwrap();
    let script = format!(
        "mount -t tmpfs -o size=512k tmpfs '{}'; exec \"$0\"",
        device.display()
    );
    let wrapper = [namespace, &["sh", "-ec", &script]].concat();
    let url = file_url(&device.join("events.jsonl"));
    let mut command = child::command("fill and recover", &url, &wrapper);
    let said = process::run(&mut command, HANG).expect_status(0).stdout;
    assert!(said.contains("(connection)"), "{said}");
    assert!(said.contains("free space"), "{said}");
    Ok(Completion::Completed)
}

fn can_mount(namespace: &[&str]) -> bool {
    let root = TempDir::new().unwrap();
    Command::new(namespace[0])
        .args(&namespace[1..])
        .args(["mount", "-t", "tmpfs", "tmpfs"])
        .arg(root.path())
        .output()
        .is_ok_and(|output| output.status.success())
}

fn missing_rights_are_denied() -> Result<Completion, Failed> {
    if rustix::process::geteuid().is_root() {
        return Ok(Completion::ignored_with("nothing is denied to root"));
    }
    block_on(async {
        let spool = Spool::new();
        set_mode(spool.root.path(), 0o500);
        let sink = spool.sink();
        for error in [sink.check().await.unwrap_err(), refusal(&sink).await] {
            assert_eq!(error.cause(), Cause::Denied, "{error}");
            assert!(error.to_string().contains("read and write"), "{error}");
        }
        set_mode(spool.root.path(), 0o700);
        let mut writing = lane(&sink).await;
        accept(&mut writing, "first").await;
        writing.abort().await;
        set_mode(&spool.path(), 0o400);
        for error in [sink.check().await.unwrap_err(), refusal(&sink).await] {
            assert_eq!(error.cause(), Cause::Denied, "{error}");
        }
    });
    Ok(Completion::Completed)
}

fn set_mode(path: &Path, mode: u32) {
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

async fn a_new_file_is_not_for_everybody() {
    let spool = Spool::new();
    let mode = || fs::metadata(spool.path()).unwrap().permissions().mode() & 0o777;
    let write = async |url: &str| {
        let sink = open(url).unwrap();
        let mut lane = lane(&sink).await;
        accept(&mut lane, "p").await;
        lane.abort().await;
    };
    let url = file_url(&spool.path());
    write(&url).await;
    assert_eq!(mode() & !0o640, 0, "{:o}", mode());

    // The mode of the address is set whatever the umask, and that of a present file is kept.
    fs::set_permissions(spool.path(), Permissions::from_mode(0o604)).unwrap();
    write(&format!("{url}?mode=0666")).await;
    assert_eq!(mode(), 0o604);
    fs::remove_file(spool.path()).unwrap();
    write(&format!("{url}?mode=0666")).await;
    assert_eq!(mode(), 0o666);
}
