//! The sink that sends to queues of Amazon SQS, or of a server that speaks the same.

mod queues;
mod survey;

use std::sync::Arc;

use async_trait::async_trait;
use posthaste_engine::{CheckReport, Lane, LaneSpec, Sink, SinkError, SinkInfo};

use crate::{
    address::Address,
    aws::{account::Account, message::call_limits},
    descriptors::sqs::{EVENT_BYTES_MAX, SQS},
    publisher::WorkerLane,
    requests::{
        lane::BatchPublisher,
        place_name::{NamePattern, NameRule},
        refusal::{Refusal, within},
        target::Target,
    },
    transport::{OPEN_LIMIT, open_limit},
};

use queues::{QueueUrls, Queues};

/// Bytes of a message, and of the messages of a request: 1 MiB since August 2025, before it was a
/// quarter of that.
const MESSAGE_BYTES_MAX: usize = 1 << 20;
const NAME_BYTES_MAX: usize = 80;

/// Sends each record to a queue, and accepts it once SQS has answered that it has it.
pub struct SqsSink {
    account: Arc<Account>,
    /// The account of the queues, where it is not ours.
    owner: Option<String>,
    target: Arc<Target>,
    urls: Arc<QueueUrls>,
}

impl SqsSink {
    pub(crate) fn from_address(address: &Address) -> Result<Self, SinkError> {
        address.check(&SQS.plug_in)?;
        let path = String::from_utf8(address.path()?).unwrap_or_default();
        let (owner, name) = match path.split_once('/') {
            Some((owner, name)) => (Some(owner), name),
            None => (None, &*path),
        };
        let is_account = |text: &str| text.len() == 12 && text.bytes().all(|b| b.is_ascii_digit());
        if owner.is_some_and(|owner| !is_account(owner)) {
            let reason = "before the `/` stands the account of the queue, a number of 12 digits";
            return Err(address.misconfigured(reason.to_owned()));
        }
        let names = NamePattern::new(name, NAME_BYTES_MAX, NameRule::WithFifo)
            .map_err(|fault| address.misconfigured(format!("a queue is `sqs://NAME`: {fault}")))?;
        Ok(Self {
            account: Arc::new(Account::of(address, None)?),
            owner: owner.map(str::to_owned),
            target: Arc::new(Target {
                kind: "queue",
                names,
                event_bytes_max: address.number(&EVENT_BYTES_MAX)?,
                message_bytes_max: MESSAGE_BYTES_MAX,
                call: call_limits(MESSAGE_BYTES_MAX),
            }),
            urls: Arc::default(),
        })
    }

    /// Its name in errors.
    fn name(&self) -> String {
        format!("sqs {}", self.account.place())
    }

    async fn open(&self, spec: &LaneSpec) -> Result<BatchPublisher<Queues>, Refusal> {
        let connections = self.account.connections(spec);
        let config = &self.account.config().await?;
        let queues = Queues::new(
            config,
            connections.clone(),
            self.owner.clone(),
            Arc::clone(&self.urls),
        );
        if let Some(name) = self.target.names.only_name() {
            queues.url(name).await?;
        }
        let way = self.account.way(connections);
        let target = Arc::clone(&self.target);
        Ok(BatchPublisher::new(queues, way, target, spec))
    }
}

#[async_trait]
impl Sink for SqsSink {
    fn info(&self) -> SinkInfo {
        self.target.info("sqs", MESSAGE_BYTES_MAX)
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

    fn sink(url: &str) -> Result<SqsSink, SinkError> {
        SqsSink::from_address(&Address::parse(url)?)
    }

    #[test]
    fn addresses_name_a_queue() {
        let sink = sink("sqs://123456789012/{topic}.fifo?region=eu-central-1").ok();
        let sink = sink.unwrap();
        assert_eq!(sink.name(), "sqs eu-central-1");
        assert_eq!(sink.owner.as_deref(), Some("123456789012"));
        assert_eq!(sink.target.names.name("t"), Ok("t.fifo".to_owned()));
        assert!(sink.info().deduplication.is_some());
        let other = super::tests::sink("sqs:orders?endpoint=http://127.0.0.1:9324").ok();
        let other = other.unwrap();
        assert_eq!(other.name(), "sqs http://127.0.0.1:9324");
        assert_eq!(other.target.names.only_name(), Some("orders"));
        assert!(other.info().deduplication.is_none());
    }

    #[test]
    fn wrong_addresses_name_the_fix() {
        for (url, fix) in [
            ("sqs://", "`sqs://NAME`"),
            ("sqs://me:s3cret@h", "`sqs://NAME`"),
            ("sqs://{key}", "`{topic}` alone"),
            ("sqs://12/orders", "12 digits"),
            ("sqs://orders?regoin=x", "did you mean `region`"),
            ("sqs://orders?region=", "`region` is"),
            ("sqs://orders?region=a.b", "`region` is"),
            ("sqs://orders?endpoint=localhost:1", "`endpoint` is"),
            ("sqs://orders?endpoint=http://u:s3cret%40h", "`endpoint` is"),
            ("sqs://orders?secret_access_key=s3cret", "belong together"),
            ("sqs://orders?max_event_bytes=0", "at least 1"),
        ] {
            let error = sink(url).err().unwrap();
            assert!(matches!(error, SinkError::Misconfigured { .. }), "{url}");
            let said = error.to_string();
            assert!(said.contains(fix), "{url}: {said}");
            assert!(!said.contains("s3cret"), "{url}: {said}");
        }
    }
}
