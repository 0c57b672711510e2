//! The numbers: what the file and the flags may change of a relay and of a destination.
//!
//! None means the default, which stands with its reason where the number is used
//! (`posthaste_relay`, `posthaste_engine`) and in `posthaste.example.toml`.

use std::{net::SocketAddr, ops::Range, time::Duration};

use clap::Args;
use posthaste_engine::{OnDead, OrderBy, Partitions, Start};
use posthaste_sinks::{Compression, PayloadSettings};

use super::{
    report::ConfigError,
    section::{Section, choose},
    units,
};
use crate::{http, secret::SecretUrl};

/// As many as a destination may have.
const PARTITIONS_MAX: u32 = Partitions::COUNT_MAX as u32;

/// How a log line looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum LogFormat {
    /// For people.
    Text,
    /// One JSON object a line.
    Json,
}

/// Settings of the relay.
#[derive(Debug, Clone, Default, PartialEq, Args)]
#[command(next_help_heading = "Tuning of the relay")]
pub(crate) struct RelayTuning {
    /// The relay's name, as `status` shows it [default: the machine's name]
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Option<String>,
    /// Most partitions that this relay owns of a destination that relays share [default: no bound]
    #[arg(
        long, value_name = "N",
        value_parser = clap::value_parser!(u32).range(1..=PARTITIONS_MAX.into())
    )]
    pub(crate) max_partitions: Option<u32>,
    /// How long the right to deliver lasts without renewal [default: 15s]
    #[arg(long, value_name = "DURATION", value_parser = units::duration)]
    pub(crate) lease: Option<Duration>,
    /// How long one batch may take to be accepted [default: a third of the lease]
    #[arg(long, value_name = "DURATION", value_parser = units::duration)]
    pub(crate) publish_timeout: Option<Duration>,
    /// Spare time between the last publish and the end of the lease [default: a sixth of the lease]
    #[arg(long, value_name = "DURATION", value_parser = units::duration)]
    pub(crate) margin: Option<Duration>,
    /// How long bytes of a broken connection may still arrive [default: a sixth of the lease]
    #[arg(long, value_name = "DURATION", value_parser = units::duration)]
    pub(crate) settle: Option<Duration>,
    /// Most events in a batch [default: 1000]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) batch_events: Option<u32>,
    /// Most bytes in a batch [default: 1MiB]
    #[arg(long, value_name = "SIZE", value_parser = units::size)]
    pub(crate) batch_size: Option<usize>,
    /// Most events in the window of a destination, which a crash may repeat [default: 10000]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) window_events: Option<u32>,
    /// Most bytes in the window of a destination [default: 8MiB]
    #[arg(long, value_name = "SIZE", value_parser = units::size)]
    pub(crate) window_size: Option<usize>,
    /// Wait after a read that brought a few events; after many it is up to ten times as long
    /// [default: 2ms]
    #[arg(long, value_name = "DURATION", value_parser = units::duration)]
    pub(crate) poll_busy: Option<Duration>,
    /// Longest wait between reads of an idle outbox [default: 700ms for each destination]
    #[arg(long, value_name = "DURATION", value_parser = units::duration)]
    pub(crate) poll_idle: Option<Duration>,
    /// How long a planned stop may take [default: 10s]
    #[arg(long, value_name = "DURATION", value_parser = units::duration)]
    pub(crate) shutdown_timeout: Option<Duration>,
    /// Format of the log on standard error [default: text]
    #[arg(long, value_name = "FORMAT")]
    pub(crate) log: Option<LogFormat>,
    /// Answer /healthz, /readyz and /metrics there; port 0 takes any free one
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = http::address)]
    pub(crate) http: Option<SocketAddr>,
    /// Let --http listen on an address that other machines reach; whoever reaches it may read, also
    /// by a web page in a browser there
    #[arg(long)]
    pub(crate) http_allow_remote: bool,
}

