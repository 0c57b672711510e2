//! The destination goes away and comes back: an outage is not a poison event.

use std::{
    fs,
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::Command,
    sync::Arc,
    time::Duration,
};

use posthaste_testkit::{long_form, process::Running, servers::postgres::PostgresServer};
use rustix::process::{Pid, Resource, Rlimit, prlimit};

use crate::verdict::Lives;
use posthaste_torture::{
    database::{Database, Plan, Step, load_key},
    load::{Load, OnTrouble},
    postgres::Postgres,
    relay::{Delivered, LIMIT, RelayCommand, assert_no_panic, posthaste_json, until},
};

/// How long the destination stays away.
fn away() -> Duration {
    Duration::from_secs(if long_form() { 60 } else { 4 })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_missing_directory_parks_nothing_and_heals() {
    let postgres = Postgres::new(PostgresServer::shared(15));
    let database: Arc<dyn Database> = Arc::new(postgres);
    let delivered = Delivered::new();
    let relay = RelayCommand::new(&database.url(), &delivered);
    let running = relay.start();
    let load = Load::start(&database, OnTrouble::Fail);
    until("a first delivery", || delivered.lines() > 0).await;
    let elsewhere = delivered.directory().with_extension("moved");
    fs::rename(delivered.directory(), &elsewhere).unwrap();
    is_open(&database.url()).await;
    tokio::time::sleep(away()).await;
    load.stop().await;
    fs::rename(&elsewhere, delivered.directory()).unwrap();
    heals(&database, &delivered, running).await;
}

/// The limit of a file's size stands for a full device where nobody may mount one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_at_its_size_limit_parks_nothing_and_heals() {
    let database: Arc<dyn Database> = Arc::new(Postgres::new(PostgresServer::shared(15)));
    let delivered = Delivered::new();
    fill(&database).await;
    let mut command = Command::new("sh");
    // 512 blocks of 512 bytes, in the midst of a line.
    command.args(["-c", "ulimit -S -f 512; exec \"$@\"", "sh"]);
    let running = Running::start(wrap(
        &mut command,
        &RelayCommand::new(&database.url(), &delivered),
    ))
    .goes_on();
    is_open(&database.url()).await;
    tokio::time::sleep(away()).await;
    let pid = Pid::from_raw(running.id().try_into().unwrap());
    prlimit(
        pid,
        Resource::Fsize,
        Rlimit {
            current: None,
            maximum: None,
        },
    )
    .unwrap();
    heals(&database, &delivered, running).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_device_parks_nothing_and_heals() {
    let database: Arc<dyn Database> = Arc::new(Postgres::new(PostgresServer::shared(15)));
    fill(&database).await;
    let mount_point = tempfile::tempdir().unwrap();
    // In a mount namespace of its own the device is gone with the relay, however that ends.
    let inside = mount_point.path().join("events.jsonl");
    let relay = RelayCommand::new(&database.url(), &Delivered::at(inside.clone()));
    let mut command = Command::new("unshare");
    command.args(["--mount", "--map-root-user", "sh", "-ec"]);
    command.arg(
        "mount -t tmpfs -o size=1m full \"$1\"; head -c 600k /dev/zero > \"$1/ballast\"; \
         shift; exec \"$@\"",
    );
    command.arg("sh").arg(mount_point.path());
    let running = Running::start(wrap(&mut command, &relay)).goes_on();
    is_open(&database.url()).await;
    let seen_from_here = |path: &Path| {
        let root = PathBuf::from(format!("/proc/{}/root", running.id()));
        root.join(path.strip_prefix("/").unwrap())
    };
    tokio::time::sleep(away()).await;
    let delivered = Delivered::at(seen_from_here(&inside));
    fs::remove_file(seen_from_here(&mount_point.path().join("ballast"))).unwrap();
    heals(&database, &delivered, running).await;
}

/// The relay's command line behind another program's.
fn wrap<'a>(program: &'a mut Command, relay: &RelayCommand) -> &'a mut Command {
    let relay = relay.command();
    for (name, value) in relay.get_envs() {
        assert!(value.is_none());
        program.env_remove(name);
    }
    program
        .arg(relay.get_program())
        .args(relay.get_args())
        .process_group(0)
}

/// About 800 KB of lines, of which a device of 1 MiB with its ballast holds half.
async fn fill(database: &Arc<dyn Database>) {
    let mut writer = database.writer().await.unwrap();
    for _ in 0..10 {
        let step = |key| Step {
            payload_bytes: 100,
            ..Step::new(load_key(key), 10)
        };
        let steps = (0..20).map(step).collect();
        writer
            .transact(&Plan {
                steps,
                ..Plan::default()
            })
            .await
            .unwrap();
    }
}

/// The destination's breaker is open, for everybody to see.
async fn is_open(url: &str) {
    until("an open breaker", || {
        let status = posthaste_json(&["status", "--store", url]);
        status["destinations"][0]["breaker"] == "open"
    })
    .await;
}

/// Everything arrives, by itself and once; nothing was parked.
async fn heals(database: &Arc<dyn Database>, delivered: &Delivered, mut running: Running) {
    let committed = database.committed().await;
    until("delivery after the outage", || {
        delivered.lines() >= committed
    })
    .await;
    assert!(running.is_running());
    let status = posthaste_json(&["status", "--store", &database.url()]);
    for count in ["parked", "dead", "blocked_keys"] {
        assert_eq!(status[count], 0, "{status:#}");
    }
    assert_eq!(database.audited("park").await, 0);
    // Judged before the end, with which a private device is gone.
    let report = Lives::first().judge(&**database, delivered).await.report;
    println!("{report}");
    report.assert_good();
    running.terminate();
    assert_no_panic(&running.wait(LIMIT).expect_status(0).stderr);
}
