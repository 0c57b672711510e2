//! The record of an event: a key that chooses its shard, and the line of JSON that the sinks `file`
//! and `stdout` write. Kinesis has nothing but these two, and the line has all of an event.

use aws_sdk_kinesis::primitives::Blob;
use posthaste_engine::{Outcome, Record, RejectionKind, wire_id_room};

use crate::{
    aws::digest::sha256,
    jsonl,
    requests::target::{Encoded, Target},
};

/// Characters of a key, as the service counts them: in UTF-16.
const KEY_CHARS_MAX: usize = 256;

/// A record that was not put yet.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) partition_key: String,
    pub(super) data: Blob,
}

impl Encoded for Entry {
    fn encode(record: &Record, target: &Target) -> Result<Self, Outcome> {
        let mut line = Vec::new();
        jsonl::write_line(&mut line, record)
            .map_err(|fault| Outcome::rejected(RejectionKind::Invalid, fault.to_string()))?;
        let entry = Self {
            partition_key: partition_key(record),
            data: Blob::new(line),
        };
        let (bytes, bytes_max) = (entry.bytes(), target.message_bytes_max);
        match bytes > bytes_max {
            true => Err(Outcome::rejected(
                RejectionKind::TooLarge,
                format!(
                    "a record of {bytes} bytes, its key and all fields included; it has \
                     {bytes_max} at the most"
                ),
            )),
            false => Ok(entry),
        }
    }

    fn bytes(&self) -> usize {
        self.partition_key.len() + self.data.as_ref().len()
    }
}

/// The record's key as it is, or a hash of one that is none. Records without a key spread by their
/// ids.
fn partition_key(record: &Record) -> String {
    let Some(key) = record.key() else {
        return record.wire_id(&mut wire_id_room()).to_owned();
    };
    let is_one = |text: &&str| (1..=KEY_CHARS_MAX).contains(&text.encode_utf16().count());
    match std::str::from_utf8(key).ok().filter(is_one) {
        Some(text) => text.to_owned(),
        None => sha256(key),
    }
}

#[cfg(test)]
mod tests {
    use posthaste_testkit::sink_suite::{SuiteEvent, records};

    use super::*;
    use crate::requests::{
        place_name::{NamePattern, NameRule},
        target::CallLimits,
    };

    fn target() -> Target {
        Target {
            kind: "stream",
            names: NamePattern::new("s", 128, NameRule::WithDots).unwrap(),
            event_bytes_max: None,
            message_bytes_max: 2_000,
            call: CallLimits {
                events: 1,
                bytes: 1,
                events_of_all: 1,
            },
        }
    }

    fn record(event: &SuiteEvent) -> Record {
        records(std::slice::from_ref(event), 0).remove(0)
    }

    #[test]
    fn a_key_is_the_records_where_it_may_be() {
        let event = SuiteEvent::new(None, "x");
        assert_eq!(partition_key(&record(&event)), event.id.to_string());
        let (longest, longer) = ("ü".repeat(256), "😀".repeat(129));
        for (key, is_kept) in [
            (&b"order 1\n"[..], true),
            (longest.as_bytes(), true),
            (longer.as_bytes(), false),
            (b"", false),
            (b"\xff", false),
        ] {
            let found = partition_key(&record(&event).with_key(Some(key.to_owned())));
            match is_kept {
                true => assert_eq!(found.as_bytes(), key),
                false => assert_eq!(found, sha256(key)),
            }
        }
        let empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        assert_eq!(sha256(b""), empty);
    }

    #[test]
    fn a_record_is_measured_with_its_key() {
        // One record: the numbers of others have more digits, or fewer.
        let record = record(&SuiteEvent::new(Some("k"), "x"));
        let mut target = target();
        let bytes = Entry::encode(&record, &target).unwrap().bytes();
        target.message_bytes_max = bytes;
        assert_eq!(Entry::encode(&record, &target).unwrap().bytes(), bytes);
        target.message_bytes_max = bytes - 1;
        match Entry::encode(&record, &target) {
            Err(Outcome::Rejected(why)) => assert_eq!(why.kind, RejectionKind::TooLarge),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_time_that_no_line_can_hold_is_rejected() {
        let mut late = SuiteEvent::new(None, "");
        late.occurred_at = i64::MAX;
        match Entry::encode(&record(&late), &target()) {
            Err(Outcome::Rejected(why)) => assert_eq!(why.kind, RejectionKind::Invalid),
            other => panic!("{other:?}"),
        }
    }
}
