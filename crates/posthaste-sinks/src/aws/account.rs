//! Our account at AWS: credentials and region as all programs there find them.

use std::{sync::Arc, time::Duration};

use aws_config::{BehaviorVersion, Region, SdkConfig, identity::IdentityCache};
use aws_credential_types::{Credentials, provider::SharedCredentialsProvider};
use posthaste_engine::{Cause, LaneSpec, SinkError};
use tokio::{
    sync::Mutex,
    time::{Instant, timeout},
};

use super::{connector::Connections, credentials::Signing};
use crate::{
    address::Address,
    descriptors::sqs::{ACCESS_KEY_ID, CA_FILE, ENDPOINT, PROFILE, REGION, SECRET_ACCESS_KEY},
    requests::{
        endpoint::Endpoint,
        refusal::{Blame, Refusal},
        target::Way,
    },
    transport::{KeptTls, OPEN_LIMIT, Tls, open_limit},
};

/// The search for region or credentials takes no longer than this: off AWS it ends with a machine
/// that does not answer. Less than opening, so that it is told what was missing.
const SEARCH_LIMIT: Duration = Duration::from_millis(2_000);

/// Credentials that are refused are looked for again after this time, and no sooner: somebody may
/// have renewed them in a file, which the search reads once.
const SEARCH_AGAIN: Duration = Duration::from_secs(30);

/// Credentials, region and endpoint of a sink.
#[derive(Debug)]
pub(crate) struct Account {
    region: Option<String>,
    profile: Option<String>,
    endpoint: Option<String>,
    /// Those of the address; none: they are looked for.
    credentials: Option<Credentials>,
    tls: Arc<KeptTls>,
    found: Mutex<Option<Found>>,
}

/// The way of a lane to a service.
struct AccountWay {
    account: Arc<Account>,
    connections: Connections,
}

impl Way for AccountWay {
    fn refused(&self, refusal: &Refusal) {
        self.account.refused(refusal);
    }

    fn close_idle(&self) {
        self.connections.close_idle();
    }
}

/// The end of a search for region and credentials.
#[derive(Debug)]
struct Found {
    config: SdkConfig,
    since: Instant,
}

impl Account {
    /// The account of an address. `region` is what the address says in another place.
    pub(crate) fn of(address: &Address, region: Option<&str>) -> Result<Self, SinkError> {
        let wrong = |reason: &str| Err(address.misconfigured(reason.to_owned()));
        let text = |option| address.text(option).map(str::to_owned);
        let region = text(&REGION).or(region.map(str::to_owned));
        let may_stand = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
        if region
            .as_ref()
            .is_some_and(|region| region.is_empty() || !region.bytes().all(may_stand))
        {
            return wrong("`region` is the name of a region, such as `eu-central-1`");
        }
        let endpoint = text(&ENDPOINT);
        if endpoint
            .as_deref()
            .is_some_and(|url| Endpoint::parse(url).is_none())
        {
            return wrong("`endpoint` is the URL of a server, such as `http://127.0.0.1:9324`");
        }
        let credentials = match (text(&ACCESS_KEY_ID), text(&SECRET_ACCESS_KEY)) {
            (Some(id), Some(secret)) => {
                Some(Credentials::new(id, secret, None, None, "the address"))
            }
            (None, None) => None,
            _ => {
                return wrong(
                    "`access_key_id` and `secret_access_key` belong together: give both or none",
                );
            }
        };
        let tls = Tls {
            ca_file: address.file(&CA_FILE),
            without: "write `endpoint=http://…`",
            ..Tls::default()
        };
        Ok(Self {
            region,
            profile: text(&PROFILE),
            endpoint,
            credentials,
            tls: Arc::new(KeptTls::new(tls)),
            found: Mutex::default(),
        })
    }

    /// Where the service is, in words.
    pub(crate) fn place(&self) -> &str {
        let region = self.region.as_deref();
        self.endpoint.as_deref().or(region).unwrap_or("AWS")
    }

