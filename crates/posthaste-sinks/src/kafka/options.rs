//! The options of an address, as settings of the client.

use std::time::Duration;

use posthaste_engine::{Outcome, Record, RejectionKind, SinkError};
use rdkafka::{ClientConfig, config::RDKafkaLogLevel};

use super::{batch_limits::BATCH_BYTES_MAX, topic_names};
use crate::{
    address::{Address, authority::User},
    descriptors::kafka::{
        CA_FILE, CERT_FILE, CLIENT_ID, COMPRESSION, DELIVERY, KAFKA, KEY_FILE, LINGER,
        PROGRESS_TOPIC, PROGRESS_TOPIC_DEFAULT, SASL, TLS, TRANSACTIONAL,
    },
};

const DEFAULT_PORT: u16 = 9092;

/// The client's names for the ways to log in.
const MECHANISMS: [(&str, &str); 3] = [
    ("plain", "PLAIN"),
    ("scram-sha-256", "SCRAM-SHA-256"),
    ("scram-sha-512", "SCRAM-SHA-512"),
];

/// Above what any broker takes: the broker's limit decides, and it counts after compression.
const EVENT_BYTES_MAX: &str = "100000000";
/// The client refuses to be given more than this; one event of the size above must fit. The
/// number of events bounds memory, since headers and bookkeeping are not counted here.
const QUEUE_KBYTES_MAX: &str = "131072";
/// When a refused batch names no record, each of its records is sent again alone: that must be
/// possible within one publish time-out.
const BATCH_EVENTS_MAX: &str = "1000";

/// Requests under way to a broker. With more, the client cannot keep the order of an idempotent
/// producer.
pub(super) const REQUESTS_MAX: u32 = 5;

/// Where the cluster is, and how to speak to it. It has no `Debug`: it holds the password.
pub(super) struct Settings {
    /// Names the cluster in errors: `kafka://host:9092`, without user and password.
    pub(super) target: String,
    context: ClientConfig,
    compression: String,
    linger: Duration,
    /// Where progress is kept; none: delivery without transactions.
    pub(super) progress_topic: Option<String>,
}

impl Settings {
    /// The rejection of an event that would be written where progress is kept: the next owner would
    /// read it as progress. Without transactions that is where other relays keep theirs,
    /// unless they were told another topic.
    pub(super) fn refuse_progress_topic(&self, record: &Record) -> Option<Outcome> {
        let kept = self
            .progress_topic
            .as_deref()
            .unwrap_or(PROGRESS_TOPIC_DEFAULT);
        (record.topic() == kept).then(|| {
            let reason = format!(
                "topic `{kept}` is where Posthaste keeps the progress of its transactions: publish \
                 the event to another topic"
            );
            Outcome::rejected(RejectionKind::Invalid, reason)
        })
    }
}

impl Settings {
    /// # Errors
    /// [`SinkError::Misconfigured`] with the fix.
    pub(super) fn from_address(address: &Address) -> Result<Self, SinkError> {
        address.check(&KAFKA.plug_in)?;
        let authority = address.authority()?;
        if authority.path.is_some_and(|path| !path.is_empty()) {
            return Err(address.misconfigured(
                "it takes no path: an event's topic is its own; write `kafka://HOST:PORT`"
                    .to_owned(),
            ));
        }
        let servers: Vec<String> = authority
            .hosts
            .iter()
            .map(|host| host.with_default_port(DEFAULT_PORT))
            .collect();
        let servers = servers.join(",");
        let mut context = ClientConfig::new();
        context
            .set("bootstrap.servers", &servers)
            .set("client.id", address.text(&CLIENT_ID).unwrap_or_default())
            // Reconnecting must not outlast the outage by much.
            .set("reconnect.backoff.max.ms", "500")
            .set("socket.keepalive.enable", "true")
            .set_log_level(RDKafkaLogLevel::Info);
        let tls = set_tls(&mut context, address)?;
        let login = set_login(&mut context, address, authority.user.as_ref(), tls)?;
        let protocol = match (tls.unwrap_or(false), login) {
            (false, false) => "plaintext",
            (true, false) => "ssl",
            (false, true) => "sasl_plaintext",
            (true, true) => "sasl_ssl",
        };
        context.set("security.protocol", protocol);
        let compression = address.text(&COMPRESSION).unwrap_or_default();
        Ok(Self {
            target: format!("kafka://{servers}"),
            context,
            compression: compression.to_owned(),
            linger: address.duration(&LINGER)?.unwrap_or_default(),
            progress_topic: progress_topic(address)?,
        })
    }

    /// For looking only: nothing is ever sent through it.
    pub(super) fn probe(&self) -> ClientConfig {
        self.context.clone()
    }

    /// For a lane.
    pub(super) fn producer(&self) -> ClientConfig {
        let mut config = self.context.clone();
        config
            .set("enable.idempotence", "true")
            .set("acks", "all")
            .set(
                "max.in.flight.requests.per.connection",
                REQUESTS_MAX.to_string(),
            )
            // A batch that is refused for good ends the producer: what follows it is never
            // accepted.
            .set("enable.gapless.guarantee", "true")
            // Never: the client takes a message that timed out from the middle of the sequence,
            // starts a new epoch and sends what follows, so a later event of the key is accepted
            // although an earlier one was not, and `enable.gapless.guarantee` does not cover it. A
            // time-out here is always the whole lane's (`Client`).
            .set("message.timeout.ms", "0")
            .set("linger.ms", format!("{}", self.linger.as_secs_f64() * 1e3))
            .set("compression.type", &self.compression)
            .set("batch.size", BATCH_BYTES_MAX.to_string())
            .set("batch.num.messages", BATCH_EVENTS_MAX)
            .set("message.max.bytes", EVENT_BYTES_MAX)
            .set("queue.buffering.max.kbytes", QUEUE_KBYTES_MAX)
            .set("queue.buffering.max.messages", QUEUE_EVENTS_MAX);
        config
    }

