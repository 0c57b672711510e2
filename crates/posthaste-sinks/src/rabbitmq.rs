//! The sink that publishes to RabbitMQ, over AMQP 0-9-1.

mod beside;
mod fault;
#[cfg(test)]
mod fuzz;
mod lane;
mod limits;
mod message;

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use posthaste_engine::{
    CheckReport, Fact, FenceKind, KeyOrder, Lane, LaneSpec, Sink, SinkError, SinkInfo,
};
use tokio::time::timeout;

use crate::{
    address::{Address, authority::Host},
    amqp::{Connection, Login, Timing},
    descriptors::rabbitmq::{CA_FILE, CERT_FILE, EVENT_BYTES_MAX, EXCHANGE, KEY_FILE, RABBITMQ},
    publisher::WorkerLane,
    transport::{OPEN_LIMIT, Tls, first_of, open_limit},
};

use beside::{BesideConnections, Doubts};
use fault::BrokerFault;
use lane::{Connections, RabbitMqPublisher};
use limits::SizeLimit;
use message::Channel;

/// The protocol's limit for names.
const NAME_BYTES_MAX: usize = 255;

/// Publishes each record to an exchange and accepts it once the broker has confirmed it.
pub struct RabbitMqSink {
    endpoint: Arc<Endpoint>,
    /// The address's.
    event_bytes_max: Option<u64>,
    limit: Arc<SizeLimit>,
    doubts: Arc<Doubts>,
}

/// The servers, the login and the exchange. It has no `Debug`: it holds a password.
struct Endpoint {
    hosts: Vec<Host>,
    login: Login,
}

impl Endpoint {
    fn default_port(&self) -> u16 {
        if self.login.tls.is_some() { 5671 } else { 5672 }
    }

    /// Its name in errors.
    fn target(&self) -> String {
        let hosts: Vec<String> = self
            .hosts
            .iter()
            .map(|host| host.with_default_port(self.default_port()))
            .collect();
        let hosts = hosts.join(",");
        format!(
            "rabbitmq {hosts}, vhost `{}`, exchange `{}`",
            self.login.vhost, self.login.exchange
        )
    }

    async fn connect(&self, limit: Duration, timing: Timing) -> Result<Connection, SinkError> {
        let Self { hosts, login } = self;
        let port = self.default_port();
        let opened = first_of(hosts, port, limit, |name, address| async move {
            Connection::open(login, name, &address, timing).await
        });
        let opened = opened.await.map_err(BrokerFault::from);
        opened.map_err(|fault| fault.into_error(self.target()))
    }

    /// A connection to publish on.
    async fn open(&self, spec: &LaneSpec) -> Result<Channel, SinkError> {
        let connection = self.connect(open_limit(spec), timing(spec)).await?;
        Ok(Channel::new(connection, confirm_limit(spec)))
    }
}

impl RabbitMqSink {
    pub(crate) fn from_address(address: &Address) -> Result<Self, SinkError> {
        address.check(&RABBITMQ.plug_in)?;
        let authority = address.authority()?;
        let (user, password) = match authority.user {
            Some(user) => (user.name, user.password.unwrap_or_default()),
            // The broker's own default, which it lets in from its own machine only.
            None => ("guest".to_owned(), "guest".to_owned()),
        };
        let vhost = match authority.path {
            None => "/".to_owned(),
            Some(path) if path.is_empty() => "/".to_owned(),
            Some(path) => String::from_utf8(path)
                .map_err(|_| address.misconfigured("the vhost is not UTF-8".to_owned()))?,
        };
        let exchange = address.text(&EXCHANGE).ok_or_else(|| {
            address.misconfigured(
                "it names no exchange; add `?exchange=NAME` (`?exchange=` alone is the default \
                 exchange, where a topic is the name of a queue)"
                    .to_owned(),
            )
        })?;
        for (what, name) in [("vhost", &*vhost), ("exchange", exchange)] {
            if name.len() > NAME_BYTES_MAX {
                return Err(address.misconfigured(format!(
                    "the {what}'s name has more than {NAME_BYTES_MAX} bytes"
                )));
            }
        }
        Ok(Self {
            endpoint: Arc::new(Endpoint {
                hosts: authority.hosts,
                login: Login {
                    tls: tls(address)?,
                    user,
                    password,
                    vhost,
                    exchange: exchange.into(),
                },
            }),
            event_bytes_max: address.number(&EVENT_BYTES_MAX)?,
            limit: Arc::default(),
            doubts: Arc::default(),
        })
    }

    /// A passive look shows that the exchange is there. Its type, its bindings and their queues the
    /// protocol does not tell.
    fn report(&self, connection: &Connection) -> CheckReport {
        let mut report = CheckReport::default();
        let (frame_max, heartbeat) = connection.agreed();
        let facts = vec![
            Fact::seen("frame_max", frame_max),
            Fact::seen("heartbeat", format!("{heartbeat:?}")),
        ];
        report.part("vhost", &*self.endpoint.login.vhost, facts);
        let exchange = match &*self.endpoint.login.exchange {
            "" => "the default exchange",
            name => name,
        };
        let unseen = ["type", "queues"].map(|name| Fact::new(name, None::<&str>));
        report.part("exchange", exchange, unseen.to_vec());
        report
    }
}

