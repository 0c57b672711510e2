//! `posthaste-torture --for 1h`: see the library.

#![allow(clippy::unwrap_used, clippy::expect_used)] // As in the library.

use std::{
    env, fs,
    path::PathBuf,
    process::{Command, ExitCode},
    sync::Arc,
    time::Duration,
};

use clap::{Parser, Subcommand};
use posthaste_torture::{
    database::Database,
    load::{Load, OnTrouble},
    options::Torture,
    relay::use_program,
    sqlite::Sqlite,
};
use serde_json::Value;

/// Kills, stops, crashes and cuts everything around relays at work, and checks what was delivered.
///
/// Exit status: 0 when every lap came to its end and no promise was broken, else 1.
#[derive(Debug, Parser)]
#[command(version, args_conflicts_with_subcommands = true)]
struct Arguments {
    /// How long
    #[arg(long = "for", value_name = "DURATION", default_value = "10m")]
    #[arg(value_parser = humantime::parse_duration)]
    time: Duration,
    /// Of everything that is drawn by lot [default: drawn, and printed]
    #[arg(long, value_name = "NUMBER")]
    seed: Option<u64>,
    /// Only this lap of such a run
    #[arg(long, value_name = "NUMBER")]
    lap: Option<u32>,
    /// The binary under test; it must have been built with Kafka [default: what cargo builds]
    #[arg(long, value_name = "PATH")]
    relay: Option<PathBuf>,
    /// Where the report is written to, besides standard output
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    #[command(subcommand)]
    part: Option<Part>,
}

#[derive(Debug, Subcommand)]
enum Part {
    /// Writes to an SQLite file until it is killed
    #[command(hide = true)]
    Write {
        #[arg(long, value_name = "URL")]
        store: String,
        #[arg(long, value_name = "NUMBER")]
        seed: u64,
    },
}

#[tokio::main]
async fn main() -> ExitCode {
    let arguments = Arguments::parse();
    if let Some(Part::Write { store, seed }) = arguments.part {
        return write(&store, seed).await;
    }
    use_program(arguments.relay.unwrap_or_else(build));
    let torture = Torture {
        time: arguments.time,
        seed: arguments
            .seed
            .unwrap_or_else(|| rand::random_range(0..1_000_000)),
        lap: arguments.lap,
        writer: Some(env::current_exe().expect("the path of this program")),
    };
    println!("seed {}", torture.seed);
    let report = torture.run().await;
    println!("\n{report}");
    if let Some(file) = arguments.report {
        fs::write(&file, report.to_string()).expect("write the report");
    }
    ExitCode::from(u8::from(!report.is_good()))
}

/// Has cargo build the binary as this one was built, and answers where it is.
fn build() -> PathBuf {
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.args(["build", "--package", "posthaste-cli", "--features", "kafka"]);
    command.args(["--message-format", "json-render-diagnostics"]);
    if !cfg!(debug_assertions) {
        command.arg("--release");
    }
    command.current_dir(env!("CARGO_MANIFEST_DIR"));
    command.stderr(std::process::Stdio::inherit());
    let output = command.output().expect("run cargo");
    assert!(output.status.success(), "cargo could not build the binary");
    let messages = String::from_utf8(output.stdout).expect("cargo's messages");
    let mut programs = messages.lines().filter_map(|line| {
        let message: Value = serde_json::from_str(line).ok()?;
        let is_ours = message["target"]["name"] == "posthaste";
        let path = message["executable"].as_str().filter(|_| is_ours)?;
        Some(PathBuf::from(path))
    });
    programs.next().expect("cargo built no binary `posthaste`")
}

async fn write(store: &str, seed: u64) -> ExitCode {
    let path = store.strip_prefix("sqlite:").expect("an SQLite file");
    let database: Arc<dyn Database> = Arc::new(Sqlite::at(path.into()));
    let load = Load::seeded(&database, OnTrouble::Fail, seed);
    println!("writing");
    std::future::pending::<()>().await;
    drop(load);
    ExitCode::SUCCESS
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory, Parser};

    use super::Arguments;

    #[test]
    fn the_arguments_are_understood() {
        Arguments::command().debug_assert();
        let line = [
            "posthaste-torture",
            "--for",
            "1h",
            "--seed",
            "7",
            "--lap",
            "3",
        ];
        let arguments = Arguments::try_parse_from(line).unwrap();
        assert_eq!(arguments.time.as_secs(), 3_600);
        assert_eq!((arguments.seed, arguments.lap), (Some(7), Some(3)));
    }
}
