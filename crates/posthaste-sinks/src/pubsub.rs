//! The sink that publishes to topics of Google Pub/Sub, or of a server that speaks the same.

mod channel;
mod credentials;
mod dial;
#[cfg(test)]
mod fuzz;
mod login;
mod message;
mod status;
mod survey;
mod token;
mod topics;
mod wire;

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use posthaste_engine::{CheckReport, Lane, LaneSpec, Sink, SinkError, SinkInfo};

use crate::{
    address::{Address, authority::Host},
    descriptors::{
        pubsub::{CREDENTIALS_FILE, ENDPOINT, EVENT_BYTES_MAX, PUBSUB},
        sqs::CA_FILE,
    },
    publisher::WorkerLane,
    requests::{
        endpoint::Endpoint,
        lane::BatchPublisher,
        place_name::{NamePattern, NameRule},
        refusal::{Refusal, within},
        target::{CallLimits, Target, Way as _},
    },
    transport::{KeptTls, OPEN_LIMIT, Tls, open_limit},
};

use channel::{Channel, Server};
use credentials::{Environment, Search};
use login::Login;
use topics::Topics;

/// Bytes of a message, so that a request with it alone has ten million, as Pub/Sub takes: the rest
/// is the topic's name, of some 300 at the most.
const MESSAGE_BYTES_MAX: usize = 9_999_000;
/// The size of a request. Its bytes are a part of what Pub/Sub takes: servers of gRPC take 4 MiB
/// unless they are told otherwise.
const CALL: CallLimits = CallLimits {
    events: 1_000,
    bytes: 4_000_000,
    // A request takes some 20 ms: they carry twenty thousand a second and more.
    events_of_all: 1_000,
};
const NAME_BYTES_MAX: usize = 255;
const GOOGLE: &str = "pubsub.googleapis.com";
const FORM: &str = "a topic is `pubsub://PROJECT/TOPIC`";

/// Publishes each record to a topic, and accepts it once Pub/Sub has answered that it has it.
pub struct PubSubSink {
    project: Arc<str>,
    server: Arc<Server>,
    target: Arc<Target>,
}

impl PubSubSink {
    pub(crate) fn from_address(address: &Address) -> Result<Self, SinkError> {
        Self::in_environment(address, Environment::of_process())
    }

    fn in_environment(address: &Address, environment: Environment) -> Result<Self, SinkError> {
        address.check(&PUBSUB.plug_in)?;
        let wrong = |reason: &str| address.misconfigured(reason.to_owned());
        let path = String::from_utf8(address.path()?).unwrap_or_default();
        let (project, name) = path.split_once('/').ok_or_else(|| wrong(FORM))?;
        if !is_project(project) {
            return Err(wrong(
                "a project is its id, of lower-case letters, digits and `-`: \
                 `pubsub://PROJECT/TOPIC`",
            ));
        }
        let names = NamePattern::new(name, NAME_BYTES_MAX, NameRule::PubSub)
            .map_err(|fault| address.misconfigured(format!("{FORM}: {fault}")))?;
        let endpoint = match (address.text(&ENDPOINT), &environment.emulator) {
            (Some(url), _) => Endpoint::parse(url).ok_or_else(|| {
                wrong(
                    "`endpoint` is the URL of a server, such as \
                     `https://europe-west1-pubsub.googleapis.com`",
                )
            })?,
            (None, Some(host)) => Endpoint::parse(&format!("http://{host}"))
                .ok_or_else(|| wrong("`PUBSUB_EMULATOR_HOST` is `HOST:PORT`"))?,
            (None, None) => Endpoint {
                is_encrypted: true,
                host: Host {
                    name: GOOGLE.to_owned(),
                    port: None,
                },
            },
        };
        let tls = Tls {
            ca_file: address.file(&CA_FILE),
            without: "write `endpoint=http://…`",
            ..Tls::default()
        };
        let of_grpc = Tls {
            protocol: Some("h2"),
            ..tls.clone()
        };
        let search = Search::new(address.file(&CREDENTIALS_FILE), environment);
        let is_encrypted = endpoint.is_encrypted;
        Ok(Self {
            project: project.into(),
            server: Arc::new(Server {
                endpoint,
                tls: is_encrypted.then(|| KeptTls::new(of_grpc)),
                // A token is for nobody on the way to read.
                login: is_encrypted.then(|| Login::new(search, KeptTls::new(tls))),
            }),
            target: Arc::new(Target {
                kind: "topic",
                names,
                event_bytes_max: address.number(&EVENT_BYTES_MAX)?,
                message_bytes_max: MESSAGE_BYTES_MAX,
                call: CALL,
            }),
        })
    }

    /// Its name in errors.
    fn name(&self) -> String {
        format!("pubsub {}", self.server.endpoint.authority())
    }

