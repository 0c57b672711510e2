//! Requests to topics.

use std::sync::Arc;

use posthaste_engine::Cause;

use super::{channel::Channel, message::Message, wire::PublishRequest};
use crate::requests::{
    refusal::{Answer, Refusal},
    target::Service,
};

/// The topics of a project.
pub(super) struct Topics {
    pub(super) channel: Channel,
    pub(super) project: Arc<str>,
}

/// The name of a topic among all.
pub(super) fn resource(project: &str, topic: &str) -> String {
    format!("projects/{project}/topics/{topic}")
}

impl Service for Topics {
    type Message = Message;

    /// Pub/Sub takes a request as a whole, or nothing of it.
    async fn send(&self, place: &str, messages: &[Arc<Message>]) -> Result<Vec<Answer>, Refusal> {
        let request = PublishRequest {
            topic: resource(&self.project, place),
            messages: messages.iter().map(|m| m.encoded.clone()).collect(),
        };
        let answer = self.channel.call(&request).await?;
        match answer.message_ids.len() == messages.len() {
            true => Ok(vec![Ok(()); messages.len()]),
            false => {
                let reason = "what answers there is no Pub/Sub; correct `endpoint`";
                Err(Refusal::unclear(Cause::Misconfigured, reason))
            }
        }
    }
}
