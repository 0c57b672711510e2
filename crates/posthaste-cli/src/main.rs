//! The `posthaste` binary: everything that a human or an operator needs.

mod commands;
mod config;
mod failure;
mod heaps;
mod http;
mod open;
mod output;
mod plug_ins;
mod secret;

use std::process::ExitCode;

use clap::Parser;
use rustix::process::{Resource, getrlimit};
use tokio::runtime::{Builder, Runtime};

use crate::failure::Failure;

/// Moves every committed event of a transactional outbox to its destination: in order, at least
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
    let ended = match runtime() {
        Ok(runtime) => runtime.block_on(command.run()),
        Err(failure) => Err(failure),
    };
    match ended {
        Ok(status) => status.into(),
        Err(failure) => {
            eprintln!("error: {failure}");
            failure.status.into()
        }
    }
}

/// With fewer open files the runtime panics, or nothing could be opened.
const OPEN_FILES_MIN: u64 = 32;

fn runtime() -> Result<Runtime, Failure> {
    let open_files = getrlimit(Resource::Nofile).current;
    if let Some(few) = open_files.filter(|&files| files < OPEN_FILES_MIN) {
        return Err(Failure::usage(format!(
            "a limit of {few} open files is too low\nfix: raise the limit (ulimit -n), to 1024 for \
             a relay"
        )));
    }
    Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| {
            Failure::usage(format!(
                "cannot start threads: {error}\nfix: raise the limit of processes (ulimit -u)"
            ))
        })
}
