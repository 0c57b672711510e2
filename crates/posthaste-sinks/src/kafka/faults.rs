//! The meaning of the client's and the broker's error codes, with the fix for the operator.

use posthaste_engine::{Cause, RejectionKind, SinkError};
use rdkafka::{error::KafkaError, types::RDKafkaErrorCode as Code};

/// An error of the client or the broker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ClientFault {
    pub(super) code: Code,
    pub(super) words: String,
}

impl From<KafkaError> for ClientFault {
    fn from(error: KafkaError) -> Self {
        match error {
            KafkaError::Transaction(error) => Self {
                code: error.code(),
                words: error.string(),
            },
            error => Self {
                code: error.rdkafka_error_code().unwrap_or(Code::Unknown),
                words: error.to_string(),
            },
        }
    }
}

/// The cause of a failed delivery.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Blame {
    /// A record of the refused batch; which one, only sending it alone shows.
    Record(RejectionKind),
    /// We may not write to the topic.
    DeniedTopic,
    /// No record of ours: the destination, or a record elsewhere in the batch.
    Destination(Cause),
}

/// The meaning of a record's delivery report.
pub(super) fn blame(code: Code) -> Blame {
    use RejectionKind::{Invalid, TooLarge};
    match code {
        Code::MessageSizeTooLarge | Code::MessageBatchTooLarge | Code::InvalidMessageSize => {
            Blame::Record(TooLarge)
        }
        // Topics that are the broker's own among them, as `__consumer_offsets`.
        Code::InvalidTopic
        | Code::InvalidRecord
        | Code::InvalidTimestamp
        | Code::PolicyViolation => Blame::Record(Invalid),
        Code::TopicAuthorizationFailed => Blame::DeniedTopic,
        // Said of the others in a batch of which one record is invalid, of what was under way when
        // the producer ended, and of what we purged.
        Code::InvalidDifferentRecord
        | Code::OutOfOrderSequenceNumber
        | Code::Fatal
        | Code::GaplessGuarantee
        | Code::PurgeQueue
        | Code::PurgeInflight => Blame::Destination(Cause::LaneEnded),
        code if is_about_topic(code) => Blame::Destination(Cause::LaneEnded),
        code => Blame::Destination(cause(code)),
    }
}

/// Whether the topic or the partition is not there any more.
pub(super) fn is_about_topic(code: Code) -> bool {
    matches!(
        code,
        Code::UnknownTopic | Code::UnknownTopicOrPartition | Code::UnknownPartition
    )
}

/// The class of a fault of the destination.
pub(super) fn cause(code: Code) -> Cause {
    match code {
        Code::BrokerTransportFailure
        | Code::AllBrokersDown
        // The client discards what it asks a broker that is missing from the cluster's metadata.
        | Code::DestroyBroker
        | Code::Resolve
        | Code::BrokerNotAvailable
        | Code::LeaderNotAvailable
        | Code::NetworkException => Cause::Connection,
        Code::Authentication
        | Code::SaslAuthenticationFailed
        | Code::ClusterAuthorizationFailed
        | Code::TransactionalIdAuthorizationFailed
        | Code::TopicAuthorizationFailed => Cause::Denied,
        Code::SSL
        | Code::UnsupportedSASLMechanism
        | Code::UnsupportedCompressionType
        | Code::UnsupportedForMessageFormat
        | Code::UnsupportedFeature
        | Code::UnsupportedVersion
        | Code::InvalidTransactionTimeout
        | Code::SecurityDisabled => Cause::Misconfigured,
        // Another lane of this relay, or its successor, has taken this one's place.
        Code::Fenced => Cause::LaneEnded,
        _ => Cause::Unknown,
    }
}

/// The fix of a fault that waiting does not mend.
pub(super) fn fix(code: Code) -> &'static str {
    match code {
        Code::Authentication | Code::SaslAuthenticationFailed => {
            "; check user, password and `sasl=` in the address"
        }
        Code::SSL => {
            "; check `ca_file=` in the address, and that the certificate names the host written \
             there"
        }
        Code::ClusterAuthorizationFailed => {
            "; allow the user IDEMPOTENT_WRITE on the cluster, or WRITE on a topic"
        }
        Code::TransactionalIdAuthorizationFailed => {
            "; allow the user WRITE and DESCRIBE on transactional ids that begin with `posthaste.`"
        }
        Code::UnsupportedSASLMechanism => "; choose another `sasl=`",
        Code::UnsupportedCompressionType => "; choose another `compression=`",
        _ => "",
    }
}

/// A fault as the error of an operation that could not begin.
pub(super) fn error(target: &str, code: Code, words: &str) -> SinkError {
    let reason = format!("{words}{}", fix(code));
    SinkError::new(cause(code), target.to_owned(), reason)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_answer_about_the_record_blames_it() {
        for (code, expected) in [
            (
                Code::MessageSizeTooLarge,
                Blame::Record(RejectionKind::TooLarge),
            ),
            (Code::InvalidRecord, Blame::Record(RejectionKind::Invalid)),
            (Code::InvalidTopic, Blame::Record(RejectionKind::Invalid)),
            (Code::TopicAuthorizationFailed, Blame::DeniedTopic),
            (Code::UnknownTopic, Blame::Destination(Cause::LaneEnded)),
            (
                Code::InvalidDifferentRecord,
                Blame::Destination(Cause::LaneEnded),
            ),
            (
                Code::BrokerTransportFailure,
                Blame::Destination(Cause::Connection),
            ),
            (Code::DestroyBroker, Blame::Destination(Cause::Connection)),
            (
                Code::ClusterAuthorizationFailed,
                Blame::Destination(Cause::Denied),
            ),
            (Code::NotEnoughReplicas, Blame::Destination(Cause::Unknown)),
            (Code::Unknown, Blame::Destination(Cause::Unknown)),
            (Code::MessageTimedOut, Blame::Destination(Cause::Unknown)),
        ] {
            assert_eq!(blame(code), expected, "{code:?}");
        }
    }

    #[test]
    fn an_operation_that_could_not_begin_says_whether_waiting_helps() {
        let error = |code| error("kafka://h:1", code, "words");
        assert!(error(Code::AllBrokersDown).is_retryable());
        assert!(error(Code::OperationTimedOut).is_retryable());
        assert_eq!(error(Code::Authentication).cause(), Cause::Denied);
        assert_eq!(error(Code::SSL).cause(), Cause::Misconfigured);
        assert!(error(Code::SSL).to_string().contains("ca_file"));
    }
}
