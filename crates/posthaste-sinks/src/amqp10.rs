//! The sink that sends to brokers of AMQP 1.0, such as ActiveMQ Artemis and Azure Service Bus.

mod address_name;
mod client;
mod fault;
mod lane;
mod message;
mod survey;

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use posthaste_engine::{
    CheckReport, FenceKind, KeyOrder, Lane, LaneSpec, Sink, SinkError, SinkInfo,
};

use crate::{
    address::{Address, authority::Host},
    descriptors::amqp10::{AMQP10, CA_FILE, CERT_FILE, GROUP_ID, KEY_FILE, KIND, PARTITION_KEY},
    publisher::WorkerLane,
    transport::{OPEN_LIMIT, Tls, first_of, open_limit},
};

use address_name::AddressPattern;
use client::{Connection, Login, Patience, Session, Timing};
use fault::{BrokerFault, Refusal, Told};
use lane::{AmqpPublisher, Target};
use message::MessageOptions;

/// Sends each record to an address of the broker, and accepts it once the broker has.
pub struct Amqp10Sink {
    hosts: Vec<Host>,
    login: Login,
    target: Arc<Target>,
}

impl Amqp10Sink {
    pub(crate) fn from_address(address: &Address) -> Result<Self, SinkError> {
        address.check(&AMQP10.plug_in)?;
        let authority = address.authority()?;
        let path = String::from_utf8(authority.path.unwrap_or_default());
        let path = path.map_err(|_| {
            address.misconfigured("the address at the broker is not UTF-8".to_owned())
        })?;
        let addresses =
            AddressPattern::new(&path).map_err(|fault| address.misconfigured(fault.to_owned()))?;
        let options = MessageOptions {
            has_group: address.text(&GROUP_ID) == Some("key"),
            has_partition_key: address.text(&PARTITION_KEY) == Some("true"),
        };
        if options.has_partition_key && !options.has_group {
            let reason = "`partition_key=true` is the group id's, and `group_id=none` has none";
            return Err(address.misconfigured(reason.to_owned()));
        }
        let kind = match address.text(&KIND) {
            Some("queue") => Some("queue"),
            Some("topic") => Some("topic"),
            _ => None,
        };
        let user = authority.user;
        Ok(Self {
            hosts: authority.hosts,
            login: Login {
                user: user.map(|user| (user.name, user.password.unwrap_or_default())),
                tls: tls(address)?,
            },
            target: Arc::new(Target {
                addresses,
                kind,
                options,
            }),
        })
    }

    fn default_port(&self) -> u16 {
        if self.login.tls.is_some() { 5671 } else { 5672 }
    }

    /// Its name in errors.
    fn name(&self) -> String {
        let hosts = self.hosts.iter();
        let hosts: Vec<_> = hosts
            .map(|host| host.with_default_port(self.default_port()))
            .collect();
        let address = self.target.addresses.text();
        format!("amqp10 {}, address `{address}`", hosts.join(","))
    }

    async fn connect(&self, limit: Duration, timing: Timing) -> Result<Connection, BrokerFault> {
        let Self { hosts, login, .. } = self;
        let connected = first_of(
            hosts,
            self.default_port(),
            limit,
            |name, address| async move { Connection::open(login, name, &address, timing).await },
        );
        connected.await.map_err(BrokerFault::from)
    }

    async fn look(&self) -> Result<CheckReport, BrokerFault> {
        let timing = Timing {
            silence: OPEN_LIMIT,
            acknowledge: OPEN_LIMIT,
        };
        let connection = self.connect(OPEN_LIMIT, timing).await?;
        survey::survey(connection, &self.hosts, &self.target, OPEN_LIMIT).await
    }

    async fn open(&self, spec: &LaneSpec) -> Result<AmqpPublisher, BrokerFault> {
        let limit = open_limit(spec);
        let patience = patience(spec);
        let timing = Timing {
            silence: patience.silence,
            acknowledge: spec.publish_timeout,
        };
        let connection = self.connect(limit, timing).await?;
        let mut session = Session::new(connection, self.target.kind, patience);
        if let Some(address) = self.target.addresses.only_address() {
            let address = address.into();
            if let Some(why) = client::attach(&mut session, &address, limit).await? {
                return Err(Refusal::of(&why, Told::Link).of_only_address(&address));
            }
        }
        let target = Arc::clone(&self.target);
        Ok(AmqpPublisher::new(session, target, patience.answer))
    }
}

