//! The sink that publishes to brokers of MQTT 5 and 3.1.1.
//!
//! Of what the protocol does not tell nothing is promised: whether anybody has subscribed (MQTT 5
//! may tell), whether an accepted message is on a disk, and, with 3.1.1, whether a message that was
//! acknowledged was thrown away for want of a right.

mod client;
mod fault;
mod fence;
#[cfg(test)]
mod fuzz;
mod lane;
mod message;
mod survey;
mod topic;

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use posthaste_engine::{
    CheckReport, FenceKind, KeyOrder, Lane, LaneSpec, Sink, SinkError, SinkInfo,
};
use tokio::time::timeout;

use crate::{
    address::{Address, authority::Host},
    descriptors::mqtt::{
        CA_FILE, CERT_FILE, EVENT_BYTES_MAX, FORMAT, IN_FLIGHT_MAX, KEY_FILE, MQTT, QOS,
        REQUIRE_SUBSCRIBERS, RETAIN, SOURCE, TOPIC, VERSION,
    },
    publisher::WorkerLane,
    transport::{OPEN_LIMIT, Tls, first_of, open_limit},
};

use client::{ClientError, ClientIdentity, Connection, Login, Patience, Publishing, Qos, Version};
use fault::BrokerFault;
use fence::{FencedLane, client_id, unused_client_id};
use lane::{MqttPublisher, Target};
use message::Format;
use topic::TopicPattern;

/// Messages of a lane that wait for an answer or for room. Many brokers take 20 at a time: at 150
/// milliseconds each, so many are answered within the publish time-out. More would wait here, while
/// the time for their answer runs.
const IN_FLIGHT_EVENTS_MAX: u16 = 512;
/// Messages without an answer for a broker of 3.1.1, which cannot say: mosquitto's own default.
const IN_FLIGHT_UNTOLD: u16 = 20;

/// Publishes each record to a topic, and accepts it once the broker has taken it.
pub struct MqttSink {
    endpoint: Arc<Endpoint>,
    target: Arc<Target>,
    /// Messages without an answer at the most.
    window: u16,
}

/// The servers and the login. It has no `Debug`: it holds a password.
struct Endpoint {
    hosts: Vec<Host>,
    login: Login,
}

impl Endpoint {
    fn default_port(&self) -> u16 {
        match self.login.tls {
            Some(_) => 8883,
            None => 1883,
        }
    }

    /// Its name in errors.
    fn name(&self) -> String {
        format!("mqtt {}", self.addresses())
    }

    fn addresses(&self) -> String {
        let hosts = self.hosts.iter();
        let hosts: Vec<_> = hosts
            .map(|host| host.with_default_port(self.default_port()))
            .collect();
        hosts.join(",")
    }

    async fn connect(
        &self,
        identity: &ClientIdentity,
        limit: Duration,
        patience: Duration,
    ) -> Result<Connection, ClientError> {
        let port = self.default_port();
        first_of(&self.hosts, port, limit, |name, address| async move {
            Connection::open(&self.login, identity, name, &address, patience).await
        })
        .await
    }
}

impl MqttSink {
    pub(crate) fn from_address(address: &Address) -> Result<Self, SinkError> {
        address.check(&MQTT.plug_in)?;
        let authority = address.authority()?;
        if authority.path.is_some_and(|path| !path.is_empty()) {
            let reason = "nothing stands behind the servers' `/`; the topic is an option";
            return Err(address.misconfigured(reason.to_owned()));
        }
        let user = authority.user.map(|user| (user.name, user.password));
        let version = match address.text(&VERSION) {
            Some("3.1.1") => Version::V3,
            _ => Version::V5,
        };
        let window = address.number(&IN_FLIGHT_MAX)?;
        let window = window.map(|count| u16::try_from(count).unwrap_or(u16::MAX));
        let window = window.map(|count| count.min(IN_FLIGHT_EVENTS_MAX));
        let untold = match version {
            Version::V5 => IN_FLIGHT_EVENTS_MAX,
            Version::V3 => IN_FLIGHT_UNTOLD,
        };
        Ok(Self {
            target: Arc::new(target(address, version)?),
            endpoint: Arc::new(Endpoint {
                hosts: authority.hosts,
                login: Login {
                    version,
                    user,
                    tls: tls(address)?,
                },
            }),
            window: window.unwrap_or(untold),
        })
    }