/// Settings of a destination.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Tuning of the destinations")]
pub(crate) struct DestinationTuning {
    /// Attempts with a refused event until it is dead [default: 5, or 150 if the broker lacks a
    /// topic, a queue or a right]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) attempts: Option<u32>,
    /// Wait before the second attempt; it doubles from there [default: 1s]
    #[arg(long, value_name = "DURATION", value_parser = units::duration)]
    pub(crate) backoff: Option<Duration>,
    /// Longest wait between attempts [default: 5min]
    #[arg(long, value_name = "DURATION", value_parser = units::duration)]
    pub(crate) backoff_max: Option<Duration>,
    /// By how many percent a wait may be shorter or longer [default: 25]
    #[arg(long, value_name = "PERCENT", value_parser = clap::value_parser!(u32).range(0..=100))]
    pub(crate) backoff_jitter: Option<u32>,
    /// Whether a dead event holds its key back: block or skip [default: block]
    #[arg(long, value_name = "POLICY", value_parser = on_dead)]
    pub(crate) on_dead: Option<OnDead>,
    /// Order is kept by key, or by key-and-topic, where a key that waits at one topic goes on at
    /// the others. It is the destination's for good [default: key]
    #[arg(long, value_name = "ORDER", value_parser = order)]
    pub(crate) order: Option<OrderBy>,
    /// Pass over events that were inserted before this time, such as 2026-01-31T08:00:00Z
    #[arg(long, value_name = "TIME", value_parser = units::time)]
    pub(crate) since: Option<i64>,
    /// Pass over events that were inserted at this time or later
    #[arg(long, value_name = "TIME", value_parser = units::time)]
    pub(crate) until: Option<i64>,
    /// Compress payloads: gzip or zstd, as the header content-encoding says [default: as they are]
    #[arg(long, value_name = "FORMAT", value_parser = compression)]
    pub(crate) compression: Option<Compression>,
    /// Smaller payloads are not compressed [default: 1KiB]
    #[arg(long, value_name = "SIZE", value_parser = units::size)]
    pub(crate) compression_bytes_min: Option<usize>,
    /// Put large payloads into object storage before their events are sent, such as
    /// s3://BUCKET/PREFIX or file:///FOLDER [default: they stay in their records]
    #[arg(long, value_name = "URL")]
    pub(crate) claim_check: Option<SecretUrl>,
    /// Larger payloads are put there [default: 256KiB, or the largest that the sink takes]
    #[arg(long, value_name = "SIZE", value_parser = units::size)]
    pub(crate) claim_check_bytes: Option<usize>,
    /// Check payloads against the schemas of this registry, and give them its wire format, such as
    /// https://USER:PASSWORD@HOST:8081 [default: they stay as they are]
    #[arg(long, value_name = "URL")]
    pub(crate) schema_registry: Option<SecretUrl>,
    /// The subject of an event's schema, of {topic} and {type} [default: {topic}-value]
    #[arg(long, value_name = "TEMPLATE")]
    pub(crate) schema_subject: Option<String>,
}

/// Keys of `[relay]`.
pub(super) const RELAY_KEYS: &[&str] = &[
    "name",
    "max_partitions",
    "lease",
    "publish_timeout",
    "margin",
    "settle",
    "batch_events",
    "batch_size",
    "window_events",
    "window_size",
    "poll_busy",
    "poll_idle",
    "shutdown_timeout",
    "log",
    "http",
    "http_allow_remote",
];

impl RelayTuning {
    pub(super) fn read(section: &Section<'_, '_>) -> Result<Self, ConfigError> {
        Ok(Self {
            name: section.text("name")?.map(str::to_owned),
            max_partitions: section.integer("max_partitions", 1..=PARTITIONS_MAX)?,
            lease: section.duration("lease")?,
            publish_timeout: section.duration("publish_timeout")?,
            margin: section.duration("margin")?,
            settle: section.duration("settle")?,
            batch_events: section.integer("batch_events", 1..=u32::MAX)?,
            batch_size: section.size("batch_size")?,
            window_events: section.integer("window_events", 1..=u32::MAX)?,
            window_size: section.size("window_size")?,
            poll_busy: section.duration("poll_busy")?,
            poll_idle: section.duration("poll_idle")?,
            shutdown_timeout: section.duration("shutdown_timeout")?,
            log: section.choice(
                "log",
                &[("text", LogFormat::Text), ("json", LogFormat::Json)],
            )?,
            http: section.parsed("http", http::address)?,
            http_allow_remote: section.flag("http_allow_remote")?.unwrap_or_default(),
        })
    }

