//! Requests to topics.

use std::sync::Arc;

use aws_config::{SdkConfig, retry::RetryConfig, timeout::TimeoutConfig};
use aws_sdk_sns::{
    Client,
    config::{Builder, StalledStreamProtectionConfig},
    error::BuildError,
    types::{MessageAttributeValue, PublishBatchRequestEntry},
};
use posthaste_engine::RejectionKind;

use super::arn::Arn;
use crate::{
    aws::{
        answers::Answers,
        connector::Connections,
        message::{Message, STRING},
    },
    requests::{
        refusal::{Answer, Blame, Refusal},
        target::Service,
    },
};

/// The topics of an account.
#[derive(Debug)]
pub(super) struct Topics {
    pub(super) client: Client,
    arn: Arc<Arn>,
}

impl Topics {
    pub(super) fn new(config: &SdkConfig, connections: Connections, arn: Arc<Arn>) -> Self {
        let config = Builder::from(config)
            .http_client(connections)
            // Deciding is the engine's, and the lane's the time.
            .retry_config(RetryConfig::disabled())
            .timeout_config(TimeoutConfig::disabled())
            .stalled_stream_protection(StalledStreamProtectionConfig::disabled())
            .build();
        Self {
            client: Client::from_conf(config),
            arn,
        }
    }
}

impl Service for Topics {
    type Message = Message;

    async fn send(&self, place: &str, messages: &[Arc<Message>]) -> Result<Vec<Answer>, Refusal> {
        let mut answers = Answers::of(messages.len());
        let entries = messages.iter().enumerate();
        let entries = entries.map(|(at, message)| entry(answers.name(at), message));
        let entries: Result<Vec<_>, _> = entries.collect();
        let entries = entries.map_err(|error| Refusal {
            blame: Blame::Event(RejectionKind::Invalid),
            reason: format!("it makes no message: {error}"),
        })?;
        let batch = self.client.publish_batch();
        let batch = batch.topic_arn(self.arn.of_topic(place));
        let sent = batch
            .set_publish_batch_request_entries(Some(entries))
            .send()
            .await;
        let answered = sent.map_err(|error| Refusal::of_request(&error))?;
        for stored in answered.successful() {
            if let Some(at) = answers.place(stored.id().unwrap_or_default()) {
                answers.stored(at);
            }
        }
        for failed in answered.failed() {
            let refusal = Refusal::of_entry(failed.code(), failed.message(), failed.sender_fault());
            answers.failed(failed.id(), refusal);
        }
        Ok(answers.all)
    }
}

fn entry(name: String, message: &Message) -> Result<PublishBatchRequestEntry, BuildError> {
    let mut entry = PublishBatchRequestEntry::builder()
        .id(name)
        .message(&message.body);
    for (name, value) in &message.attributes {
        let value = MessageAttributeValue::builder()
            .data_type(STRING)
            .string_value(value)
            .build()?;
        entry = entry.message_attributes(*name, value);
    }
    if let Some(fifo) = &message.fifo {
        entry = entry
            .message_group_id(&fifo.group)
            .message_deduplication_id(&fifo.dedup);
    }
    entry.build()
}
