//! The log.

use std::io::IsTerminal as _;

use posthaste_engine::shown;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::{
    EnvFilter, Layer as _, Registry,
    filter::{FilterExt as _, Targets},
    fmt,
    layer::{Filter, SubscriberExt as _},
    util::SubscriberInitExt as _,
};

use crate::{config::LogFormat, failure::Failure};

/// The variable that sets the log's level, in the syntax of `RUST_LOG`.
const LOG: &str = "POSTHASTE_LOG";

/// To standard error, from this level on unless the environment names another.
pub(crate) fn start_logging(format: LogFormat, level: &str) -> Result<(), Failure> {
    let wanted = match std::env::var(LOG) {
        Ok(text) if !text.is_empty() => EnvFilter::try_new(&text).map_err(|error| {
            Failure::usage(format!(
                "{LOG}={}: {error}\nfix: write a level, such as info or debug",
                shown(&text)
            ))
        })?,
        _ => EnvFilter::new(level),
    };
    let lines = fmt::layer().with_writer(std::io::stderr);
    match format {
        LogFormat::Text => {
            let lines = lines.with_ansi(std::io::stderr().is_terminal());
            let lines = lines.with_filter(told(wanted));
            tracing_subscriber::registry().with(lines).init();
        }
        LogFormat::Json => {
            let lines = lines.json().with_filter(told(wanted));
            tracing_subscriber::registry().with(lines).init();
        }
    }
    Ok(())
}

/// The part of the wanted lines that is told. The clients of AWS show credentials at `trace`, and
/// say of each request that fails, as an error, that its connection is not used again.
fn told(wanted: EnvFilter) -> impl Filter<Registry> {
    let safe = Targets::new()
        .with_default(LevelFilter::TRACE)
        .with_target("aws_", LevelFilter::DEBUG)
        .with_target(
            "aws_smithy_runtime::client::http::connection_poisoning",
            LevelFilter::OFF,
        );
    wanted.and(safe)
}

#[cfg(test)]
mod tests {
    use std::{
        io::{self, Write},
        sync::{Arc, Mutex},
    };

    use super::*;

    #[derive(Clone, Default)]
    struct Kept(Arc<Mutex<Vec<u8>>>);

    impl Write for Kept {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn the_log_shows_no_credentials_of_aws_whatever_is_asked_for() {
        for wanted in ["trace", "trace,aws_config=trace,aws_config::ecs=trace"] {
            let kept = Kept::default();
            let writer = kept.clone();
            let lines = fmt::layer().with_writer(move || writer.clone());
            let lines = lines.with_filter(told(EnvFilter::new(wanted)));
            tracing::subscriber::with_default(tracing_subscriber::registry().with(lines), || {
                tracing::trace!(target: "aws_config::ecs", "s3cret");
                tracing::error!(
                    target: "aws_smithy_runtime::client::http::connection_poisoning",
                    "a connection of many"
                );
                tracing::debug!(target: "aws_config::ecs", "told of AWS");
                tracing::trace!(target: "posthaste_engine", "told of ours");
            });
            let told = String::from_utf8(kept.0.lock().unwrap().clone()).unwrap();
            assert_eq!(told.lines().count(), 2, "{told}");
            assert!(told.contains("told of AWS") && told.contains("told of ours"));
        }
    }
}
