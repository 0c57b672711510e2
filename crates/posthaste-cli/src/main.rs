//! The `posthaste` binary: everything that a human or an operator needs.

mod commands;
mod config;
mod failure;
mod heaps;
mod http;
mod open;
mod output;
mod secret;

use std::process::ExitCode;

use clap::Parser;

/// Moves every committed event of a transactional outbox to where it belongs: in order, at least
/// once, none lost.
#[derive(Debug, Parser)]
#[command(name = "posthaste", version, arg_required_else_help = true, after_help = EXIT_STATUS)]
struct Cli {
    #[command(subcommand)]
    command: commands::Command,
}

const EXIT_STATUS: &str = "\
Exit status: 0 done, 1 failure, 2 usage or configuration, 3 drained with parked or blocked events,
4 drain time-out.

Start with:  posthaste demo";

fn main() -> ExitCode {
    let command = Cli::parse().command;
    if command.runs_for_long() {
        heaps::share();
    }
    run(command)
}

#[tokio::main]
async fn run(command: commands::Command) -> ExitCode {
    match command.run().await {
        Ok(status) => status.into(),
        Err(failure) => {
            eprintln!("error: {failure}");
            failure.status.into()
        }
    }
}
