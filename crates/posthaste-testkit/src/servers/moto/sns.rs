//! Topics of SNS.

use super::{ACCOUNT, MotoServer};

impl MotoServer {
    /// The ARN of a topic.
    #[must_use]
    pub fn arn(&self, topic: &str) -> String {
        format!("arn:aws:sns:eu-central-1:{ACCOUNT}:{topic}")
    }

    /// Makes a topic, and a queue of the same name that has what is published there.
    ///
    /// # Panics
    ///
    /// When the server refuses.
    pub fn create_topic(&self, topic: &str) {
        let client = self.client();
        let fifo = [
            ("Attributes.entry.1.key", "FifoTopic"),
            ("Attributes.entry.1.value", "true"),
        ];
        let named = [("Action", "CreateTopic"), ("Name", topic)];
        let is_fifo = topic.ends_with(".fifo");
        let more = if is_fifo { &fifo[..] } else { &[] };
        let _ = client.ask_sns(&[&named, more].concat());
        let _ = client.create_queue(topic, &[]);
        let queue = self.arn(topic).replace(":sns:", ":sqs:");
        let _ = client.ask_sns(&[
            ("Action", "Subscribe"),
            ("TopicArn", &self.arn(topic)),
            ("Protocol", "sqs"),
            ("Endpoint", &queue),
            ("Attributes.entry.1.key", "RawMessageDelivery"),
            ("Attributes.entry.1.value", "true"),
        ]);
    }

    /// Deletes a topic, and leaves its queue.
    ///
    /// # Panics
    ///
    /// When the server refuses.
    pub fn delete_topic(&self, topic: &str) {
        let arn = self.arn(topic);
        let _ = self
            .client()
            .ask_sns(&[("Action", "DeleteTopic"), ("TopicArn", &arn)]);
    }
}
