//! The sinks of Posthaste: a file or folder each, most of them a feature of the build.
//!
//! A sink is named by its address: `file:///var/spool/events.jsonl?max_event_bytes=1048576`,
//! `stdout:`, `null:`. [`open`] turns an address into a [`Sink`]; [`SINKS`] says what there is.

mod address;
#[cfg(feature = "rabbitmq")]
mod amqp;
#[cfg(feature = "amqp10")]
mod amqp10;
#[cfg(feature = "_aws")]
mod aws;
#[cfg(any(feature = "http", feature = "mqtt"))]
mod cloud_event;
mod descriptor;
/// The row of each sink, compiled into every build.
mod descriptors {
    pub(crate) mod amqp10;
    pub(crate) mod file;
    pub(crate) mod http;
    pub(crate) mod kafka;
    pub(crate) mod kinesis;
    pub(crate) mod mqtt;
    pub(crate) mod nats;
    pub(crate) mod null;
    pub(crate) mod pubsub;
    pub(crate) mod rabbitmq;
    pub(crate) mod redis;
    pub(crate) mod sns;
    pub(crate) mod sqs;
    pub(crate) mod stdout;
}
mod file;
#[cfg(test)]
mod fuzz;
#[cfg(any(feature = "amqp10", feature = "pubsub"))]
mod header_map;
#[cfg(feature = "http")]
mod http;
mod jsonl;
#[cfg(feature = "kafka")]
mod kafka;
#[cfg(feature = "kinesis")]
mod kinesis;
#[cfg(feature = "mqtt")]
mod mqtt;
#[cfg(feature = "nats")]
mod nats;
mod null;
mod payloads;
pub mod publisher;
#[cfg(feature = "pubsub")]
mod pubsub;
#[cfg(feature = "rabbitmq")]
mod rabbitmq;
#[cfg(feature = "redis")]
mod redis;
#[cfg(any(feature = "_aws", feature = "pubsub", feature = "schema-registry"))]
mod requests;
#[cfg(feature = "sns")]
mod sns;
#[cfg(feature = "sqs")]
mod sqs;
mod stdout;
#[cfg(feature = "_transport")]
// RabbitMQ has routing keys of its own; the others use a part.
#[cfg_attr(not(all(feature = "amqp10", feature = "_aws")), allow(dead_code))]
mod topic_template;
#[cfg(feature = "_transport")]
// MQTT and NATS use all of it, the others a part.
#[cfg_attr(
    not(any(feature = "mqtt", feature = "nats")),
    allow(dead_code, unused_imports)
)]
mod transport;
mod writer;

use std::sync::Arc;

use posthaste_engine::{PlugIn, Sink, SinkError};

#[cfg(feature = "redis")]
pub use self::redis::RedisSink;
#[cfg(feature = "amqp10")]
pub use amqp10::Amqp10Sink;
pub use descriptor::{SinkDescriptor, SinkSummary};
pub use file::FileSink;
#[cfg(feature = "http")]
pub use http::HttpSink;
#[cfg(feature = "kafka")]
pub use kafka::KafkaSink;
#[cfg(feature = "kinesis")]
pub use kinesis::KinesisSink;
#[cfg(feature = "mqtt")]
pub use mqtt::MqttSink;
#[cfg(feature = "nats")]
pub use nats::NatsSink;
pub use null::{NullSink, Taken};
pub use payloads::{
    CLAIM_CHECK, CLAIM_CHECK_BYTES, CLAIM_CHECK_SHA256, CONTENT_ENCODING, Compression,
    PayloadSettings, around,
};
#[cfg(feature = "pubsub")]
pub use pubsub::PubSubSink;
#[cfg(feature = "rabbitmq")]
pub use rabbitmq::RabbitMqSink;
#[cfg(feature = "sns")]
pub use sns::SnsSink;
#[cfg(feature = "sqs")]
pub use sqs::SqsSink;
pub use stdout::StdoutSink;

use address::Address;

