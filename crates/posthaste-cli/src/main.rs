//! The `posthaste` binary: everything that a human or an operator needs.

mod commands;
mod config;
mod failure;
mod http;
mod logging;
mod open;
mod output;
mod plug_ins;
mod secret;
mod task;

use std::process::ExitCode;

use clap::{
    Parser,
    error::{ContextKind, ContextValue, ErrorKind},
};
use posthaste_engine::shown;
use rustix::process::{Resource, getrlimit};
use tokio::runtime::{Builder, Runtime};

use crate::failure::Failure;

/// glibc gives each thread a heap of its own that keeps its largest size. A relay's window is read
/// now by one thread and now by another, so its memory would grow from outage to outage.
#[cfg(all(feature = "jemalloc", target_os = "linux"))]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// Moves every committed event of a transactional outbox to its destination: in order, at least
/// once, none lost.
#[derive(Debug, Parser)]
#[command(name = "posthaste", version, arg_required_else_help = true, after_help = EXIT_STATUS)]
struct Cli {
    #[command(subcommand)]
    command: commands::Command,
}

const EXIT_STATUS: &str = "\
Exit status: 0 done, 1 failure, 2 usage, configuration or set-up, 3 drained with parked or blocked
events, 4 drain time-out.

Start with:  posthaste demo";

fn main() -> ExitCode {
    let command = match Cli::try_parse() {
        Ok(cli) => cli.command,
        Err(error) => without_secrets(error).exit(),
    };
    let ended = runtime().and_then(|runtime| {
        let ended = runtime.block_on(command.run());
        // A thread may hang in the kernel, on a file system that is away: nobody waits for it.
        runtime.shutdown_background();
        ended
    });
    match ended {
        Ok(status) => status.into(),
        Err(failure) => {
            eprintln!("error: {failure}");
            failure.status.into()
        }
    }
}

/// An error about the arguments repeats them, and one in a wrong place may be an address.
fn without_secrets(mut error: clap::Error) -> clap::Error {
    let mut kinds = vec![ContextKind::InvalidSubcommand, ContextKind::InvalidValue];
    // In other errors this is the name of an argument of ours.
    if error.kind() == ErrorKind::UnknownArgument {
        kinds.push(ContextKind::InvalidArg);
    }
    for kind in kinds {
        let Some(ContextValue::String(text)) = error.get(kind) else {
            continue;
        };
        let hidden = shown(text.trim_start_matches('-'));
        if !text.ends_with(hidden) {
            error.insert(kind, ContextValue::String(hidden.to_owned()));
            // A hint on how to pass it on.
            error.remove(ContextKind::Suggested);
        }
    }
    error
}

/// With fewer open files the runtime panics, or nothing could be opened.
const OPEN_FILES_MIN: u64 = 32;

/// Room for values inside each other, which JSON has 128 of, each checked by rules inside each
/// other. The system gives a thread what it uses of it.
const STACK_BYTES: usize = 16 << 20;

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
        .thread_stack_size(STACK_BYTES)
        .build()
        .map_err(|error| {
            Failure::usage(format!(
                "cannot start threads: {error}\nfix: raise the limit of processes (ulimit -u)"
            ))
        })
}
