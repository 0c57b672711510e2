//! The sinks that every build of Posthaste carries: `file`, `stdout` and `null`.
//!
//! A sink is named by its address: `file:///var/spool/events.jsonl?max_event_bytes=1048576`,
//! `stdout:`, `null:`. [`open`] turns an address into a [`Sink`].

mod address;
#[cfg(feature = "rabbitmq")]
mod amqp;
mod file;
#[cfg(test)]
mod fuzz;
mod jsonl;
#[cfg(feature = "kafka")]
mod kafka;
mod null;
pub mod publisher;
#[cfg(feature = "rabbitmq")]
mod rabbitmq;
mod stdout;
mod writer;

use std::sync::Arc;

use posthaste_engine::{Sink, SinkError};

pub use file::FileSink;
#[cfg(feature = "kafka")]
pub use kafka::KafkaSink;
pub use null::{NullSink, Taken};
#[cfg(feature = "rabbitmq")]
pub use rabbitmq::RabbitMqSink;
pub use stdout::StdoutSink;

use address::Address;

type Open = fn(&Address) -> Result<Arc<dyn Sink>, SinkError>;

/// One line per kind of sink in this build.
const REGISTRY: &[(&str, Open)] = &[
    ("file", |address| {
        Ok(Arc::new(FileSink::from_address(address)?))
    }),
    #[cfg(feature = "kafka")]
    ("kafka", |address| {
        Ok(Arc::new(KafkaSink::from_address(address)?))
    }),
    #[cfg(feature = "rabbitmq")]
    ("amqp", |address| {
        Ok(Arc::new(RabbitMqSink::from_address(address)?))
    }),
    #[cfg(feature = "rabbitmq")]
    ("amqps", |address| {
        Ok(Arc::new(RabbitMqSink::from_address(address)?))
    }),
    ("null", |address| {
        Ok(Arc::new(NullSink::from_address(address)?))
    }),
    ("stdout", |address| {
        Ok(Arc::new(StdoutSink::from_address(address)?))
    }),
];

/// Kinds that are features of the build, and how to build with them.
const OPTIONAL: &[(&str, &str)] = &[
    ("kafka", "kafka"),
    ("amqp", "rabbitmq"),
    ("amqps", "rabbitmq"),
];

/// Opens the sink at an address. Touches nothing outside this process: [`Sink::check`] and
/// [`Sink::open_lane`] do.
///
/// # Errors
/// [`SinkError::Misconfigured`] when the address has no scheme, names a kind of sink that this
/// build does not carry, or has a wrong path or option; the reason says what would be right.
pub fn open(url: &str) -> Result<Arc<dyn Sink>, SinkError> {
    let address = Address::parse(url)?;
    let scheme = address.scheme();
    match REGISTRY.iter().find(|(kind, _)| *kind == scheme) {
        Some((_, open)) => open(&address),
        None => {
            let kinds: Vec<&str> = REGISTRY.iter().map(|(kind, _)| *kind).collect();
            Err(address.misconfigured(no_such_sink(scheme, &kinds)))
        }
    }
}

/// The advice for a scheme that is not among the `kinds` of this build.
fn no_such_sink(scheme: &str, kinds: &[&str]) -> String {
    let optional = OPTIONAL.iter().map(|(kind, _)| *kind);
    let known: Vec<&str> = kinds.iter().copied().chain(optional).collect();
    let hint = match OPTIONAL.iter().find(|(kind, _)| *kind == scheme) {
        Some((_, feature)) => format!("; build it with `cargo build --features {feature}`"),
        None if scheme == "rabbitmq" => "; RabbitMQ's scheme is `amqp:` or `amqps:`".to_owned(),
        None => address::nearest(scheme, &known)
            .map(|kind| format!("; did you mean `{kind}:`?"))
            .unwrap_or_default(),
    };
    format!(
        "this build has no sink `{scheme}`, it has {}{hint}",
        kinds.join(", ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(url: &str) -> String {
        match open(url) {
            Err(error @ SinkError::Misconfigured { .. }) => error.to_string(),
            Err(other) => panic!("{url}: {other:?}"),
            Ok(sink) => panic!("{url} opened as {}", sink.info().kind),
        }
    }

    #[test]
    fn addresses_open_their_kind() {
        for (url, kind) in [
            ("file:///var/spool/events.jsonl", "file"),
            ("file:///events.jsonl?max_event_bytes=1024", "file"),
            ("file://relative/events.jsonl", "file"),
            ("file:events.jsonl", "file"),
            ("stdout:", "stdout"),
            ("stdout://", "stdout"),
            ("null:", "null"),
            ("null://", "null"),
        ] {
            assert_eq!(open(url).unwrap().info().kind, kind, "{url}");
        }
    }

    #[test]
    fn wrong_addresses_name_the_fix() {
        for (url, fix) in [
            ("fil:///x", "did you mean `file:`"),
            ("kafak://broker:9092", "did you mean `kafka:`"),
            ("rabbitmq://host", "is `amqp:`"),
            ("/var/spool/events.jsonl", "file:///var/spool"),
            ("file:", "file:///var/spool"),
            ("file:///x/", "names a directory"),
            (
                "file:///x?max_event_byte=1",
                "did you mean `max_event_bytes`",
            ),
            ("file:///x?max_event_bytes=0", "at least 1"),
            ("file:///x?max_event_bytes=1kB", "whole number"),
            ("file:///x?max_event_bytes", "max_event_bytes=VALUE"),
            ("file:///x?mode=rw", "mode=0640"),
            ("file:///x?mode=0888", "mode=0640"),
            ("file:///x?mode=0440", "reads and writes"),
            ("file:///x?mode=1777", "mode=0640"),
            ("file:///x?max_event_bytes=1&max_event_bytes=2", "twice"),
            ("file:///x%2", "%2"),
            ("stdout:x", "takes no path"),
            ("null:?a=1", "takes no options"),
        ] {
            let said = refusal(url);
            assert!(said.contains(fix), "{url}: {said}");
        }
    }

    #[test]
    fn a_sink_that_was_left_out_of_the_build_names_its_feature() {
        for (scheme, feature) in [("kafka", "kafka"), ("amqp", "rabbitmq")] {
            let said = no_such_sink(scheme, &["file", "null"]);
            let fix =
                format!("it has file, null; build it with `cargo build --features {feature}`");
            assert!(said.contains(&fix), "{said}");
        }
    }

    #[test]
    fn a_refusal_never_repeats_a_secret() {
        for url in [
            "kafka://user:secret@host?password=secret",
            "amqp://user:a?secret@host/?exchange=x",
            "amqp://user:a?b=c&secret@host/?exchange=x",
            "amqp://user:a?exchange=%secret@host/",
            "amqp://user:1/secret@host/?exchange=x",
        ] {
            let said = refusal(url);
            assert!(!said.contains("secret"), "{url}: {said}");
        }
    }
}