    /// These settings, and where they are silent, those below.
    pub(super) fn over(&self, below: &Self) -> Self {
        Self {
            name: self.name.clone().or_else(|| below.name.clone()),
            max_partitions: self.max_partitions.or(below.max_partitions),
            lease: self.lease.or(below.lease),
            publish_timeout: self.publish_timeout.or(below.publish_timeout),
            margin: self.margin.or(below.margin),
            settle: self.settle.or(below.settle),
            batch_events: self.batch_events.or(below.batch_events),
            batch_size: self.batch_size.or(below.batch_size),
            window_events: self.window_events.or(below.window_events),
            window_size: self.window_size.or(below.window_size),
            poll_busy: self.poll_busy.or(below.poll_busy),
            poll_idle: self.poll_idle.or(below.poll_idle),
            shutdown_timeout: self.shutdown_timeout.or(below.shutdown_timeout),
            log: self.log.or(below.log),
            http: self.http.or(below.http),
            http_allow_remote: self.http_allow_remote || below.http_allow_remote,
        }
    }

    /// Whether the numbers agree with each other.
    pub(super) fn check(&self) -> Result<(), String> {
        // Below this a scheduler's hiccup or a slow commit costs the lease.
        const LEASE_MIN: Duration = Duration::from_secs(1);
        if self.lease.is_some_and(|lease| lease < LEASE_MIN) {
            return Err("the lease is shorter than 1s\nfix: give --lease 1s or more".to_owned());
        }
        let zero = |value: Option<Duration>| value == Some(Duration::ZERO);
        for (name, value) in [
            ("publish-timeout", self.publish_timeout),
            ("poll-busy", self.poll_busy),
            ("poll-idle", self.poll_idle),
        ] {
            if zero(value) {
                return Err(format!(
                    "--{name} must be longer than nothing\nfix: leave it out"
                ));
            }
        }
        if matches!((self.poll_busy, self.poll_idle), (Some(busy), Some(idle)) if busy > idle) {
            return Err("--poll-busy is longer than --poll-idle\nfix: swap them".to_owned());
        }
        match self.http.filter(|address| !address.ip().is_loopback()) {
            Some(address) if !self.http_allow_remote => Err(format!(
                "--http {address} can be reached from other machines, and there is no access \
                 control\nfix: give --http 127.0.0.1:{}, or --http-allow-remote if whoever reaches \
                 it may read the numbers, and errors that name brokers",
                address.port()
            )),
            None if self.http_allow_remote && self.http.is_none() => Err(
                "--http-allow-remote does nothing without --http\nfix: give --http ADDRESS:PORT \
                 too, or leave it out"
                    .to_owned(),
            ),
            _ => Ok(()),
        }
    }
}

/// Keys of `[destinations.NAME]`.
pub(super) const DESTINATION_KEYS: &[&str] = &[
    "url",
    "start",
    "topic",
    "key",
    "attempts",
    "backoff",
    "backoff_max",
    "backoff_jitter",
    "on_dead",
    "order",
    "since",
    "until",
    "compression",
    "compression_bytes_min",
    "claim_check",
    "claim_check_bytes",
    "schema_registry",
    "schema_subject",
];

