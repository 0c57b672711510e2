//! Requests to streams.

use std::sync::Arc;

use aws_config::{SdkConfig, retry::RetryConfig, timeout::TimeoutConfig};
use aws_sdk_kinesis::{
    Client,
    config::{Builder, StalledStreamProtectionConfig},
    error::BuildError,
    types::{PutRecordsRequestEntry, PutRecordsResultEntry},
};
use posthaste_engine::{Cause, RejectionKind};

use super::entry::Entry;
use crate::{
    aws::connector::Connections,
    requests::{
        refusal::{Answer, Blame, Refusal},
        target::Service,
    },
};

/// The streams of our account.
#[derive(Debug)]
pub(super) struct Streams {
    pub(super) client: Client,
}

impl Streams {
    pub(super) fn new(config: &SdkConfig, connections: Connections) -> Self {
        let config = Builder::from(config)
            .http_client(connections)
            // Deciding is the engine's, and the lane's the time.
            .retry_config(RetryConfig::disabled())
            .timeout_config(TimeoutConfig::disabled())
            .stalled_stream_protection(StalledStreamProtectionConfig::disabled())
            .build();
        Self {
            client: Client::from_conf(config),
        }
    }
}

impl Service for Streams {
    type Message = Entry;

    async fn send(&self, place: &str, entries: &[Arc<Entry>]) -> Result<Vec<Answer>, Refusal> {
        let records = entries.iter().map(|entry| of_sdk(entry));
        let records: Result<Vec<_>, _> = records.collect();
        let records = records.map_err(|error| Refusal {
            blame: Blame::Event(RejectionKind::Invalid),
            reason: format!("it makes no record: {error}"),
        })?;
        let put = self.client.put_records().stream_name(place);
        let answered = put.set_records(Some(records)).send().await;
        let answered = answered.map_err(|error| Refusal::of_request(&error))?;
        // They come in the order of the records.
        let answers: Vec<_> = answered.records().iter().map(answer).collect();
        match answers.len() == entries.len() {
            true => Ok(answers),
            false => Err(something_else()),
        }
    }
}

/// The answer is none of Kinesis.
pub(super) fn something_else() -> Refusal {
    let reason = "what answers there is no Kinesis; correct `endpoint`";
    Refusal::unclear(Cause::Misconfigured, reason)
}

fn of_sdk(entry: &Entry) -> Result<PutRecordsRequestEntry, BuildError> {
    PutRecordsRequestEntry::builder()
        .partition_key(&entry.partition_key)
        .data(entry.data.clone())
        .build()
}

/// Only a record that was taken has a number in its shard.
fn answer(result: &PutRecordsResultEntry) -> Answer {
    let number = result.sequence_number().filter(|of| !of.is_empty());
    match (result.error_code(), number) {
        (None, Some(_)) => Ok(()),
        (None, None) => Err(Refusal::unanswered()),
        (Some(code), _) => Err(Refusal::of_entry(code, result.error_message(), false)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_taken_if_it_has_a_number() {
        let result = PutRecordsResultEntry::builder();
        let taken = result.clone().sequence_number("1").build();
        assert_eq!(answer(&taken), Ok(()));
        for nothing in [PutRecordsResultEntry::builder(), result.sequence_number("")] {
            assert_eq!(answer(&nothing.build()), Err(Refusal::unanswered()));
        }
        for (code, cause) in [
            ("ProvisionedThroughputExceededException", Cause::Throttled),
            ("InternalFailure", Cause::Unknown),
            ("KMSThrottlingException", Cause::Throttled),
            ("KMSAccessDeniedException", Cause::Denied),
            ("KMSDisabledException", Cause::Misconfigured),
            ("SomethingNew", Cause::Unknown),
        ] {
            let failed = PutRecordsResultEntry::builder().error_code(code).build();
            assert_eq!(answer(&failed).unwrap_err().blame, Blame::Place(cause));
        }
    }
}