fn tls(address: &Address) -> Result<Option<Tls>, SinkError> {
    let is_asked = address.scheme() == "amqp10s";
    let files = [&CA_FILE, &CERT_FILE, &KEY_FILE];
    let with = "write `amqp10s:` instead of `amqp10:`";
    Tls::of(address, files, is_asked, with, "write `amqp10://`")
}

fn patience(spec: &LaneSpec) -> Patience {
    Patience {
        // A little less than the relay waits for any answer: it could not say what is missing.
        answer: spec.publish_timeout * 9 / 10,
        // Two of them must be well within the lease.
        silence: spec.lease / 4,
    }
}

#[async_trait]
impl Sink for Amqp10Sink {
    fn info(&self) -> SinkInfo {
        SinkInfo {
            kind: "amqp10",
            batch_events_max: 1_000,
            batch_bytes_max: 1 << 20,
            // Twice the window of outcomes and more, so that a lane never waits for the relay.
            in_flight_events_max: 10_000,
            // Brokers have limits for each address, and each message is told of its own.
            event_bytes_max: None,
            requests_max: None,
            // Service Bus may have one; nothing tells whether it does.
            deduplication: None,
            // A message that is rejected or released does not stop those behind it.
            key_order: KeyOrder::OneAtATime,
            fence: FenceKind::Timing,
            single_lane: false,
            parts: None,
        }
    }

    async fn check(&self) -> Result<CheckReport, SinkError> {
        let looked = self.look().await;
        looked.map_err(|fault| fault.into_error(self.name()))
    }

    async fn open_lane(&self, spec: LaneSpec) -> Result<Box<dyn Lane>, SinkError> {
        let opened = self.open(&spec).await;
        let publisher = opened.map_err(|fault| fault.into_error(self.name()))?;
        Ok(Box::new(WorkerLane::spawn(publisher)))
    }
}

#[cfg(test)]
mod tests {
    use posthaste_testkit::sink_suite::{impatient, lane_spec};

    use super::*;

    fn sink(url: &str) -> Result<Amqp10Sink, SinkError> {
        Amqp10Sink::from_address(&Address::parse(url)?)
    }

    #[test]
    fn addresses_name_servers_login_and_address() {
        let sink = sink("amqp10s://me:p%40ss@a,b:7/shop/{topic}?partition_key=true")
            .ok()
            .unwrap();
        assert_eq!(sink.name(), "amqp10 a:5671,b:7, address `shop/{topic}`");
        let login = ("me".to_owned(), "p@ss".to_owned());
        assert_eq!(sink.login.user, Some(login));
        assert!(sink.target.is_own() && sink.target.options.has_partition_key);
        assert_eq!(sink.target.kind, Some("queue"));
        let other = super::tests::sink("amqp10://[::1]/orders?group_id=none&kind=any").ok();
        let other = other.unwrap();
        assert_eq!(other.name(), "amqp10 [::1]:5672, address `orders`");
        assert!(other.login.user.is_none() && !other.target.is_own());
        assert_eq!(other.target.options, MessageOptions::default());
        assert_eq!(other.target.kind, None);
    }

    #[test]
    fn wrong_addresses_name_the_fix() {
        for (url, fix) in [
            ("amqp10://", "a host is"),
            ("amqp10://h", "amqp10://HOST/ADDRESS"),
            ("amqp10://h/{key}", "`{topic}` alone"),
            ("amqp10://h/%FF", "not UTF-8"),
            ("amqp10://h/a?group=x", "did you mean `group_id`"),
            ("amqp10://h/a?group_id=x", "`group_id` is one of"),
            ("amqp10://h/a?kind=x", "`kind` is one of"),
            ("amqp10://h/a?group_id=none&partition_key=true", "has none"),
            ("amqp10://h/a?ca_file=/x", "write `amqp10s:`"),
            ("amqp10s://h/a?key_file=/x", "belong together"),
        ] {
            let error = sink(url).err().unwrap();
            assert!(matches!(error, SinkError::Misconfigured { .. }), "{url}");
            assert!(error.to_string().contains(fix), "{url}: {error}");
        }
    }

    #[test]
    fn the_broker_may_be_silent_for_a_fraction_of_the_lease() {
        let patience = patience(&impatient(lane_spec(1)));
        assert_eq!(patience.answer, Duration::from_millis(4_500));
        assert_eq!(patience.silence, Duration::from_millis(3_750));
    }
}