impl DestinationTuning {
    pub(super) fn read(section: &Section<'_, '_>) -> Result<Self, ConfigError> {
        Ok(Self {
            attempts: section.integer("attempts", 1..=u32::MAX)?,
            backoff: section.duration("backoff")?,
            backoff_max: section.duration("backoff_max")?,
            backoff_jitter: section.integer("backoff_jitter", 0..=100)?,
            on_dead: section.parsed("on_dead", on_dead)?,
            order: section.parsed("order", order)?,
            since: section.parsed("since", units::time)?,
            until: section.parsed("until", units::time)?,
            compression: section.parsed("compression", compression)?,
            compression_bytes_min: section.size("compression_bytes_min")?,
            claim_check: section.optional_url("claim_check")?,
            claim_check_bytes: section.size("claim_check_bytes")?,
            schema_registry: section.optional_url("schema_registry")?,
            schema_subject: section.text("schema_subject")?.map(str::to_owned),
        })
    }

    /// These settings, and where they are silent, those below.
    pub(super) fn over(&self, below: &Self) -> Self {
        Self {
            attempts: self.attempts.or(below.attempts),
            backoff: self.backoff.or(below.backoff),
            backoff_max: self.backoff_max.or(below.backoff_max),
            backoff_jitter: self.backoff_jitter.or(below.backoff_jitter),
            on_dead: self.on_dead.or(below.on_dead),
            order: self.order.or(below.order),
            since: self.since.or(below.since),
            until: self.until.or(below.until),
            compression: self.compression.or(below.compression),
            compression_bytes_min: self.compression_bytes_min.or(below.compression_bytes_min),
            claim_check: self
                .claim_check
                .clone()
                .or_else(|| below.claim_check.clone()),
            claim_check_bytes: self.claim_check_bytes.or(below.claim_check_bytes),
            schema_registry: self
                .schema_registry
                .clone()
                .or_else(|| below.schema_registry.clone()),
            schema_subject: self
                .schema_subject
                .clone()
                .or_else(|| below.schema_subject.clone()),
        }
    }

    /// Whether the numbers agree with each other.
    pub(super) fn check(&self) -> Result<(), String> {
        if self.backoff == Some(Duration::ZERO) {
            return Err("the backoff must be longer than nothing\nfix: leave it out".to_owned());
        }
        if matches!((self.backoff, self.backoff_max), (Some(first), Some(max)) if first > max) {
            return Err("backoff is longer than backoff_max\nfix: swap them".to_owned());
        }
        if matches!((self.since, self.until), (Some(since), Some(until)) if since >= until) {
            return Err(
                "no event is inserted since `since` and before `until`\nfix: give a \
                        later `until`"
                    .to_owned(),
            );
        }
        Ok(())
    }

    /// The time in which its events were inserted.
    pub(crate) fn inserted(&self) -> Range<i64> {
        self.since.unwrap_or(i64::MIN)..self.until.unwrap_or(i64::MAX)
    }

    /// The settings of payloads.
    pub(crate) fn payloads(&self) -> PayloadSettings {
        let exposed = |url: &Option<SecretUrl>| url.as_ref().map(|url| url.expose().to_owned());
        PayloadSettings {
            compression: self.compression,
            compression_bytes_min: self.compression_bytes_min,
            claim_check: exposed(&self.claim_check),
            claim_check_bytes: self.claim_check_bytes,
            schema_registry: exposed(&self.schema_registry),
            schema_subject: self.schema_subject.clone(),
        }
    }
}

/// Parses what becomes of a dead event's key.
pub(super) fn on_dead(text: &str) -> Result<OnDead, String> {
    choose(text, &[("block", OnDead::Block), ("skip", OnDead::Skip)])
}

/// Parses what order is kept by.
pub(super) fn order(text: &str) -> Result<OrderBy, String> {
    choose(
        text,
        &[OrderBy::Key, OrderBy::KeyAndTopic].map(|order| (order.as_str(), order)),
    )
}

/// Parses a format of compressed payloads.
fn compression(text: &str) -> Result<Compression, String> {
    choose(text, &Compression::ALL)
}

/// Parses where a new destination starts.
pub(crate) fn start(text: &str) -> Result<Start, String> {
    choose(text, &[("oldest", Start::Oldest), ("now", Start::Now)])
}