    fn topics(&self, limit: Duration, acknowledgement: Duration) -> Topics {
        Topics {
            channel: Channel::new(Arc::clone(&self.server), limit, acknowledgement),
            project: Arc::clone(&self.project),
        }
    }

    async fn open(
        &self,
        limit: Duration,
        spec: &LaneSpec,
    ) -> Result<BatchPublisher<Topics>, Refusal> {
        let topics = self.topics(limit, spec.publish_timeout);
        let way = topics.channel.clone();
        way.open().await?;
        let target = Arc::clone(&self.target);
        Ok(BatchPublisher::new(topics, way, target, spec))
    }

    async fn survey(&self) -> Result<CheckReport, Refusal> {
        let topics = self.topics(OPEN_LIMIT, OPEN_LIMIT);
        let surveyed = survey::survey(self, &topics).await;
        if let Err(refusal) = &surveyed {
            topics.channel.refused(refusal);
        }
        topics.channel.close_idle();
        surveyed
    }
}

/// The id of a project, of which some begin with a company's domain: `example.com:shop`.
fn is_project(text: &str) -> bool {
    let may_stand = |byte: u8| {
        byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'-' | b'.' | b':')
    };
    (1..=NAME_BYTES_MAX).contains(&text.len()) && text.bytes().all(may_stand)
}

#[async_trait]
impl Sink for PubSubSink {
    fn info(&self) -> SinkInfo {
        self.target.info("pubsub", CALL.bytes)
    }

    async fn check(&self) -> Result<CheckReport, SinkError> {
        within(OPEN_LIMIT, self.survey(), || self.name()).await
    }

    async fn open_lane(&self, spec: LaneSpec) -> Result<Box<dyn Lane>, SinkError> {
        let limit = open_limit(&spec);
        let opening = within(limit, self.open(limit, &spec), || self.name());
        Ok(Box::new(WorkerLane::spawn(opening.await?)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sink(url: &str, environment: &Environment) -> Result<PubSubSink, SinkError> {
        PubSubSink::in_environment(&Address::parse(url)?, environment.clone())
    }

    #[test]
    fn addresses_name_a_topic() {
        let mut environment = Environment::default();
        let google = sink("pubsub://shop/orders-{topic}", &environment)
            .ok()
            .unwrap();
        assert_eq!(google.name(), "pubsub pubsub.googleapis.com");
        assert_eq!(google.target.names.name("eu"), Ok("orders-eu".to_owned()));
        assert!(google.server.login.is_some() && google.server.tls.is_some());
        environment.emulator = Some("localhost:8085".to_owned());
        let emulator = sink("pubsub:example.com:shop/orders", &environment)
            .ok()
            .unwrap();
        assert_eq!(emulator.name(), "pubsub localhost:8085");
        assert_eq!(&*emulator.project, "example.com:shop");
        assert!(emulator.server.login.is_none() && emulator.server.tls.is_none());
        // The address counts first.
        let region = "https://europe-west1-pubsub.googleapis.com";
        let region = sink(
            &format!("pubsub://shop/orders?endpoint={region}"),
            &environment,
        );
        let region = region.ok().unwrap();
        assert_eq!(region.name(), "pubsub europe-west1-pubsub.googleapis.com");
        assert!(region.server.login.is_some());
    }

    #[test]
    fn wrong_addresses_name_the_fix() {
        let mut environment = Environment::default();
        for (url, fix) in [
            ("pubsub://", "`pubsub://PROJECT/TOPIC`"),
            ("pubsub://orders", "`pubsub://PROJECT/TOPIC`"),
            ("pubsub://me:s3cret@h/orders", "lower-case letters"),
            ("pubsub://Shop/orders", "lower-case letters"),
            ("pubsub://shop/", "three or more letters"),
            ("pubsub://shop/a/b", "three or more letters"),
            ("pubsub://shop/goog", "not with `goog`"),
            ("pubsub://shop/{key}", "`{topic}` alone"),
            ("pubsub://shop/orders?endpiont=x", "did you mean `endpoint`"),
            ("pubsub://shop/orders?endpoint=localhost:1", "`endpoint` is"),
            (
                "pubsub://shop/orders?endpoint=http://u:s3cret%40h",
                "`endpoint` is",
            ),
            ("pubsub://shop/orders?max_event_bytes=0", "at least 1"),
        ] {
            let error = sink(url, &environment).err().unwrap();
            assert!(matches!(error, SinkError::Misconfigured { .. }), "{url}");
            let said = error.to_string();
            assert!(
                said.contains(fix) && !said.contains("s3cret"),
                "{url}: {said}"
            );
        }
        environment.emulator = Some("a/b".to_owned());
        let error = sink("pubsub://shop/orders", &environment).err().unwrap();
        assert!(error.to_string().contains("`PUBSUB_EMULATOR_HOST`"));
    }
}