    /// Connections of their own, for a lane.
    pub(crate) fn connections(&self, spec: &LaneSpec) -> Connections {
        let limit = open_limit(spec);
        Connections::new(Arc::clone(&self.tls), limit, spec.publish_timeout)
    }

    /// A lane's way to the service over these.
    pub(crate) fn way(self: &Arc<Self>, connections: Connections) -> impl Way {
        AccountWay {
            account: Arc::clone(self),
            connections,
        }
    }

    /// Connections for a check.
    pub(crate) fn connections_to_check(&self) -> Connections {
        Connections::new(Arc::clone(&self.tls), OPEN_LIMIT, OPEN_LIMIT)
    }

    /// The configuration of clients, with the region. Credentials are asked for when the first
    /// request needs some, and again before they expire.
    ///
    /// # Errors
    /// There is no region.
    pub(crate) async fn config(&self) -> Result<SdkConfig, Refusal> {
        let mut found = self.found.lock().await;
        if let Some(found) = &*found {
            return Ok(found.config.clone());
        }
        match timeout(SEARCH_LIMIT, self.load()).await {
            Ok(config) if config.region().is_some() => {
                let since = Instant::now();
                let found = found.insert(Found { config, since });
                Ok(found.config.clone())
            }
            _ => Err(Refusal::of_service(
                Cause::Misconfigured,
                "no region is set: add `region=` to the address, or set `AWS_REGION`",
            )),
        }
    }

    /// The same answer. After one that refuses our credentials, the next lane looks for others.
    pub(crate) async fn asking<T>(
        &self,
        asking: impl Future<Output = Result<T, Refusal>>,
    ) -> Result<T, Refusal> {
        let answer = asking.await;
        if let Err(refusal) = &answer {
            self.refused(refusal);
        }
        answer
    }

    /// A request was refused.
    pub(crate) fn refused(&self, refusal: &Refusal) {
        if refusal.blame != Blame::Service(Cause::Denied) {
            return;
        }
        // Another one that searches now needs no word.
        if let Ok(mut found) = self.found.try_lock() {
            found.take_if(|found| found.since.elapsed() >= SEARCH_AGAIN);
        }
    }

    async fn load(&self) -> SdkConfig {
        let mut loader = aws_config::defaults(BehaviorVersion::v2026_01_12())
            .http_client(self.connections_to_check())
            .identity_cache(IdentityCache::lazy().load_timeout(SEARCH_LIMIT).build());
        if let Some(region) = &self.region {
            loader = loader.region(Region::new(region.clone()));
        }
        if let Some(profile) = &self.profile {
            loader = loader.profile_name(profile);
        }
        if let Some(endpoint) = &self.endpoint {
            loader = loader.endpoint_url(endpoint);
        }
        if let Some(credentials) = &self.credentials {
            loader = loader.credentials_provider(credentials.clone());
        }
        let config = loader.load().await;
        let Some(found) = config.credentials_provider() else {
            return config;
        };
        let signing = SharedCredentialsProvider::new(Signing(found));
        config.into_builder().credentials_provider(signing).build()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// They may have been renewed in a file.
    #[tokio::test(start_paused = true)]
    async fn credentials_that_are_refused_are_looked_for_again() {
        let url = "sqs://q?region=r&access_key_id=a&secret_access_key=b";
        let account = Account::of(&Address::parse(url).unwrap(), None)
            .ok()
            .unwrap();
        let config = SdkConfig::builder().build();
        let since = Instant::now();
        *account.found.lock().await = Some(Found { config, since });
        let refusal = |code| Refusal::of_entry(code, None, true);
        tokio::time::advance(SEARCH_AGAIN - Duration::from_secs(1)).await;
        account.refused(&refusal("ExpiredToken"));
        assert!(account.found.lock().await.is_some());
        tokio::time::advance(Duration::from_secs(1)).await;
        account.refused(&refusal("AccessDenied"));
        account.refused(&refusal("InternalError"));
        assert!(account.found.lock().await.is_some());
        account.refused(&refusal("ExpiredToken"));
        assert!(account.found.lock().await.is_none());
    }
}