fn timing(spec: &LaneSpec) -> Timing {
    // The broker gives up a silent client after two heartbeats, which must be well within the
    // lease.
    let heartbeat = u16::try_from(spec.lease.as_secs() / 4).unwrap_or(u16::MAX);
    Timing {
        heartbeat: heartbeat.max(1),
        patience: spec.publish_timeout,
    }
}

/// How long a confirm may take: a little less than what the relay waits for any answer, since the
/// relay could not say what is missing.
fn confirm_limit(spec: &LaneSpec) -> Duration {
    spec.publish_timeout * 9 / 10
}

fn tls(address: &Address) -> Result<Option<Tls>, SinkError> {
    let is_asked = address.scheme() == "amqps";
    let files = [&CA_FILE, &CERT_FILE, &KEY_FILE];
    let with = "write `amqps:` instead of `amqp:`";
    Tls::of(address, files, is_asked, with, "write `amqp://`")
}

#[async_trait]
impl Sink for RabbitMqSink {
    fn info(&self) -> SinkInfo {
        SinkInfo {
            kind: "rabbitmq",
            batch_events_max: 1_000,
            batch_bytes_max: 1 << 20,
            // Twice the window of confirms and more, so that a lane never waits for the relay.
            in_flight_events_max: 10_000,
            event_bytes_max: self.event_bytes_max,
            requests_max: None,
            deduplication: None,
            // A message that is returned or refused does not stop those behind it.
            key_order: KeyOrder::OneAtATime,
            fence: FenceKind::Timing,
            single_lane: false,
            parts: None,
        }
    }

    async fn check(&self) -> Result<CheckReport, SinkError> {
        let timing = Timing {
            heartbeat: 10,
            patience: OPEN_LIMIT,
        };
        let mut connection = self.endpoint.connect(OPEN_LIMIT, timing).await?;
        // The answer is known; a broker that dies now will be noticed by the next check.
        let _ = timeout(OPEN_LIMIT, connection.goodbye()).await;
        Ok(self.report(&connection))
    }

    async fn open_lane(&self, spec: LaneSpec) -> Result<Box<dyn Lane>, SinkError> {
        let connections = Connections {
            channel: self.endpoint.open(&spec).await?,
            beside: BesideConnections::new(&self.endpoint, spec, &self.doubts),
        };
        Ok(Box::new(WorkerLane::spawn(RabbitMqPublisher {
            connections: Some(connections),
            exchange: Arc::clone(&self.endpoint.login.exchange),
            value_bytes_max: self.event_bytes_max,
            limit: Arc::clone(&self.limit),
            error: None,
            ended: None,
        })))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sink(url: &str) -> Result<RabbitMqSink, SinkError> {
        RabbitMqSink::from_address(&Address::parse(url)?)
    }

    #[test]
    fn addresses_name_a_place() {
        for (url, target, user) in [
            (
                "amqp://host?exchange=x",
                "rabbitmq host:5672, vhost `/`, exchange `x`",
                "guest:guest",
            ),
            (
                "amqps://a,b:7/?exchange=",
                "rabbitmq a:5671,b:7, vhost `/`, exchange ``",
                "guest:guest",
            ),
            (
                "amqp://u%40:p%2F@[::1]/%2Fv%25?exchange=a%26b",
                "rabbitmq [::1]:5672, vhost `/v%`, exchange `a&b`",
                "u@:p/",
            ),
        ] {
            let endpoint = sink(url).ok().unwrap().endpoint;
            assert_eq!(endpoint.target(), target);
            let login = &endpoint.login;
            assert_eq!(format!("{}:{}", login.user, login.password), user);
        }
    }

    #[test]
    fn wrong_addresses_name_the_fix() {
        let long = format!("amqp://h?exchange={}", "x".repeat(256));
        for (url, fix) in [
            ("amqp://host", "?exchange=NAME"),
            ("amqp://host?exchang=x", "did you mean `exchange`"),
            ("amqp://?exchange=x", "a host is"),
            ("amqp://h?exchange=x&ca_file=/x", "write `amqps:`"),
            ("amqps://h?exchange=x&key_file=/x", "belong together"),
            ("amqp://h?exchange=x&max_event_bytes=0", "at least 1"),
            ("amqp://h/%FF?exchange=x", "not UTF-8"),
            (&long, "255 bytes"),
        ] {
            let error = sink(url).err().unwrap();
            assert!(matches!(error, SinkError::Misconfigured { .. }), "{url}");
            assert!(error.to_string().contains(fix), "{url}: {error}");
        }
    }

    #[test]
    fn heartbeats_are_a_fraction_of_the_lease() {
        for (lease, heartbeat) in [(15, 3), (60, 15), (2, 1), (10_000_000, u16::MAX)] {
            let spec = LaneSpec {
                publish_timeout: Duration::from_secs(1),
                lease: Duration::from_secs(lease),
                ..posthaste_testkit::sink_suite::lane_spec(1)
            };
            assert_eq!(timing(&spec).heartbeat, heartbeat);
            assert_eq!(open_limit(&spec), Duration::from_millis(500));
        }
    }
}