    /// For a lane with transactions, under this id.
    pub(super) fn transactional(&self, id: &str, publish_timeout: Duration) -> ClientConfig {
        // Until then a dead relay's open transaction holds back consumers that read what is
        // committed. The client takes no less than a second.
        let limit = publish_timeout.max(Duration::from_secs(1)).as_millis();
        let mut config = self.producer();
        config
            .set("transactional.id", id)
            .set("transaction.timeout.ms", limit.to_string())
            // A gap is an end of the transaction, in which nothing counts then, and no end of the
            // producer.
            .set("enable.gapless.guarantee", "false");
        config
    }

    /// For reading the progress topic.
    pub(super) fn reader(&self, isolation: &str) -> ClientConfig {
        let mut config = self.context.clone();
        config
            // Partitions cannot even be assigned by hand without one; nobody joins it.
            .set("group.id", "posthaste")
            .set("enable.auto.commit", "false")
            .set("auto.offset.reset", "earliest")
            .set("isolation.level", isolation)
            .set("enable.partition.eof", "true")
            // Or the end of the topic is told half a second late.
            .set("fetch.wait.max.ms", "10");
        config
    }
}

/// Above `in_flight_events_max` of the sink, which the engine keeps.
const QUEUE_EVENTS_MAX: &str = "5000";

fn set_tls(config: &mut ClientConfig, address: &Address) -> Result<Option<bool>, SinkError> {
    let tls = address.given(&TLS).map(|word| word == "true");
    for (option, property) in [
        (CA_FILE, "ssl.ca.location"),
        (CERT_FILE, "ssl.certificate.location"),
        (KEY_FILE, "ssl.key.location"),
    ] {
        let Some(value) = address.given(&option) else {
            continue;
        };
        if tls != Some(true) {
            return Err(
                address.misconfigured(format!("`{}` has no use without `tls=true`", option.name))
            );
        }
        config.set(property, value);
    }
    if address.given(&CERT_FILE).is_some() != address.given(&KEY_FILE).is_some() {
        return Err(
            address.misconfigured("`cert_file` and `key_file` are needed together".to_owned())
        );
    }
    if tls == Some(true) && address.given(&CA_FILE).is_none() {
        // An OpenSSL that we carry looks in a folder of its own, where no system has any.
        if let Some(authorities) = system_authorities() {
            config.set("ssl.ca.location", authorities);
        }
    }
    Ok(tls)
}

/// A file, or else a folder, of the system's authorities, found as the sinks with rustls find it.
fn system_authorities() -> Option<String> {
    let found = openssl_probe::probe();
    let place = found
        .cert_file
        .or_else(|| found.cert_dir.into_iter().next())?;
    place.into_os_string().into_string().ok()
}

/// Whether we log in.
fn set_login(
    config: &mut ClientConfig,
    address: &Address,
    user: Option<&User>,
    tls: Option<bool>,
) -> Result<bool, SinkError> {
    let (user, mechanism) = match (user, address.given(&SASL)) {
        (None, None) => return Ok(false),
        (Some(user), Some(mechanism)) => (user, mechanism),
        (Some(_), None) => {
            let ways = MECHANISMS.map(|(word, _)| format!("`sasl={word}`"));
            return Err(address.misconfigured(format!(
                "a user needs a way to log in; add {}",
                ways.join(", ")
            )));
        }
        (None, Some(_)) => {
            return Err(address.misconfigured(
                "`sasl` needs a user; write `kafka://USER:PASSWORD@HOST:PORT`".to_owned(),
            ));
        }
    };
    let Some(password) = &user.password else {
        return Err(address.misconfigured(
            "the user has no password; write `kafka://USER:PASSWORD@HOST:PORT`".to_owned(),
        ));
    };
    if tls.is_none() {
        return Err(address.misconfigured(
            "user and password would travel unencrypted; add `tls=true`, or `tls=false` if that is \
             meant"
                .to_owned(),
        ));
    }
    let property = MECHANISMS
        .iter()
        .find(|(word, _)| *word == mechanism)
        .map_or(mechanism, |(_, property)| property);
    config
        .set("sasl.mechanism", property)
        .set("sasl.username", &user.name)
        .set("sasl.password", password);
    Ok(true)
}

fn progress_topic(address: &Address) -> Result<Option<String>, SinkError> {
    if address.text(&DELIVERY) != Some(TRANSACTIONAL) {
        return match address.given(&PROGRESS_TOPIC) {
            None => Ok(None),
            Some(_) => Err(address.misconfigured(format!(
                "`progress_topic` has no use without `delivery={TRANSACTIONAL}`"
            ))),
        };
    }
    let topic = address.text(&PROGRESS_TOPIC).unwrap_or_default();
    match topic_names::refuse_name(topic) {
        None => Ok(Some(topic.to_owned())),
        Some(reason) => Err(address.misconfigured(format!("`progress_topic`: {reason}"))),
    }
}

#[cfg(test)]
mod tests;
