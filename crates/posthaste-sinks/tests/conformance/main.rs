//! Runs the conformance suite of sinks against every sink of the build, and what only one of
//! them promises.

// Test code throughout, where a failed expectation is a failed test.
#![allow(clippy::unwrap_used, clippy::expect_used)]

#[cfg(feature = "amqp10")]
mod amqp10;
#[cfg(feature = "_aws")]
mod aws;
mod child;
#[cfg(any(feature = "http", feature = "mqtt"))]
mod cloud_event;
#[cfg(feature = "_transport")]
mod driving;
mod file;
#[cfg(feature = "http")]
mod http;
#[cfg(feature = "kafka")]
mod kafka;
#[cfg(feature = "kinesis")]
mod kinesis;
mod lines;
#[cfg(feature = "mqtt")]
mod mqtt;
#[cfg(feature = "nats")]
mod nats;
mod null;
#[cfg(any(feature = "_aws", feature = "pubsub"))]
mod outcome;
#[cfg(feature = "compression")]
mod payloads;
#[cfg(feature = "pubsub")]
mod pubsub;
#[cfg(feature = "rabbitmq")]
mod rabbitmq;
#[cfg(feature = "redis")]
mod redis;
#[cfg(feature = "schema-registry")]
mod schemas;
#[cfg(feature = "sns")]
mod sns;
#[cfg(feature = "sqs")]
mod sqs;
mod stdout;
#[cfg(feature = "_servers")]
mod trial;

use std::process::ExitCode;

use libtest_mimic::Trial;
use posthaste_sinks::SINKS;
use posthaste_testkit::sink_suite::{self, Expected, Row};

/// The tests of one sink.
struct Tests {
    /// Its rows in the suite, one for each of its modes.
    rows: fn() -> Vec<Row>,
    /// Tests of the promises of this sink alone.
    trials: fn() -> Vec<Trial>,
}

const TESTS: &[Tests] = &[
    #[cfg(feature = "amqp10")]
    Tests {
        rows: amqp10::rows,
        trials: amqp10::trials,
    },
    Tests {
        rows: file::rows,
        trials: file::trials,
    },
    #[cfg(feature = "http")]
    Tests {
        rows: http::rows,
        trials: http::trials,
    },
    #[cfg(feature = "kafka")]
    Tests {
        rows: kafka::rows,
        trials: kafka::trials,
    },
    #[cfg(feature = "kinesis")]
    Tests {
        rows: kinesis::rows,
        trials: kinesis::trials,
    },
    #[cfg(feature = "mqtt")]
    Tests {
        rows: mqtt::rows,
        trials: mqtt::trials,
    },
    #[cfg(feature = "nats")]
    Tests {
        rows: nats::rows,
        trials: nats::trials,
    },
    Tests {
        rows: null::rows,
        trials: Vec::new,
    },
    #[cfg(feature = "compression")]
    Tests {
        rows: payloads::rows,
        trials: payloads::trials,
    },
    #[cfg(feature = "pubsub")]
    Tests {
        rows: pubsub::rows,
        trials: pubsub::trials,
    },
    #[cfg(feature = "rabbitmq")]
    Tests {
        rows: rabbitmq::rows,
        trials: rabbitmq::trials,
    },
    #[cfg(feature = "redis")]
    Tests {
        rows: redis::rows,
        trials: redis::trials,
    },
    #[cfg(feature = "schema-registry")]
    Tests {
        rows: Vec::new,
        trials: schemas::trials,
    },
    #[cfg(feature = "sns")]
    Tests {
        rows: sns::rows,
        trials: sns::trials,
    },
    #[cfg(feature = "sqs")]
    Tests {
        rows: sqs::rows,
        trials: sqs::trials,
    },
    Tests {
        rows: stdout::rows,
        trials: stdout::trials,
    },
];

/// The promises of a sink's descriptor in this mode.
fn expected(mode: &str) -> Expected {
    SINKS
        .iter()
        .flat_map(|sink| sink.modes.iter().map(|mode| (sink.plug_in.name, mode)))
        .find(|(_, promised)| promised.name == mode)
        .map(|(kind, promised)| Expected::of(kind, promised))
        .unwrap_or_else(|| panic!("no sink has the mode `{mode}`"))
}

fn main() -> ExitCode {
    // Some tests run this very program as a process that they can kill.
    if let Some(role) = child::role() {
        return child::run(&role);
    }
    let rows: Vec<Row> = TESTS.iter().flat_map(|tests| (tests.rows)()).collect();
    let mut more: Vec<Trial> = TESTS.iter().flat_map(|tests| (tests.trials)()).collect();
    let named: Vec<&str> = rows.iter().map(|row| row.expected.sink).collect();
    more.push(Trial::test(
        "every_mode_of_every_sink_has_a_row",
        move || {
            let built = SINKS.iter().filter(|sink| sink.is_built());
            let modes = built.flat_map(|sink| sink.modes.iter().map(|mode| mode.name));
            let missing: Vec<&str> = modes.filter(|mode| !named.contains(mode)).collect();
            match missing.is_empty() {
                true => Ok(()),
                false => Err(format!("no row in the suite for {missing:?}").into()),
            }
        },
    ));
    sink_suite::main(&rows, more)
}
