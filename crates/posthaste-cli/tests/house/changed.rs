//! The choice that `./test --changed` makes for a change of certain files.

use std::collections::BTreeMap;
use std::io::Write;
use std::process::{Command, Stdio};

use super::root;

/// Binaries to run, each with its filters; no filter means all of its tests.
type Selection = BTreeMap<String, Vec<String>>;

/// The binaries that each change affects, without the test of the house, which always runs.
fn affected(changes: &[&str]) -> Vec<Selection> {
    let mut lanes = Command::new("python3")
        .arg(root().join("tools/lanes.py"))
        .arg("--affected")
        .env("CARGO", env!("CARGO"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = lanes.stdin.take().unwrap();
    input.write_all(changes.join("\n").as_bytes()).unwrap();
    drop(input);
    let output = lanes.wait_with_output().unwrap();
    assert!(output.status.success());
    let output = String::from_utf8(output.stdout).unwrap();
    let selections: Vec<Selection> = output
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(selections.len(), changes.len());
    let without_house = |mut selection: Selection| {
        assert_eq!(selection.remove("posthaste-cli house"), Some(Vec::new()));
        selection
    };
    selections.into_iter().map(without_house).collect()
}

/// Binaries without the first word of their member.
#[test]
fn a_change_runs_what_it_can_affect() {
    const COMMAND_LINE: &[&str] = &[
        "cli posthaste",
        "cli cli",
        "cli docs",
        "cli packages",
        "cli torture",
    ];
    const RELAY: &[&str] = &["relay posthaste_relay", "relay relay", "relay conformance"];
    let table: &[(&str, &[&[&str]])] = &[
        ("README.md", &[&["cli docs"]]),
        (
            "docs/operating.md",
            &[&["cli docs", "cli cli", "cli packages"]],
        ),
        ("packaging/compose.yaml", &[&["cli packages"]]),
        ("docs/sql-contract.md", &[&["cli docs", " outbox"]]),
        (
            "docs/examples/python/consumer.py",
            &[&["cli docs", " outbox"]],
        ),
        ("LICENSE-MIT", &[]),
        ("crates/posthaste-cli/benches/sweep/main.rs", &[]),
        ("crates/posthaste-cli/tests/house.rs", &[]),
        ("crates/posthaste-cli/tests/cli/init.rs", &[&["cli cli"]]),
        (
            "crates/posthaste-cli/tests/torture/poison.rs",
            &[&["cli torture"]],
        ),
        ("crates/posthaste-cli/src/open.rs", &[COMMAND_LINE]),
        (
            "crates/posthaste-sinks/src/lib.rs",
            &[
                COMMAND_LINE,
                // The page on embedding names a sink.
                RELAY,
                &["sinks posthaste_sinks", "sinks conformance"],
            ],
        ),
        (
            "crates/posthaste-relay/src/runner.rs",
            &[
                COMMAND_LINE,
                RELAY,
                &["simulation posthaste_simulation", "simulation simulation"],
            ],
        ),
        (
            "crates/posthaste-relay/tests/health.rs",
            &[&["relay relay"]],
        ),
        (
            "crates/posthaste-model/src/state.rs",
            &[&["model posthaste_model", "model model"]],
        ),
        (
            "crates/posthaste-stores/tests/conformance/sqlite.rs",
            &[&["stores conformance", "stores stores", "relay relay"]],
        ),
        (
            "crates/posthaste-testkit/tests/proxy.rs",
            &[&["testkit testkit"]],
        ),
    ];
    let changes: Vec<_> = table.iter().map(|(change, _)| *change).collect();
    for ((change, expected), selection) in table.iter().zip(affected(&changes)) {
        let mut expected: Vec<_> = expected
            .concat()
            .iter()
            .map(|binary| match binary.strip_prefix(' ') {
                Some(target) => format!("posthaste {target}"),
                None => format!("posthaste-{binary}"),
            })
            .collect();
        expected.sort_unstable();
        let selected: Vec<_> = selection.into_keys().collect();
        assert_eq!(selected, expected, "{change}");
    }
}

/// The kit and the engine are under every test, and a file that nobody knows may be.
#[test]
fn a_change_under_everything_runs_everything() {
    let changes = [
        "Cargo.lock",
        "tools/lanes.py",
        "crates/posthaste-testkit/src/proxy.rs",
        "crates/posthaste/src/event.rs",
    ];
    let all = affected(&changes);
    for (change, selection) in changes.iter().zip(&all) {
        assert_eq!(selection.keys().len(), all[0].len(), "{change}");
        assert!(selection.values().all(Vec::is_empty), "{change}");
        assert!(selection.len() > 20, "{change}");
    }
}

#[test]
fn a_change_in_one_sink_runs_that_sinks_rows_and_the_tests_that_use_it() {
    let [code, test, both]: [Selection; 3] = affected(&[
        "crates/posthaste-sinks/src/kafka/options.rs",
        "crates/posthaste-sinks/tests/conformance/rabbitmq/tls.rs",
        "crates/posthaste-sinks/src/file.rs crates/posthaste-sinks/src/stdout.rs",
    ])
    .try_into()
    .unwrap();
    assert_eq!(code["posthaste-sinks conformance"], ["kafka-", "kafka::"]);
    assert_eq!(code["posthaste-sinks posthaste_sinks"], [""; 0]);
    for (suite, named, other) in [
        (
            "torture",
            "outages_of_kafka_lose_and_park_nothing",
            "outages_of_rabbitmq",
        ),
        (
            "docs",
            "the_guide_to_kafka_works_as_it_is_written",
            "the_guide_to_rabbitmq",
        ),
    ] {
        let tests = &code[&format!("posthaste-cli {suite}")];
        assert!(tests.iter().any(|test| test == named), "{tests:?}");
        assert!(
            !tests.iter().any(|test| test.starts_with(other)),
            "{tests:?}"
        );
    }
    assert_eq!(test.len(), 1);
    assert_eq!(
        test["posthaste-sinks conformance"],
        ["rabbitmq-", "rabbitmq::"]
    );
    let rows = ["file-", "file::", "stdout-", "stdout::"];
    assert_eq!(both["posthaste-sinks conformance"], rows);
}
