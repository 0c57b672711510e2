//! The sink that puts records into streams of Amazon Kinesis, or of a server that speaks the same.

mod entry;
mod streams;
mod survey;

use std::sync::Arc;

use async_trait::async_trait;
use posthaste_engine::{CheckReport, Lane, LaneSpec, Sink, SinkError, SinkInfo};

use crate::{
    address::Address,
    aws::account::Account,
    descriptors::kinesis::{EVENT_BYTES_MAX, KINESIS},
    publisher::WorkerLane,
    requests::{
        lane::BatchPublisher,
        place_name::{NamePattern, NameRule},
        refusal::{Refusal, within},
        target::{CallLimits, Target},
    },
    transport::{OPEN_LIMIT, open_limit},
};

use streams::Streams;

/// Bytes of a record with its key, where the stream was set up for so many since October 2025. It
/// takes 1 MiB unless somebody did, and refuses a larger one itself.
const RECORD_BYTES_MAX: usize = 10 << 20;
/// The size of a request. Its bytes are half of what Kinesis takes: what it took until October
/// 2025, and other servers still do.
const CALL: CallLimits = CallLimits {
    events: 500,
    bytes: 5 << 20,
    // They carry ten thousand a second, as many as ten shards take. A stream that is throttled puts
    // off what is under way: the fewer, the sooner it takes all again.
    events_of_all: 500,
};
const NAME_BYTES_MAX: usize = 128;

/// Puts each record into a stream, and accepts it once Kinesis has answered that it has it.
pub struct KinesisSink {
    account: Arc<Account>,
    target: Arc<Target>,
}

impl KinesisSink {
    pub(crate) fn from_address(address: &Address) -> Result<Self, SinkError> {
        address.check(&KINESIS.plug_in)?;
        let name = String::from_utf8(address.path()?).unwrap_or_default();
        let names = NamePattern::new(&name, NAME_BYTES_MAX, NameRule::WithDots);
        let names = names.map_err(|fault| {
            address.misconfigured(format!("a stream is `kinesis://NAME`: {fault}"))
        })?;
        Ok(Self {
            account: Arc::new(Account::of(address, None)?),
            target: Arc::new(Target {
                kind: "stream",
                names,
                event_bytes_max: address.number(&EVENT_BYTES_MAX)?,
                message_bytes_max: RECORD_BYTES_MAX,
                call: CALL,
            }),
        })
    }

    /// Its name in errors.
    fn name(&self) -> String {
        format!("kinesis {}", self.account.place())
    }

    async fn open(&self, spec: &LaneSpec) -> Result<BatchPublisher<Streams>, Refusal> {
        let connections = self.account.connections(spec);
        let config = &self.account.config().await?;
        let streams = Streams::new(config, connections.clone());
        let way = self.account.way(connections);
        let target = Arc::clone(&self.target);
        Ok(BatchPublisher::new(streams, way, target, spec))
    }
}

#[async_trait]
impl Sink for KinesisSink {
    fn info(&self) -> SinkInfo {
        self.target.info("kinesis", CALL.bytes)
    }

    async fn check(&self) -> Result<CheckReport, SinkError> {
        let asking = self.account.asking(Box::pin(survey::survey(self)));
        within(OPEN_LIMIT, asking, || self.name()).await
    }

    async fn open_lane(&self, spec: LaneSpec) -> Result<Box<dyn Lane>, SinkError> {
        let limit = open_limit(&spec);
        let asking = self.account.asking(Box::pin(self.open(&spec)));
        let publisher = within(limit, asking, || self.name()).await?;
        Ok(Box::new(WorkerLane::spawn(publisher)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sink(url: &str) -> Result<KinesisSink, SinkError> {
        KinesisSink::from_address(&Address::parse(url)?)
    }

    #[test]
    fn addresses_name_a_stream() {
        let sink = sink("kinesis://shop.{topic}?region=eu-central-1").ok();
        let sink = sink.unwrap();
        assert_eq!(sink.name(), "kinesis eu-central-1");
        let name = sink.target.names.name("orders.fifo");
        assert_eq!(name, Ok("shop.orders.fifo".to_owned()));
        let info = sink.info();
        assert!(info.deduplication.is_none());
        assert_eq!(info.in_flight_events_max, 500);
        let other = super::tests::sink("kinesis:orders?endpoint=http://127.0.0.1:4568").ok();
        let other = other.unwrap();
        assert_eq!(other.name(), "kinesis http://127.0.0.1:4568");
        assert_eq!(other.target.names.only_name(), Some("orders"));
    }

    #[test]
    fn wrong_addresses_name_the_fix() {
        for (url, fix) in [
            ("kinesis://", "`kinesis://NAME`"),
            ("kinesis://me:s3cret@h", "`-`, `_` and `.`"),
            ("kinesis://{key}", "`{topic}` alone"),
            ("kinesis://a/b", "`-`, `_` and `.`"),
            (&format!("kinesis://{}", "s".repeat(129)), "letters"),
            ("kinesis://orders?regoin=x", "did you mean `region`"),
            ("kinesis://orders?endpoint=localhost:1", "`endpoint` is"),
            ("kinesis://orders?access_key_id=a", "belong together"),
        ] {
            let error = sink(url).err().unwrap();
            assert!(matches!(error, SinkError::Misconfigured { .. }), "{url}");
            let said = error.to_string();
            assert!(said.contains(fix), "{url}: {said}");
            assert!(!said.contains("s3cret"), "{url}: {said}");
        }
    }
}
