//! Requests to queues: their URLs, and messages.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use aws_config::{SdkConfig, retry::RetryConfig, timeout::TimeoutConfig};
use aws_sdk_sqs::{
    Client,
    config::{Builder, StalledStreamProtectionConfig},
    error::BuildError,
    types::{MessageAttributeValue, SendMessageBatchRequestEntry, SendMessageBatchResultEntry},
};
use md5::{Digest as _, Md5};
use posthaste_engine::{Cause, RejectionKind};

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

/// Queues that are remembered, before all are forgotten.
const QUEUES_MAX: usize = 16_384;

/// The URLs of queues, by name.
#[derive(Debug, Default)]
pub(super) struct QueueUrls(Mutex<HashMap<String, Arc<str>>>);

impl QueueUrls {
    fn known(&self) -> MutexGuard<'_, HashMap<String, Arc<str>>> {
        // Nothing panics while it holds the lock.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The queues of an account.
#[derive(Debug)]
pub(super) struct Queues {
    pub(super) client: Client,
    owner: Option<String>,
    urls: Arc<QueueUrls>,
}

impl Queues {
    pub(super) fn new(
        config: &SdkConfig,
        connections: Connections,
        owner: Option<String>,
        urls: Arc<QueueUrls>,
    ) -> Self {
        let config = Builder::from(config)
            .http_client(connections)
            // Deciding is the engine's, and the lane's the time.
            .retry_config(RetryConfig::disabled())
            .timeout_config(TimeoutConfig::disabled())
            .stalled_stream_protection(StalledStreamProtectionConfig::disabled())
            .build();
        Self {
            client: Client::from_conf(config),
            owner,
            urls,
        }
    }

    /// The URL of a queue, looked up once.
    ///
    /// # Errors
    /// Why it was not told.
    pub(super) async fn url(&self, name: &str) -> Result<Arc<str>, Refusal> {
        if let Some(url) = self.urls.known().get(name) {
            return Ok(Arc::clone(url));
        }
        let asked = self.client.get_queue_url().queue_name(name);
        let asked = asked.set_queue_owner_aws_account_id(self.owner.clone());
        let told = asked.send().await;
        let told = told.map_err(|error| of_queue(Refusal::of_request(&error), name))?;
        let url: Arc<str> = match told.queue_url() {
            Some(url) => url.into(),
            None => {
                let reason = "what answers there is no SQS; correct `endpoint`";
                return Err(Refusal::unclear(Cause::Misconfigured, reason));
            }
        };
        let mut known = self.urls.known();
        if known.len() >= QUEUES_MAX {
            known.clear();
        }
        known.insert(name.to_owned(), Arc::clone(&url));
        Ok(url)
    }
}

/// A refusal to tell a URL is the queue's, whatever is wrong with its name.
fn of_queue(refusal: Refusal, name: &str) -> Refusal {
    let blame = match refusal.blame {
        Blame::Event(_) => Blame::Place(Cause::Misconfigured),
        other => other,
    };
    let reason = match blame {
        Blame::Service(_) => refusal.reason,
        _ => format!("looking up `{name}`: {}", refusal.reason),
    };
    Refusal { blame, reason }
}

impl Service for Queues {
    type Message = Message;

    async fn send(&self, place: &str, messages: &[Arc<Message>]) -> Result<Vec<Answer>, Refusal> {
        let url = self.url(place).await?;
        let mut answers = Answers::of(messages.len());
        let entries = messages.iter().enumerate();
        let entries = entries.map(|(at, message)| entry(answers.name(at), message));
        let entries: Result<Vec<_>, _> = entries.collect();
        let entries = entries.map_err(|error| Refusal {
            blame: Blame::Event(RejectionKind::Invalid),
            reason: format!("it makes no message: {error}"),
        })?;
        let batch = self.client.send_message_batch().queue_url(&*url);
        let sent = batch.set_entries(Some(entries)).send().await;
        let answered = sent.map_err(|error| {
            let refusal = Refusal::of_request(&error);
            if refusal.blame == Blame::Place(Cause::Misconfigured) {
                // It may be gone, and another one made.
                self.urls.known().remove(place);
            }
            refusal
        })?;
        for stored in answered.successful() {
            let Some(at) = answers.place(stored.id()) else {
                continue;
            };
            if is_stored(stored, &messages[at].body) {
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

/// Whether it is this body that SQS has stored.
fn is_stored(answer: &SendMessageBatchResultEntry, body: &str) -> bool {
    let hash = Md5::digest(body.as_bytes());
    let hex = hash.iter().map(|byte| format!("{byte:02x}"));
    answer.md5_of_message_body() == hex.collect::<String>()
}

fn entry(name: String, message: &Message) -> Result<SendMessageBatchRequestEntry, BuildError> {
    let mut entry = SendMessageBatchRequestEntry::builder()
        .id(name)
        .message_body(&message.body);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_stored_if_sqs_names_the_md5_of_its_body() {
        for (md5, expected) in [
            ("5d41402abc4b2a76b9719d911017c592", true),
            ("7d793037a0760186574b0282f2f435e7", false),
            ("", false),
        ] {
            let answer = SendMessageBatchResultEntry::builder()
                .id("0")
                .message_id("m")
                .md5_of_message_body(md5)
                .build()
                .unwrap();
            assert_eq!(is_stored(&answer, "hello"), expected, "{md5}");
        }
    }
}