    async fn look(&self) -> Result<CheckReport, BrokerFault> {
        // Not under the id of a lane, which would end it.
        let identity = ClientIdentity {
            client_id: unused_client_id(),
            keep_alive: 10,
        };
        let opened = self.endpoint.connect(&identity, OPEN_LIMIT, OPEN_LIMIT);
        let mut connection = opened.await?;
        survey::expect_fit(&connection, &self.target)?;
        let asked = timeout(OPEN_LIMIT, connection.ping()).await;
        asked.map_err(|_| BrokerFault::slow("asking whether it is there", OPEN_LIMIT))??;
        let report = survey::report(&connection, self.endpoint.addresses());
        // The answer is known; a broker that dies now will be noticed by the next check.
        let _ = timeout(OPEN_LIMIT, connection.goodbye()).await;
        Ok(report)
    }
}

fn target(address: &Address, version: Version) -> Result<Target, SinkError> {
    let refuse = |reason: &str| Err(address.misconfigured(reason.to_owned()));
    let is = |option| address.text(option) == Some("true");
    let format = match (address.text(&FORMAT), version) {
        (Some("raw"), Version::V3) => {
            return refuse(
                "MQTT 3.1.1 has no properties, where `format=raw` puts an event's id and key; \
                 leave out `format`",
            );
        }
        (Some("structured"), _) | (None, Version::V3) => Format::Structured {
            source: address.text(&SOURCE).unwrap_or_default().to_owned(),
        },
        _ => Format::Raw,
    };
    if format == Format::Raw && address.given(&SOURCE).is_some() {
        return refuse("`source` is of CloudEvents; add `format=structured`");
    }
    let qos = match address.text(&QOS) {
        Some("2") => Qos::ExactlyOnce,
        _ => Qos::AtLeastOnce,
    };
    let require_subscribers = is(&REQUIRE_SUBSCRIBERS);
    if require_subscribers && (version, qos) != (Version::V5, Qos::AtLeastOnce) {
        return refuse(
            "`require_subscribers=true` needs MQTT 5 and `qos=1`: elsewhere a broker may not say \
             that nobody has subscribed",
        );
    }
    Ok(Target {
        topic: TopicPattern::new(address.text(&TOPIC).unwrap_or_default())
            .map_err(|reason| address.misconfigured(reason))?,
        qos,
        retain: is(&RETAIN),
        format,
        require_subscribers,
        event_bytes_max: address.number(&EVENT_BYTES_MAX)?,
    })
}

fn tls(address: &Address) -> Result<Option<Tls>, SinkError> {
    let is_asked = address.scheme() == "mqtts";
    let files = [&CA_FILE, &CERT_FILE, &KEY_FILE];
    let with = "write `mqtts:` instead of `mqtt:`";
    Tls::of(address, files, is_asked, with, "write `mqtt://`")
}

fn patience(spec: &LaneSpec) -> Patience {
    Patience {
        // A little less than the relay waits for any answer: it could not say what is missing.
        answer: spec.publish_timeout * 9 / 10,
        // Two of them must be well within the lease.
        silence: spec.lease / 4,
    }
}

/// A broker ends the connection of a client that is silent for half as much again, which must be
/// well within the lease.
fn keep_alive(spec: &LaneSpec) -> u16 {
    let seconds = u16::try_from(spec.lease.as_secs() / 4);
    seconds.unwrap_or(u16::MAX).max(1)
}

#[async_trait]
impl Sink for MqttSink {
    fn info(&self) -> SinkInfo {
        SinkInfo {
            kind: "mqtt",
            batch_events_max: 256,
            batch_bytes_max: 1 << 20,
            in_flight_events_max: IN_FLIGHT_EVENTS_MAX.into(),
            event_bytes_max: self.target.event_bytes_max,
            requests_max: None,
            deduplication: None,
            // A broker that refuses a message takes those behind it.
            key_order: KeyOrder::OneAtATime,
            // Not every broker has let go of the older connection when it answers the newer one.
            fence: FenceKind::Timing,
            single_lane: false,
            parts: None,
        }
    }

    async fn check(&self) -> Result<CheckReport, SinkError> {
        let looked = self.look().await;
        looked.map_err(|fault| fault.into_error(self.endpoint.name()))
    }

