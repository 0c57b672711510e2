//! The sink that publishes to NATS JetStream.
//!
//! Its client is our own, since a sound sink needs what the public one (`async-nats`) lacks: to
//! destroy a connection with all that waits in it (there, messages of a dropped client are sent
//! once a connection stands again), headers in their order, and refusals that name their message.

mod connection;
mod fault;
#[cfg(test)]
mod fuzz;
mod lane;
mod message;
mod publishing;
mod subject;
mod survey;
mod wire;

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use posthaste_engine::{
    CheckReport, FenceKind, KeyOrder, Lane, LaneSpec, Sink, SinkError, SinkInfo,
};

use crate::{
    address::{Address, authority::Host},
    descriptors::nats::{CA_FILE, CERT_FILE, DEDUPLICATION, KEY_FILE, NATS, STREAM, SUBJECT, TLS},
    publisher::WorkerLane,
    transport::{OPEN_LIMIT, Tls, first_of, open_limit},
};

use connection::{Connection, Login};
use fault::ServerFault;
use lane::{NatsPublisher, Target};
use publishing::{Patience, Publishing};
use subject::SubjectPattern;

const DEFAULT_PORT: u16 = 4222;
/// The server's limit for names.
const NAME_BYTES_MAX: usize = 255;

/// Publishes each record to a subject, and accepts it once a stream has stored it.
pub struct NatsSink {
    hosts: Vec<Host>,
    login: Login,
    target: Arc<Target>,
}

impl NatsSink {
    pub(crate) fn from_address(address: &Address) -> Result<Self, SinkError> {
        address.check(&NATS.plug_in)?;
        let authority = address.authority()?;
        if authority.path.is_some_and(|path| !path.is_empty()) {
            let reason = "nothing stands behind the servers' `/`; subject and stream are options";
            return Err(address.misconfigured(reason.to_owned()));
        }
        let mut login = Login {
            tls: tls(address)?,
            ..Login::default()
        };
        match authority.user.map(|user| (user.name, user.password)) {
            Some((user, Some(password))) => login.user = Some((user, password)),
            Some((token, None)) => login.token = Some(token),
            None => {}
        }
        let subject = address.text(&SUBJECT).unwrap_or_default();
        let stream = address.text(&STREAM).map(str::to_owned);
        if stream.as_deref().is_some_and(|name| !is_stream_name(name)) {
            let reason = "`stream` is no name of a stream: it has 1 to 255 bytes, and no white \
                          space, `.`, `*`, `>`, `/` or `\\`";
            return Err(address.misconfigured(reason.to_owned()));
        }
        Ok(Self {
            hosts: authority.hosts,
            login,
            target: Arc::new(Target {
                subject: SubjectPattern::new(subject)
                    .map_err(|reason| address.misconfigured(reason))?,
                stream,
            }),
        })
    }

    /// Its name in errors.
    fn name(&self) -> String {
        let hosts = self.hosts.iter();
        let hosts: Vec<_> = hosts
            .map(|host| host.with_default_port(DEFAULT_PORT))
            .collect();
        let hosts = hosts.join(",");
        match &self.target.stream {
            Some(stream) => format!("nats {hosts}, stream `{stream}`"),
            None => format!("nats {hosts}"),
        }
    }

    async fn connect(
        &self,
        limit: Duration,
        patience: Duration,
    ) -> Result<Connection, ServerFault> {
        first_of(&self.hosts, DEFAULT_PORT, limit, |name, address| async move {
            Connection::open(&self.login, name, &address, patience).await
        })
        .await
    }

    async fn look(&self) -> Result<CheckReport, ServerFault> {
        let mut connection = self.connect(OPEN_LIMIT, OPEN_LIMIT).await?;
        survey::survey(&mut connection, self.target.stream.as_deref()).await
    }
}

fn is_stream_name(name: &str) -> bool {
    let is_wrong = |c: char| c.is_whitespace() || c.is_control() || ".*>/\\".contains(c);
    (1..=NAME_BYTES_MAX).contains(&name.len()) && !name.contains(is_wrong)
}

fn tls(address: &Address) -> Result<Option<Tls>, SinkError> {
    let is_asked = address.text(&TLS) == Some("true");
    let files = [&CA_FILE, &CERT_FILE, &KEY_FILE];
    Tls::of(
        address,
        files,
        is_asked,
        "add `tls=true`",
        "leave out `tls=true`",
    )
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
impl Sink for NatsSink {
    fn info(&self) -> SinkInfo {
        SinkInfo {
            kind: "nats",
            batch_events_max: 1_000,
            batch_bytes_max: 1 << 20,
            // Twice the window of answers and more, so that a lane never waits for the relay.
            in_flight_events_max: 10_000,
            // Servers and streams have limits, and each message is told of its own.
            event_bytes_max: None,
            requests_max: None,
            deduplication: Some(DEDUPLICATION),
            // A stream that refuses a message takes those behind it.
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
        let limit = open_limit(&spec);
        let opened = self.connect(limit, spec.publish_timeout).await;
        let connection = opened.map_err(|fault| fault.into_error(self.name()))?;
        let publishing = Publishing::new(connection, patience(&spec));
        let publisher = NatsPublisher::new(publishing, Arc::clone(&self.target));
        Ok(Box::new(WorkerLane::spawn(publisher)))
    }
}

#[cfg(test)]
mod tests {
    use posthaste_testkit::sink_suite::{impatient, lane_spec};

    use super::*;

    fn sink(url: &str) -> Result<NatsSink, SinkError> {
        NatsSink::from_address(&Address::parse(url)?)
    }

    #[test]
    fn addresses_name_servers_login_and_stream() {
        let sink = sink("nats://me:p%40ss@a,b:7/?stream=S&subject=x.{topic}")
            .ok()
            .unwrap();
        assert_eq!(sink.name(), "nats a:4222,b:7, stream `S`");
        let login = ("me".to_owned(), "p@ss".to_owned());
        assert_eq!(sink.login.user, Some(login));
        assert_eq!(sink.target.subject.subject("t"), Ok("x.t".to_owned()));
        let other = super::tests::sink("nats://t0ken@[::1]").ok().unwrap();
        assert_eq!(other.name(), "nats [::1]:4222");
        assert_eq!(other.login.token.as_deref(), Some("t0ken"));
        assert_eq!(other.target.subject.subject("t"), Ok("t".to_owned()));
    }

    #[test]
    fn wrong_addresses_name_the_fix() {
        for (url, fix) in [
            ("nats://", "a host is"),
            ("nats://h/orders", "are options"),
            ("nats://h?streem=S", "did you mean `stream`"),
            ("nats://h?stream=a.b", "no name of a stream"),
            ("nats://h?stream=", "no name of a stream"),
            ("nats://h?subject={key}", "`{topic}` alone"),
            ("nats://h?subject=a.>", "wildcard"),
            ("nats://h?tls=yes", "`tls` is one of"),
            ("nats://h?ca_file=/x", "add `tls=true`"),
            ("nats://h?tls=true&key_file=/x", "belong together"),
        ] {
            let error = sink(url).err().unwrap();
            assert!(matches!(error, SinkError::Misconfigured { .. }), "{url}");
            assert!(error.to_string().contains(fix), "{url}: {error}");
        }
    }

    #[test]
    fn the_server_may_be_silent_for_a_fraction_of_the_lease() {
        let patience = patience(&impatient(lane_spec(1)));
        assert_eq!(patience.answer, Duration::from_millis(4_500));
        assert_eq!(patience.silence, Duration::from_millis(3_750));
    }
}
