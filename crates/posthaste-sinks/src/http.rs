//! The sink that posts to HTTP endpoints (webhooks).
//!
//! The client is hyper's, one connection for each request under way: the addresses that are
//! connected to are those that were looked at, and dropping a connection destroys its socket.

mod answer;
mod connection;
mod fault;
#[cfg(test)]
mod fuzz;
mod guard;
mod lane;
mod message;
mod path;
mod retry_after;
mod signature;
mod survey;
mod target;

use std::sync::Arc;

use async_trait::async_trait;
use posthaste_engine::{
    CheckReport, FenceKind, KeyOrder, Lane, LaneSpec, Sink, SinkError, SinkInfo,
};
use tokio::time::Instant;

use crate::{address::Address, publisher::WorkerLane, transport::OPEN_LIMIT};

use connection::{Dialer, Resolve, SystemResolver};
use lane::{HttpPublisher, Patience};
use target::Target;

/// Posts each record to an endpoint, and accepts it once that has answered 2xx.
pub struct HttpSink {
    dialer: Arc<Dialer>,
}

impl HttpSink {
    pub(crate) fn from_address(address: &Address) -> Result<Self, SinkError> {
        Self::with_resolver(address, Arc::new(SystemResolver))
    }

    fn with_resolver(address: &Address, resolver: Arc<dyn Resolve>) -> Result<Self, SinkError> {
        let target = Arc::new(Target::of(address)?);
        Ok(Self {
            dialer: Arc::new(Dialer::new(target, resolver)),
        })
    }

    fn target(&self) -> &Target {
        &self.dialer.target
    }
}

#[async_trait]
impl Sink for HttpSink {
    fn info(&self) -> SinkInfo {
        let target = self.target();
        let requests = target.requests_max as usize;
        SinkInfo {
            kind: "http",
            // More would wait here, while the time for their answer runs.
            batch_events_max: requests,
            batch_bytes_max: 1 << 20,
            in_flight_events_max: requests,
            event_bytes_max: target.event_bytes_max,
            requests_max: Some(target.requests_max),
            // Some endpoints suppress repeats, and none says so.
            deduplication: None,
            // Requests travel on connections of their own, and overtake each other.
            key_order: KeyOrder::OneAtATime,
            fence: FenceKind::Timing,
            single_lane: false,
            parts: None,
        }
    }

    async fn check(&self) -> Result<CheckReport, SinkError> {
        let surveyed = survey::survey(&self.dialer, OPEN_LIMIT).await;
        surveyed.map_err(|fault| fault.into_error(self.target().name()))
    }

    async fn open_lane(&self, spec: LaneSpec) -> Result<Box<dyn Lane>, SinkError> {
        let patience = Patience::of(&spec);
        let end = Instant::now() + patience.connection;
        // The first request uses it.
        let opened = self.dialer.connect(end, patience.acknowledgement).await;
        let connection = opened.map_err(|fault| fault.into_error(self.target().name()))?;
        let publisher = HttpPublisher::new(Arc::clone(&self.dialer), patience, connection);
        Ok(Box::new(WorkerLane::spawn(publisher)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The target of an address.
    pub(super) fn target(url: &str) -> Target {
        match Address::parse(url).and_then(|address| Target::of(&address)) {
            Ok(target) => target,
            Err(error) => panic!("{url}: {error}"),
        }
    }

    #[test]
    fn addresses_name_one_endpoint() {
        let target = target(
            "https://me:p%40ss@h/in/{topic}?format=raw&requests=3&secret_query=a%3Db%26c&\
             secret_headers=X-A:%201%0Ax-b:2&max_header_bytes=2048",
        );
        assert_eq!(
            (target.name(), target.port()),
            ("http h:443".to_owned(), 443)
        );
        assert_eq!(target.uri(&target.path.path("t").unwrap()), "/in/t?a=b&c");
        assert_eq!(target.headers["authorization"], "Basic bWU6cEBzcw==");
        assert_eq!(
            (&target.headers["x-a"], &target.headers["x-b"]),
            (&"1".parse().unwrap(), &"2".parse().unwrap())
        );
        assert!(target.headers["x-a"].is_sensitive());
        assert_eq!((target.requests_max, target.header_bytes_max), (3, 2_048));
        let other =
            super::tests::target("http://[::1]:80?proxy=p&proxy_password=a:b&allow_private=true");
        assert_eq!(other.name(), "http [::1]:80");
        assert_eq!(other.headers["host"], "[::1]");
        assert_eq!(other.uri("/x"), "http://[::1]/x");
        assert_eq!(other.proxy.as_ref().unwrap().host.name, "p");
        assert_eq!(other.headers["proxy-authorization"], "Basic YTpi");
        let tunnel = super::tests::target("https://h:8443/?proxy=p:1&proxy_password=a:b");
        assert_eq!(tunnel.headers["host"], "h:8443");
        assert!(!tunnel.headers.contains_key("proxy-authorization"));
        assert_eq!(tunnel.uri("/x"), "/x");
    }

    #[test]
    fn wrong_addresses_name_the_fix() {
        for (url, fix) in [
            ("https://", "a host is"),
            ("https://a,b/", "one host"),
            ("https://h/{key}", "`{topic}` alone"),
            ("https://h/a b", "percent escape"),
            ("https://h/?sekret=x", "did you mean `secret`"),
            ("https://h/?secret=S3CRET", "24 to 64 bytes"),
            ("https://h/?secret_headers=S3CRET", "`Name: value`"),
            ("https://h/?secret_headers=a:%C3%BC", "`Name: value`"),
            ("https://h/?secret_headers=Host:%20x", "`host`"),
            ("https://h/?secret_headers=Webhook-S3CRET:x", "`webhook-`"),
            (
                "https://u:S3CRET@h/?secret_headers=authorization:x",
                "are two",
            ),
            ("https://h/?secret_query=", "`secret_query` is"),
            ("https://h/?secret_query=a%20S3CRET", "`secret_query` is"),
            ("https://h/?source=a%20b", "`source` is a URI"),
            ("https://h/?source=", "`source` is a URI"),
            ("https://h/?requests=0", "at least 1"),
            ("https://h/?requests=1025", "1024 at the most"),
            ("https://h/?format=json", "`format` is one of"),
            ("https://h/?max_header_bytes=100", "at least 1024"),
            ("https://h/?allow_private=yes", "`allow_private` is one of"),
            ("https://h/?proxy=http://p:1", "`HOST:PORT`"),
            ("https://h/?proxy=u:S3CRET%40p:1", "`HOST:PORT`"),
            ("https://h/?proxy_password=a:S3CRET", "name it with `proxy`"),
            (
                "https://h/?proxy=p&proxy_password=S3CRET",
                "`USER:PASSWORD`",
            ),
            ("http://h/?ca_file=/x", "write `https://`"),
            ("https://h/?key_file=/x", "belong together"),
        ] {
            let error = Address::parse(url).and_then(|address| HttpSink::from_address(&address));
            let error = error.err().unwrap();
            assert!(matches!(error, SinkError::Misconfigured { .. }), "{url}");
            let said = error.to_string();
            assert!(
                said.contains(fix) && !said.contains("S3CRET"),
                "{url}: {said}"
            );
        }
    }
}
