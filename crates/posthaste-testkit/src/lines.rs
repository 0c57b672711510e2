//! Reading the JSON Lines that the stdout and file sinks write.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::Path;
use uuid::Uuid;

/// One delivered event, as a line states it. Unknown fields are an error: the format is a promise.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Line {
    /// Position in the outbox; it may be issued again after a crash of the database.
    pub seq: i64,
    /// The event's own id.
    pub id: Uuid,
    /// Where it was routed.
    pub topic: String,
    /// Its key of order, if it has one.
    pub key: Option<String>,
    /// The same in base64, instead of a key that is not UTF-8.
    pub key_base64: Option<String>,
    /// Its type, if it has one.
    pub r#type: Option<String>,
    /// The payload's media type, if the writer gave one.
    pub content_type: Option<String>,
    /// Names and values in the writer's order; a name may come twice, a value may be none.
    pub headers: Vec<(String, Option<String>)>,
    payload: Option<String>,
    payload_base64: Option<String>,
    /// The writer's time, RFC 3339 with microseconds, UTC.
    pub occurred_at: Option<String>,
    /// See the event's fields of this name.
    pub correlation_id: Option<String>,
    /// See the event's fields of this name.
    pub causation_id: Option<String>,
    /// See the event's fields of this name.
    pub tenant_id: Option<String>,
    /// See the event's fields of this name; only on the line when the event has it.
    pub traceparent: Option<String>,
    /// See the event's fields of this name; only on the line when the event has it.
    pub tracestate: Option<String>,
}

impl Line {
    /// Reads one line.
    ///
    /// # Errors
    ///
    /// When it is no such object, or is torn.
    pub fn parse(line: &str) -> serde_json::Result<Self> {
        serde_json::from_str(line)
    }

    /// The payload's bytes, or none (a tombstone).
    ///
    /// # Panics
    ///
    /// When the line gives the payload twice, or in bad base64.
    #[must_use]
    pub fn payload(&self) -> Option<Vec<u8>> {
        match (&self.payload, &self.payload_base64) {
            (None, None) => None,
            (Some(text), None) => Some(text.clone().into_bytes()),
            (None, Some(coded)) => Some(STANDARD.decode(coded).expect("base64 of a payload")),
            (Some(_), Some(_)) => panic!("both payload and payload_base64 in seq {}", self.seq),
        }
    }
}

/// Reads a file of lines one by one.
///
/// # Errors
///
/// When the file cannot be opened; then for each line that cannot be read or parsed, with its
/// number. An unfinished last line is an error too: what counts as accepted ends with a line end.
pub fn read(file: &Path) -> io::Result<impl Iterator<Item = io::Result<Line>>> {
    let mut reader = BufReader::with_capacity(256 * 1024, File::open(file)?);
    let (mut text, mut number) = (String::new(), 0_u64);
    Ok(std::iter::from_fn(move || {
        text.clear();
        number += 1;
        let bad = |why: &dyn std::fmt::Display| {
            io::Error::new(io::ErrorKind::InvalidData, format!("line {number}: {why}"))
        };
        match reader.read_line(&mut text) {
            Ok(0) => None,
            Ok(_) if !text.ends_with('\n') => Some(Err(bad(&"torn, it has no end"))),
            Ok(_) => Some(Line::parse(&text).map_err(|e| bad(&e))),
            Err(e) => Some(Err(bad(&e))),
        }
    }))
}

#[cfg(test)]
mod tests {
    use super::{Line, read};
    use std::io::Write;

    const GOOD: &str = concat!(
        r#"{"seq":7,"id":"01890a5d-ac96-774b-bcce-b302099a8057","topic":"orders","key":"k","#,
        r#""headers":[["a","1"],["a",null]],"payload":"{\"n\":1}"}"#,
    );

    #[test]
    fn payloads_come_as_text_as_base64_or_not_at_all() {
        let text = Line::parse(GOOD).unwrap();
        assert_eq!((text.seq, text.key.as_deref()), (7, Some("k")));
        let headers = [
            ("a".to_owned(), Some("1".to_owned())),
            ("a".to_owned(), None),
        ];
        assert_eq!(text.headers, headers);
        assert_eq!(text.payload().unwrap(), b"{\"n\":1}");
        let coded = GOOD.replace(r#""payload":"{\"n\":1}""#, r#""payload_base64":"/wA=""#);
        assert_eq!(Line::parse(&coded).unwrap().payload().unwrap(), [0xff, 0]);
        let none = GOOD.replace(r#","payload":"{\"n\":1}""#, "");
        assert_eq!(Line::parse(&none).unwrap().payload(), None);
        assert!(Line::parse(&GOOD.replace("topic", "tropic")).is_err());
    }

    #[test]
    fn a_torn_or_damaged_line_is_an_error_with_its_number() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        write!(file, "{GOOD}\nnonsense\n{GOOD}\n{}", &GOOD[..30]).unwrap();
        let read: Vec<_> = read(file.path()).unwrap().collect();
        assert_eq!(read.len(), 4);
        assert!(read[0].is_ok() && read[2].is_ok());
        assert!(
            read[1]
                .as_ref()
                .unwrap_err()
                .to_string()
                .starts_with("line 2: ")
        );
        assert!(
            read[3]
                .as_ref()
                .unwrap_err()
                .to_string()
                .contains("line 4: torn")
        );
    }
}