    async fn open_lane(&self, spec: LaneSpec) -> Result<Box<dyn Lane>, SinkError> {
        let identity = ClientIdentity {
            client_id: client_id(&spec.scope, spec.scope.registration),
            keep_alive: keep_alive(&spec),
        };
        let limit = open_limit(&spec);
        let opened = self
            .endpoint
            .connect(&identity, limit, spec.publish_timeout);
        let opened = opened.await.map_err(BrokerFault::from);
        let fitting = opened.and_then(|connection| {
            survey::expect_fit(&connection, &self.target)?;
            Ok(connection)
        });
        let connection = fitting.map_err(|fault| fault.into_error(self.endpoint.name()))?;
        let publishing = Publishing::new(connection, patience(&spec), self.window);
        let publisher = MqttPublisher::new(publishing, Arc::clone(&self.target));
        Ok(Box::new(FencedLane {
            lane: WorkerLane::spawn(publisher),
            endpoint: Arc::clone(&self.endpoint),
            scope: spec.scope,
            keep_alive: identity.keep_alive,
            limit,
        }))
    }
}

#[cfg(test)]
mod tests {
    use posthaste_testkit::sink_suite::{impatient, lane_spec};

    use super::*;

    fn sink(url: &str) -> Result<MqttSink, SinkError> {
        MqttSink::from_address(&Address::parse(url)?)
    }

    #[test]
    fn addresses_name_servers_login_and_topic() {
        let sink = sink("mqtt://me:p%40ss@a,b:7/?topic=x/{topic}&qos=2&retain=true")
            .ok()
            .unwrap();
        assert_eq!(sink.endpoint.name(), "mqtt a:1883,b:7");
        let user = ("me".to_owned(), Some("p@ss".to_owned()));
        assert_eq!(sink.endpoint.login.user, Some(user));
        let target = &sink.target;
        assert_eq!(target.topic.name("t"), Ok("x/t".to_owned()));
        assert_eq!((target.qos, target.retain), (Qos::ExactlyOnce, true));
        assert_eq!((&target.format, sink.window), (&Format::Raw, 512));
        let other = super::tests::sink("mqtts://u@[::1]?version=3.1.1")
            .ok()
            .unwrap();
        assert_eq!(other.endpoint.name(), "mqtt [::1]:8883");
        assert_eq!(other.endpoint.login.user, Some(("u".to_owned(), None)));
        let source = "posthaste".to_owned();
        assert_eq!(other.target.format, Format::Structured { source });
        assert_eq!((other.target.qos, other.window), (Qos::AtLeastOnce, 20));
    }

    #[test]
    fn wrong_addresses_name_the_fix() {
        for (url, fix) in [
            ("mqtt://", "a host is"),
            ("mqtt://h/orders", "the topic is an option"),
            ("mqtt://h?topc=t", "did you mean `topic`"),
            ("mqtt://h?topic={key}", "`{topic}` alone"),
            ("mqtt://h?topic=a/%23", "wildcard"),
            ("mqtt://h?topic=/a", "at an end"),
            ("mqtt://h?qos=0", "`qos` is one of 1, 2"),
            ("mqtt://h?version=4", "`version` is one of 5, 3.1.1"),
            ("mqtt://h?version=3.1.1&format=raw", "leave out `format`"),
            ("mqtt://h?source=x", "add `format=structured`"),
            ("mqtt://h?max_in_flight=0", "at least 1"),
            ("mqtt://h?max_event_bytes=0", "at least 1"),
            ("mqtt://h?qos=2&require_subscribers=true", "`qos=1`"),
            ("mqtt://h?version=3.1.1&require_subscribers=true", "MQTT 5"),
            ("mqtt://h?ca_file=/x", "write `mqtts:`"),
            ("mqtts://h?key_file=/x", "belong together"),
        ] {
            let error = sink(url).err().unwrap();
            assert!(matches!(error, SinkError::Misconfigured { .. }), "{url}");
            assert!(error.to_string().contains(fix), "{url}: {error}");
        }
    }

    #[test]
    fn a_silent_side_is_noticed_within_the_lease() {
        let spec = impatient(lane_spec(1));
        let patience = patience(&spec);
        assert_eq!(patience.answer, Duration::from_millis(4_500));
        assert_eq!(patience.silence, Duration::from_millis(3_750));
        for (lease, seconds) in [(15, 3), (60, 15), (2, 1), (10_000_000, u16::MAX)] {
            let spec = LaneSpec {
                lease: Duration::from_secs(lease),
                ..spec.clone()
            };
            assert_eq!(keep_alive(&spec), seconds);
        }
    }
}
