//! The sink that publishes to topics of Amazon SNS, or of a server that speaks the same.

mod arn;
mod survey;
mod topics;

use std::sync::Arc;

use async_trait::async_trait;
use posthaste_engine::{CheckReport, Lane, LaneSpec, Sink, SinkError, SinkInfo};

use crate::{
    address::Address,
    aws::{account::Account, message::call_limits},
    descriptors::{
        sns::{EVENT_BYTES_MAX, SNS},
        sqs::REGION,
    },
    publisher::WorkerLane,
    requests::{
        lane::BatchPublisher,
        refusal::{Refusal, within},
        target::Target,
    },
    transport::{OPEN_LIMIT, open_limit},
};

use arn::Arn;
use topics::Topics;

/// Bytes of a message, and of the messages of a request.
const MESSAGE_BYTES_MAX: usize = 256 << 10;

/// Publishes each record to a topic, and accepts it once SNS has answered that it has it.
pub struct SnsSink {
    account: Arc<Account>,
    /// Its name is that of the target, and is left out.
    arn: Arc<Arn>,
    target: Arc<Target>,
}

impl SnsSink {
    pub(crate) fn from_address(address: &Address) -> Result<Self, SinkError> {
        address.check(&SNS.plug_in)?;
        let path = String::from_utf8(address.path()?).unwrap_or_default();
        let (arn, names) =
            Arn::parse(&path).map_err(|fault| address.misconfigured(fault.to_owned()))?;
        if address
            .text(&REGION)
            .is_some_and(|region| region != arn.region)
        {
            let reason = "`region` is another one than the ARN's: leave it out";
            return Err(address.misconfigured(reason.to_owned()));
        }
        Ok(Self {
            account: Arc::new(Account::of(address, Some(&arn.region))?),
            arn: Arc::new(arn),
            target: Arc::new(Target {
                kind: "topic",
                names,
                event_bytes_max: address.number(&EVENT_BYTES_MAX)?,
                message_bytes_max: MESSAGE_BYTES_MAX,
                call: call_limits(MESSAGE_BYTES_MAX),
            }),
        })
    }

    /// Its name in errors.
    fn name(&self) -> String {
        format!("sns {}", self.account.place())
    }

    async fn open(&self, spec: &LaneSpec) -> Result<BatchPublisher<Topics>, Refusal> {
        let connections = self.account.connections(spec);
        let config = &self.account.config().await?;
        let topics = Topics::new(config, connections.clone(), Arc::clone(&self.arn));
        let way = self.account.way(connections);
        let target = Arc::clone(&self.target);
        Ok(BatchPublisher::new(topics, way, target, spec))
    }
}

#[async_trait]
impl Sink for SnsSink {
    fn info(&self) -> SinkInfo {
        self.target.info("sns", 1 << 20)
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

    fn sink(url: &str) -> Result<SnsSink, SinkError> {
        SnsSink::from_address(&Address::parse(url)?)
    }

    #[test]
    fn addresses_name_a_topic() {
        let url = "sns://arn:aws:sns:eu-central-1:123456789012:shop-{topic}.fifo";
        let sink = sink(url).ok().unwrap();
        assert_eq!(sink.name(), "sns eu-central-1");
        let name = sink.target.names.name("t").unwrap();
        assert_eq!(
            sink.arn.of_topic(&name),
            "arn:aws:sns:eu-central-1:123456789012:shop-t.fifo"
        );
        assert!(sink.info().deduplication.is_some());
    }

    #[test]
    fn wrong_addresses_name_the_fix() {
        for (url, fix) in [
            ("sns://", "`sns://arn:aws:sns:"),
            ("sns://orders", "`sns://arn:aws:sns:"),
            ("sns://me:s3cret@h", "`sns://arn:aws:sns:"),
            (
                "sns://arn:aws:sqs:eu-central-1:123456789012:a",
                "sns:REGION",
            ),
            ("sns://arn:aws:sns:eu-central-1:12:a", "sns:REGION"),
            ("sns://arn:aws:sns:eu-central-1:123456789012:a:b", "letters"),
            (
                "sns://arn:aws:sns:eu-central-1:123456789012:{key}",
                "`{topic}` alone",
            ),
            (
                "sns://arn:aws:sns:eu-central-1:123456789012:a?region=eu-west-1",
                "leave it out",
            ),
            (
                "sns://arn:aws:sns:eu-central-1:123456789012:a?endpoint=x",
                "`endpoint` is",
            ),
        ] {
            let error = sink(url).err().unwrap();
            assert!(matches!(error, SinkError::Misconfigured { .. }), "{url}");
            let said = error.to_string();
            assert!(said.contains(fix), "{url}: {said}");
            assert!(!said.contains("s3cret"), "{url}: {said}");
        }
    }
}
