//! This program, when a test runs it as a process of its own.

use std::{env, fs, path::Path, process::ExitCode, sync::Arc};

use posthaste_engine::{Lane, Outcome, Sink};
use posthaste_sinks::open;
use posthaste_testkit::sink_suite::{SuiteEvent, lane_spec, records};

use crate::{file::file_url, lines};

const ROLE: &str = "POSTHASTE_SINKS_TEST_ROLE";
const ADDRESS: &str = "POSTHASTE_SINKS_TEST_ADDRESS";

/// A command that runs this program in a role, on a sink. `wrapper` is a program, with arguments,
/// that runs the command behind it.
pub(crate) fn command(role: &str, address: &str, wrapper: &[&str]) -> std::process::Command {
    let program = env::current_exe().unwrap();
    let mut command = match wrapper.split_first() {
        Some((first, rest)) => {
            let mut command = std::process::Command::new(first);
            command.args(rest).arg(program);
            command
        }
        None => std::process::Command::new(program),
    };
    command.env(ROLE, role).env(ADDRESS, address);
    command
}

/// The role of this process, if it is such a child.
pub(crate) fn role() -> Option<String> {
    env::var(ROLE).ok()
}

/// Plays the role.
pub(crate) fn run(role: &str) -> ExitCode {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let address = env::var(ADDRESS).unwrap();
        let sink = open(&address).unwrap();
        match role {
            "hold" => hold(&sink).await,
            "append" => append(&sink).await,
            "fill" => drop(fill(&sink).await),
            "fill and recover" => fill_and_recover(&sink).await,
            "speak" => speak(&sink).await,
            other => panic!("unknown role {other}"),
        }
    });
    ExitCode::SUCCESS
}

/// A lane of this sink. Children open one or two, so that the number tells them apart.
pub(crate) async fn lane(sink: &Arc<dyn Sink>, number: u64) -> Box<dyn Lane> {
    sink.open_lane(lane_spec(number)).await.unwrap()
}

/// Sends one event and waits for its verdict.
pub(crate) async fn send(lane: &mut Box<dyn Lane>, event: &SuiteEvent) -> Outcome {
    lane.submit(records(std::slice::from_ref(event), 0)).await;
    let mut verdicts = lane.outcomes().await;
    assert_eq!(verdicts.len(), 1);
    verdicts.remove(0).outcome
}

async fn hold(sink: &Arc<dyn Sink>) {
    let _lane = lane(sink, 1).await;
    println!("holding");
    std::future::pending::<()>().await;
}

/// Names each event on standard output once it is accepted, for ever.
async fn append(sink: &Arc<dyn Sink>) {
    let mut lane = lane(sink, 1).await;
    let mut ids = std::collections::VecDeque::new();
    for ticket in (0..).step_by(10) {
        let events: Vec<SuiteEvent> = (0..10)
            .map(|n| SuiteEvent::new(Some("k"), "x".repeat(100 * n)))
            .collect();
        ids.extend(events.iter().map(|event| event.id));
        lane.submit(records(&events, ticket)).await;
        if ids.len() >= 100 {
            for verdict in lane.outcomes().await {
                assert!(matches!(verdict.outcome, Outcome::Accepted(_)));
                println!("{}", ids.pop_front().unwrap());
            }
        }
    }
}

/// Sends until the destination takes no more. Answers how much it took, and its reason not to.
async fn fill(sink: &Arc<dyn Sink>) -> usize {
    let mut lane = lane(sink, 1).await;
    let mut accepted = 0;
    loop {
        match send(&mut lane, &SuiteEvent::new(Some("k"), vec![b'x'; 5_000])).await {
            Outcome::Accepted(_) => accepted += 1,
            Outcome::Unavailable(why) => {
                println!("accepted {accepted}, then {why}");
                lane.abort().await;
                return accepted;
            }
            other => panic!("{other:?}"),
        }
    }
}

/// Fills a device that has ballast beside the file, drops the ballast, and goes on.
async fn fill_and_recover(sink: &Arc<dyn Sink>) {
    let address = env::var(ADDRESS).unwrap();
    let path = Path::new(address.strip_prefix("file://").unwrap());
    assert_eq!(address, file_url(path));
    let ballast = path.with_extension("ballast");
    fs::write(&ballast, vec![0; 200_000]).unwrap();
    let accepted = fill(sink).await;
    assert!(accepted > 0, "the device was full from the start");
    assert_eq!(lines::parse_all(&fs::read(path).unwrap()).len(), accepted);
    fs::remove_file(&ballast).unwrap();
    let mut lane = lane(sink, 2).await;
    for _ in 0..20 {
        let outcome = send(&mut lane, &SuiteEvent::new(Some("k"), vec![b'x'; 5_000])).await;
        assert!(matches!(outcome, Outcome::Accepted(_)), "{outcome:?}");
    }
    assert_eq!(
        lines::parse_all(&fs::read(path).unwrap()).len(),
        accepted + 20
    );
}

/// Sends to standard output, and reports to standard error.
async fn speak(sink: &Arc<dyn Sink>) {
    let checked = sink.check().await;
    let mut lane = lane(sink, 1).await;
    for n in 0..3 {
        let outcome = send(&mut lane, &SuiteEvent::new(Some("k"), format!("{n}"))).await;
        eprintln!("{outcome:?}");
    }
    eprintln!("check: {checked:?}");
    eprintln!("done");
}