/// Every sink, also those that this build left out.
pub static SINKS: &[SinkDescriptor] = &[
    SinkDescriptor {
        #[cfg(feature = "amqp10")]
        open: Some(|address| Ok(Arc::new(Amqp10Sink::from_address(address)?))),
        ..descriptors::amqp10::AMQP10
    },
    SinkDescriptor {
        open: Some(|address| Ok(Arc::new(FileSink::from_address(address)?))),
        ..descriptors::file::FILE
    },
    SinkDescriptor {
        #[cfg(feature = "http")]
        open: Some(|address| Ok(Arc::new(HttpSink::from_address(address)?))),
        ..descriptors::http::HTTP
    },
    SinkDescriptor {
        #[cfg(feature = "kafka")]
        open: Some(|address| Ok(Arc::new(KafkaSink::from_address(address)?))),
        ..descriptors::kafka::KAFKA
    },
    SinkDescriptor {
        #[cfg(feature = "kinesis")]
        open: Some(|address| Ok(Arc::new(KinesisSink::from_address(address)?))),
        ..descriptors::kinesis::KINESIS
    },
    SinkDescriptor {
        #[cfg(feature = "mqtt")]
        open: Some(|address| Ok(Arc::new(MqttSink::from_address(address)?))),
        ..descriptors::mqtt::MQTT
    },
    SinkDescriptor {
        #[cfg(feature = "nats")]
        open: Some(|address| Ok(Arc::new(NatsSink::from_address(address)?))),
        ..descriptors::nats::NATS
    },
    SinkDescriptor {
        #[cfg(feature = "pubsub")]
        open: Some(|address| Ok(Arc::new(PubSubSink::from_address(address)?))),
        ..descriptors::pubsub::PUBSUB
    },
    SinkDescriptor {
        #[cfg(feature = "rabbitmq")]
        open: Some(|address| Ok(Arc::new(RabbitMqSink::from_address(address)?))),
        ..descriptors::rabbitmq::RABBITMQ
    },
    SinkDescriptor {
        #[cfg(feature = "redis")]
        open: Some(|address| Ok(Arc::new(RedisSink::from_address(address)?))),
        ..descriptors::redis::REDIS
    },
    SinkDescriptor {
        #[cfg(feature = "sns")]
        open: Some(|address| Ok(Arc::new(SnsSink::from_address(address)?))),
        ..descriptors::sns::SNS
    },
    SinkDescriptor {
        #[cfg(feature = "sqs")]
        open: Some(|address| Ok(Arc::new(SqsSink::from_address(address)?))),
        ..descriptors::sqs::SQS
    },
    SinkDescriptor {
        open: Some(|address| Ok(Arc::new(NullSink::from_address(address)?))),
        ..descriptors::null::NULL
    },
    SinkDescriptor {
        open: Some(|address| Ok(Arc::new(StdoutSink::from_address(address)?))),
        ..descriptors::stdout::STDOUT
    },
];

/// The row of the sink that an address means, if its scheme is one that we know.
#[must_use]
pub fn descriptor(url: &str) -> Option<&'static SinkDescriptor> {
    let (scheme, _) = url.split_once(':')?;
    let scheme = scheme.to_ascii_lowercase();
    SINKS
        .iter()
        .find(|sink| sink.plug_in.schemes.contains(&&*scheme))
}

/// Opens the sink at an address. Touches nothing outside this process: [`Sink::check`] and
/// [`Sink::open_lane`] do.
///
/// # Errors
/// [`SinkError::Misconfigured`] when the address has no scheme, names a kind of sink that this
/// build does not carry, or has a wrong path or option; the reason says what would be right.
pub fn open(url: &str) -> Result<Arc<dyn Sink>, SinkError> {
    let examples: Vec<&str> = SINKS.iter().map(|sink| sink.plug_in.example).collect();
    address::expect_scheme(url, &examples)?;
    let address = Address::parse(url)?;
    match descriptor(url).and_then(|sink| sink.open) {
        Some(open) => open(&address),
        None => {
            Err(address.misconfigured(no_such_sink(address.scheme(), SinkDescriptor::is_built)))
        }
    }
}

/// The advice for a scheme that is of no sink of this build.
fn no_such_sink(scheme: &str, is_built: fn(&SinkDescriptor) -> bool) -> String {
    let known: Vec<(&PlugIn, bool)> = SINKS
        .iter()
        .map(|sink| (&sink.plug_in, is_built(sink)))
        .collect();
    let built = known.iter().filter(|(_, is_built)| *is_built);
    let schemes: Vec<&str> = built
        .flat_map(|(plug_in, _)| plug_in.schemes.iter().copied())
        .collect();
    let said = PlugIn::no_such_scheme("sink", scheme, &known, &schemes.join(", "));
    match said.fix {
        Some(fix) => format!("{}; {fix}", said.reason),
        None => said.reason,
    }
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
            let said = no_such_sink(scheme, |sink| ["file", "null"].contains(&sink.plug_in.name));
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
            "kafka://host?sasl_password%3Dsecret",
            "kafka://host?sasl_password%3Dsecret=1",
            "kafka://host?secret=1&secret=1",
            "kafka://host?secret=%ff",
            "kafka://host?sasl=a&secret",
            "kafka://host?linger=secret",
            "null:?secret=1",
        ] {
            let said = refusal(url);
            assert!(!said.contains("secret"), "{url}: {said}");
        }
    }
}
