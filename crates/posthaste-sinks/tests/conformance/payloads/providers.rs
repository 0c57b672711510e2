//! The providers of object storage, and what holds for each of them.

use libtest_mimic::Trial;
use posthaste_engine::Severity;
use posthaste_testkit::{
    servers::{azurite::AzuriteServer, gcs::GcsServer, moto::MotoServer},
    sink_suite::{SuiteEvent, lane_spec},
    tls::{TestCa, rsa_key_pem},
    unique_name,
};

use super::stored::{Place, large, put_off, sink, trial};
use crate::driving::{accept, accepted, send};

/// Whose interface a server speaks.
#[derive(Debug, Clone, Copy)]
pub(super) enum Provider {
    S3,
    Azure,
    Google,
}

impl Provider {
    /// As an address has it.
    fn scheme(self) -> &'static str {
        match self {
            Self::S3 => "s3",
            Self::Azure => "az",
            Self::Google => "gs",
        }
    }

    /// The server that all tests share.
    fn shared(self) -> &'static dyn Server {
        match self {
            Self::S3 => MotoServer::shared(),
            Self::Azure => AzuriteServer::shared(),
            Self::Google => GcsServer::shared(),
        }
    }

    /// A server for one test.
    fn start(self) -> Box<dyn Server> {
        match self {
            Self::S3 => Box::new(MotoServer::start()),
            Self::Azure => Box::new(AzuriteServer::start()),
            Self::Google => Box::new(GcsServer::start()),
        }
    }
}

/// The functions that the servers have in common.
trait Server {
    fn options(&self) -> String;
    fn create_bucket(&self, bucket: &str);
    fn object(&self, bucket: &str, name: &str) -> Option<Vec<u8>>;
    fn objects(&self, bucket: &str) -> Vec<String>;
    fn kill9(&self);
    fn start_again(&self);
}

macro_rules! servers {
    ($($server:ty),*) => {$(
        impl Server for $server {
            fn options(&self) -> String {
                self.options()
            }

            fn create_bucket(&self, bucket: &str) {
                self.create_bucket(bucket);
            }

            fn object(&self, bucket: &str, name: &str) -> Option<Vec<u8>> {
                self.object(bucket, name)
            }

            fn objects(&self, bucket: &str) -> Vec<String> {
                self.objects(bucket)
            }

            fn kill9(&self) {
                self.kill9();
            }

            fn start_again(&self) {
                self.start_again();
            }
        }
    )*};
}

servers!(MotoServer, AzuriteServer, GcsServer);

/// A bucket of the server that all tests share.
#[derive(Debug, Clone)]
pub(super) struct Bucket {
    provider: Provider,
    name: String,
}

impl Bucket {
    pub(super) fn new(provider: Provider) -> Self {
        let name = unique_name("bucket");
        provider.shared().create_bucket(&name);
        Self { provider, name }
    }

    /// The beginning of its objects' addresses.
    pub(super) fn address(&self) -> String {
        format!("{}://{}", self.provider.scheme(), self.name)
    }

    /// As the setting `claim_check` has it.
    pub(super) fn url(&self) -> String {
        let options = self.provider.shared().options();
        format!("{}/large?{options}", self.address())
    }

    pub(super) fn object(&self, name: &str) -> Option<Vec<u8>> {
        self.provider.shared().object(&self.name, name)
    }

    pub(super) fn objects(&self) -> Vec<String> {
        self.provider.shared().objects(&self.name)
    }
}

pub(super) fn trials() -> Vec<Trial> {
    let mut trials = vec![
        trial(
            "az::a_wrong_key_puts_events_off",
            a_wrong_key_puts_events_off,
        ),
        trial("gs::an_account_logs_in", an_account_logs_in),
    ];
    for provider in [Provider::S3, Provider::Azure, Provider::Google] {
        let named = |name| format!("{}::{name}", provider.scheme());
        trials.extend([
            trial(
                &named("a_payload_is_stored_under_the_same_name_again"),
                move || a_payload_is_stored_under_the_same_name_again(provider),
            ),
            trial(
                &named("a_check_tells_of_the_bucket_and_writes_nothing"),
                move || a_check_tells_of_the_bucket_and_writes_nothing(provider),
            ),
            trial(
                &named("storage_that_is_away_puts_its_events_off"),
                move || storage_that_is_away_puts_its_events_off(provider),
            ),
        ]);
    }
    trials
}

async fn a_payload_is_stored_under_the_same_name_again(provider: Provider) {
    let place = Place::of(provider);
    let event = large("a").0;
    for _ in 0..2 {
        let mut lane = place.lane().await;
        accept(&mut lane, std::slice::from_ref(&event)).await;
    }
    let names = place.bucket.objects();
    assert_eq!(names.len(), 1);
    assert!(
        names[0].starts_with(&format!("large/suite/{}-", event.id)),
        "{names:?}"
    );
    assert_eq!(place.bucket.object(&names[0]), event.payload);
    // An address may end its endpoint with a slash.
    let sink = sink(&format!("{}/", place.bucket.url()));
    let mut lane = sink.open_lane(lane_spec(1)).await.unwrap();
    accept(&mut lane, std::slice::from_ref(&event)).await;
    assert_eq!(place.bucket.objects(), names);
    // An application may emit an id again.
    let other = SuiteEvent {
        payload: Some(vec![b'x'; 1_000]),
        ..event
    };
    accept(&mut lane, &[other]).await;
    assert_eq!(place.bucket.objects().len(), 2);
}

