//! The messages of Pub/Sub's interface, as far as this sink needs them. The numbers are those of
//! Google's definitions (`google/pubsub/v1/pubsub.proto`, `google/iam/v1/iam_policy.proto`).

use bytes::Bytes;
use prost::Message;

/// A question of the interface, and the type of its answer.
pub(super) trait Question: Message {
    type Answer: Message + Default;
    /// The path of its call.
    const PATH: &str;
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct PublishRequest {
    #[prost(string, tag = "1")]
    pub(super) topic: String,
    /// Each is a [`PubsubMessage`] in its own encoding, which is the same as that of bytes: it is
    /// made once, however often it is sent.
    #[prost(bytes = "bytes", repeated, tag = "2")]
    pub(super) messages: Vec<Bytes>,
}

impl Question for PublishRequest {
    type Answer = PublishResponse;
    const PATH: &str = "/google.pubsub.v1.Publisher/Publish";
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct PublishResponse {
    /// In the order of the messages.
    #[prost(string, repeated, tag = "1")]
    pub(super) message_ids: Vec<String>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct PubsubMessage {
    #[prost(bytes = "bytes", tag = "1")]
    pub(super) data: Bytes,
    /// A map is a list of its entries.
    #[prost(message, repeated, tag = "2")]
    pub(super) attributes: Vec<Attribute>,
    #[prost(string, tag = "5")]
    pub(super) ordering_key: String,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct Attribute {
    #[prost(string, tag = "1")]
    pub(super) name: String,
    #[prost(string, tag = "2")]
    pub(super) value: String,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct GetTopicRequest {
    #[prost(string, tag = "1")]
    pub(super) topic: String,
}

impl Question for GetTopicRequest {
    type Answer = Topic;
    const PATH: &str = "/google.pubsub.v1.Publisher/GetTopic";
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Topic {
    #[prost(string, tag = "1")]
    pub(super) name: String,
    #[prost(message, optional, tag = "3")]
    pub(super) storage: Option<StoragePolicy>,
    #[prost(string, tag = "5")]
    pub(super) kms_key_name: String,
    #[prost(message, optional, tag = "6")]
    pub(super) schema: Option<SchemaSettings>,
    #[prost(message, optional, tag = "8")]
    pub(super) retention: Option<Duration>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct StoragePolicy {
    #[prost(string, repeated, tag = "1")]
    pub(super) regions: Vec<String>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct SchemaSettings {
    #[prost(string, tag = "1")]
    pub(super) schema: String,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Duration {
    #[prost(int64, tag = "1")]
    pub(super) seconds: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct ListTopicSubscriptionsRequest {
    #[prost(string, tag = "1")]
    pub(super) topic: String,
    #[prost(int32, tag = "2")]
    pub(super) page_size: i32,
}

impl Question for ListTopicSubscriptionsRequest {
    type Answer = ListTopicSubscriptionsResponse;
    const PATH: &str = "/google.pubsub.v1.Publisher/ListTopicSubscriptions";
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct ListTopicSubscriptionsResponse {
    #[prost(string, repeated, tag = "1")]
    pub(super) subscriptions: Vec<String>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct GetSubscriptionRequest {
    #[prost(string, tag = "1")]
    pub(super) subscription: String,
}

impl Question for GetSubscriptionRequest {
    type Answer = Subscription;
    const PATH: &str = "/google.pubsub.v1.Subscriber/GetSubscription";
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Subscription {
    #[prost(string, tag = "1")]
    pub(super) name: String,
    #[prost(message, optional, tag = "8")]
    pub(super) retention: Option<Duration>,
    #[prost(bool, tag = "10")]
    pub(super) has_ordering: bool,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct TestIamPermissionsRequest {
    #[prost(string, tag = "1")]
    pub(super) resource: String,
    #[prost(string, repeated, tag = "2")]
    pub(super) permissions: Vec<String>,
}

impl Question for TestIamPermissionsRequest {
    type Answer = TestIamPermissionsResponse;
    const PATH: &str = "/google.iam.v1.IAMPolicy/TestIamPermissions";
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct TestIamPermissionsResponse {
    /// Those that we have.
    #[prost(string, repeated, tag = "1")]
    pub(super) permissions: Vec<String>,
}
