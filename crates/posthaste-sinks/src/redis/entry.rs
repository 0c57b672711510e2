//! The entry of a record: fields and values of any bytes.

use ::redis::{Cmd, RedisWrite as _};
use posthaste_engine::{Field, Outcome, Record, RejectionKind, wire_id_room};

use crate::jsonl;

/// The attributes of an event that are fields of their own, by the names that the file sink has.
const ATTRIBUTES: [(&str, Field); 7] = [
    ("type", Field::Type),
    ("content_type", Field::ContentType),
    ("correlation_id", Field::CorrelationId),
    ("causation_id", Field::CausationId),
    ("tenant_id", Field::TenantId),
    ("traceparent", Field::Traceparent),
    ("tracestate", Field::Tracestate),
];

/// The words of an entry, and the id by which its repeat is told.
#[derive(Debug)]
pub(super) struct Entry {
    /// Each is whole: its length stands before it in the protocol.
    words: Vec<u8>,
    ends: Vec<usize>,
}

impl Entry {
    /// The entry of a record.
    ///
    /// # Errors
    /// The outcome of a record that has none.
    pub(super) fn of(record: &Record) -> Result<Self, Outcome> {
        let mut entry = Self {
            words: Vec::with_capacity(256 + record.value().map_or(0, <[u8]>::len)),
            ends: Vec::with_capacity(16),
        };
        let mut room = wire_id_room();
        entry.word(record.dedup_id(&mut room).as_bytes());
        entry.field("id", record.wire_id(&mut room).as_bytes());
        entry.field("topic", record.topic().as_bytes());
        if let Some(key) = record.key() {
            entry.field("key", key);
        }
        let mut occurred_at = Vec::with_capacity(27);
        jsonl::write_time(&mut occurred_at, record.timestamp())
            .map_err(|fault| Outcome::rejected(RejectionKind::Invalid, fault.to_string()))?;
        entry.field("occurred_at", &occurred_at);
        for (name, field) in ATTRIBUTES {
            if let Some(value) = record.attribute(field) {
                entry.field(name, value.as_bytes());
            }
        }
        // Pairs, not an object: a repeated name and the order survive (I9).
        let mut headers = Vec::new();
        jsonl::write_headers(&mut headers, record);
        if headers != b"[]" {
            entry.field("headers", &headers);
        }
        if let Some(value) = record.value() {
            entry.field("payload", value);
        }
        Ok(entry)
    }

    fn word(&mut self, word: &[u8]) {
        self.words.extend_from_slice(word);
        self.ends.push(self.words.len());
    }

    fn field(&mut self, name: &str, value: &[u8]) {
        self.word(name.as_bytes());
        self.word(value);
    }

    /// Its bytes.
    pub(super) fn size(&self) -> usize {
        self.words.len()
    }

    /// Adds it to the arguments of a script: its id, the number of its other words, and these.
    pub(super) fn write(&self, command: &mut Cmd) {
        let mut start = 0;
        for (at, &end) in self.ends.iter().enumerate() {
            command.write_arg(&self.words[start..end]);
            if at == 0 {
                command.arg(self.ends.len() - 1);
            }
            start = end;
        }
    }
}

#[cfg(test)]
mod tests {
    use posthaste_testkit::sink_suite::{SuiteEvent, records};

    use super::*;

    fn words(event: SuiteEvent) -> Result<Vec<String>, Outcome> {
        let entry = Entry::of(&records(&[event], 0)[0])?;
        let mut command = Cmd::new();
        entry.write(&mut command);
        let words = command.args_iter().map(|arg| match arg {
            ::redis::Arg::Simple(word) => String::from_utf8(word.to_vec()).unwrap(),
            _ => panic!("a cursor"),
        });
        Ok(words.collect())
    }

    #[test]
    fn fields_come_in_their_order_and_absent_ones_are_left_out() {
        let mut event = SuiteEvent::new(Some("k\n"), "payload");
        event.tenant_id = Some("ü".to_owned());
        event.headers = vec![
            ("b".to_owned(), Some("1".to_owned())),
            ("b".to_owned(), None),
        ];
        let id = event.id.to_string();
        let expected = [
            &*id,
            "14",
            "id",
            &*id,
            "topic",
            "suite",
            "key",
            "k\n",
            "occurred_at",
            "2023-11-14T22:13:20.123456Z",
            "tenant_id",
            "ü",
            "headers",
            r#"[["b","1"],["b",null]]"#,
            "payload",
            "payload",
        ];
        assert_eq!(words(event).unwrap(), expected);
        let mut bare = SuiteEvent::new(None, "");
        bare.payload = None;
        let found = words(bare).unwrap();
        assert_eq!(found[1], "6");
        assert_eq!(
            found[2..].iter().step_by(2).collect::<Vec<_>>(),
            ["id", "topic", "occurred_at"]
        );
    }

    #[test]
    fn a_time_that_cannot_be_written_is_rejected() {
        let mut late = SuiteEvent::new(None, "");
        late.occurred_at = i64::MAX;
        match words(late) {
            Err(Outcome::Rejected(why)) => assert_eq!(why.kind, RejectionKind::Invalid),
            other => panic!("{other:?}"),
        }
    }
}