async fn a_check_tells_of_the_bucket_and_writes_nothing(provider: Provider) {
    let place = Place::of(provider);
    let report = place.sink.check().await.unwrap();
    let part = &report.parts()[0];
    assert_eq!(part.kind, "object storage");
    assert_eq!(part.name, format!("{}/large", place.bucket.address()));
    assert_eq!(part.facts[1].value.as_deref(), Some("yes"));
    assert!(report.findings().is_empty(), "{report:?}");
    assert_eq!(place.bucket.objects(), [""; 0]);

    let (scheme, options) = (provider.scheme(), provider.shared().options());
    let absent = sink(&format!("{scheme}://absent-bucket?{options}"));
    let report = absent.check().await.unwrap();
    let fault = &report.findings()[0].fault;
    assert!(fault.contains("no such bucket"), "{fault}");
    let mut lane = absent.open_lane(lane_spec(1)).await.unwrap();
    let outcomes = send(&mut lane, &[large("a").0]).await;
    let words = put_off(&outcomes[0]);
    assert!(words.contains("create it, or correct"), "{words}");
}

async fn storage_that_is_away_puts_its_events_off(provider: Provider) {
    let server = provider.start();
    server.create_bucket("bucket");
    let (scheme, options) = (provider.scheme(), server.options());
    let sink = sink(&format!("{scheme}://bucket?{options}"));
    let mut lane = sink.open_lane(lane_spec(1)).await.unwrap();
    accept(&mut lane, &[large("a").0]).await;

    server.kill9();
    let events = [large("a").0, SuiteEvent::new(Some("b"), "small")];
    let outcomes = send(&mut lane, &events).await;
    let words = put_off(&outcomes[0]);
    assert!(words.contains("connecting to "), "{words}");
    assert!(accepted(&outcomes[1]));
    let report = sink.check().await.unwrap();
    let found = &report.findings()[0];
    assert_eq!(found.severity, Severity::Stops);
    assert_eq!(found.place, format!("object storage `{scheme}://bucket`"));
    let shown = format!("{report:?}{words}");
    for secret in ["secret_access_key", "account_key"] {
        let option = options.split('&').find_map(|option| {
            let (name, value) = option.split_once('=')?;
            (name == secret).then_some(value)
        });
        assert!(option.is_none_or(|value| !shown.contains(value)), "{shown}");
    }

    server.start_again();
    server.create_bucket("bucket");
    accept(&mut lane, &events).await;
    assert_eq!(server.objects("bucket").len(), 1);
}

async fn a_wrong_key_puts_events_off() {
    let server = AzuriteServer::shared();
    let bucket = unique_name("bucket");
    server.create_bucket(&bucket);
    let key = "d3Jvbmc=";
    let sink = sink(&format!("az://{bucket}?{}", server.options_with_key(key)));
    let report = sink.check().await.unwrap();
    let found = &report.findings()[0];
    assert!(found.fault.contains("AuthorizationFailure"), "{found:?}");
    assert!(found.mend.contains("correct the credentials"), "{found:?}");
    let mut lane = sink.open_lane(lane_spec(1)).await.unwrap();
    let events = [large("a").0, SuiteEvent::new(Some("b"), "small")];
    let outcomes = send(&mut lane, &events).await;
    let words = put_off(&outcomes[0]);
    assert!(words.contains("AuthorizationFailure"), "{words}");
    assert!(!format!("{report:?}{words}").contains(key));
    assert!(accepted(&outcomes[1]));
    assert_eq!(server.objects(&bucket), [""; 0]);
}

/// The option that names the key of this account.
fn credentials(ca: &TestCa, account: &str) -> String {
    let file = ca.account_file(account, account, rsa_key_pem());
    format!("credentials_file={file}")
}

async fn an_account_logs_in() {
    let ca = TestCa::new();
    let server = GcsServer::start_tls(&ca.server_certificate(&["localhost"]));
    server.create_bucket("bucket");
    let trusted = format!("ca_file={}", ca.certificate_file().display());
    let url = format!("gs://bucket?{}&{trusted}", server.options());
    let ours = sink(&format!("{url}&{}", credentials(&ca, "relay@shop")));
    assert!(ours.check().await.unwrap().findings().is_empty());
    let mut lane = ours.open_lane(lane_spec(1)).await.unwrap();
    accept(&mut lane, &[large("a").0]).await;
    assert_eq!(server.objects("bucket").len(), 1);

    let other = sink(&format!("{url}&{}", credentials(&ca, "other@shop")));
    let report = other.check().await.unwrap();
    let found = &report.findings()[0];
    assert!(found.fault.contains("AuthenticationRequired"), "{found:?}");
    assert!(found.mend.contains("correct the credentials"), "{found:?}");
    let mut lane = other.open_lane(lane_spec(1)).await.unwrap();
    let outcomes = send(&mut lane, &[large("a").0]).await;
    let words = put_off(&outcomes[0]);
    assert!(words.contains("AuthenticationRequired"), "{words}");
    assert_eq!(server.objects("bucket").len(), 1);
}
