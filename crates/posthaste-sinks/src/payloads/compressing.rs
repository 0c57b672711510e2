//! The compression of one payload.

use std::io::{self, Write};

use bytes::Bytes;
use flate2::write::GzEncoder;
use posthaste_engine::Record;

use super::{CONTENT_ENCODING, Compression};

/// The largest payload that is compressed: no longer than a second of one processor, so that the
/// answer to the event comes in time. Few brokers take a larger one.
const BYTES_MAX: usize = 32 << 20;

/// Which payloads are compressed, and how.
#[derive(Debug, Clone, Copy)]
pub(super) struct Compressing {
    pub(super) compression: Compression,
    /// Smaller payloads stay as they are.
    pub(super) bytes_min: usize,
}

impl Compressing {
    /// The payload, if it is to be compressed while an answer is owed.
    pub(super) fn wants(&self, record: &Record) -> Option<Bytes> {
        let size = record.value().map_or(0, <[u8]>::len);
        if size > BYTES_MAX || !self.may_be_encoded(record) {
            return None;
        }
        record.value_bytes()
    }

    /// Whether the payload is large enough, and its writer has not compressed it already.
    pub(super) fn may_be_encoded(&self, record: &Record) -> bool {
        let size = record.value().map_or(0, <[u8]>::len);
        size >= self.bytes_min && size > 0 && !is_encoded(record)
    }

    /// The payload in fewer bytes, its header counted; none where it would grow.
    pub(super) fn compress(&self, payload: &[u8]) -> Option<Bytes> {
        let header = CONTENT_ENCODING.len() + self.compression.name().len();
        let room = payload.len().checked_sub(header + 1)?;
        let out = match self.compression {
            Compression::Gzip => gzip(payload, room),
            Compression::Zstd => zstd(payload, room),
        }?;
        // As long as it is in flight its memory counts: without the spare room.
        Some(Bytes::from(out.into_boxed_slice()))
    }

    /// The record with its payload compressed.
    pub(super) fn apply(&self, record: Record, compressed: Bytes) -> Record {
        let header = (
            CONTENT_ENCODING.into(),
            Some(self.compression.name().into()),
        );
        record
            .with_value(Some(compressed))
            .with_added_headers(vec![header])
    }
}

fn is_encoded(record: &Record) -> bool {
    let mut own = record.own_headers();
    own.any(|(name, _)| name.eq_ignore_ascii_case(CONTENT_ENCODING))
}

/// The level at which gzip's makers see speed and size in balance, as of zstd's below.
fn gzip(payload: &[u8], room: usize) -> Option<Vec<u8>> {
    let out = Bounded {
        bytes: Vec::with_capacity(room / 4),
        room,
    };
    // No name and no time in it: the same payload always has the same bytes.
    let mut encoder = GzEncoder::new(out, flate2::Compression::default());
    // The only error there is: no room.
    encoder.write_all(payload).ok()?;
    Some(encoder.finish().ok()?.bytes)
}

fn zstd(payload: &[u8], room: usize) -> Option<Vec<u8>> {
    let mut out = vec![0; room];
    // The only error there is: no room.
    let size = zstd_safe::compress(&mut out[..], payload, zstd_safe::CLEVEL_DEFAULT).ok()?;
    out.truncate(size);
    Some(out)
}

/// Bytes that are refused beyond so many.
struct Bounded {
    bytes: Vec<u8>,
    room: usize,
}

impl Write for Bounded {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.bytes.len() + bytes.len() > self.room {
            return Err(io::ErrorKind::WriteZero.into());
        }
        self.bytes.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use flate2::read::GzDecoder;
    use posthaste_testkit::sink_suite::{SuiteEvent, records};

    use super::*;

    fn of(compression: Compression) -> Compressing {
        Compressing {
            compression,
            bytes_min: 100,
        }
    }

    fn unpacked(compression: Compression, bytes: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        match compression {
            Compression::Gzip => {
                GzDecoder::new(bytes).read_to_end(&mut out).unwrap();
            }
            Compression::Zstd => {
                out.resize(1 << 20, 0);
                let size = zstd_safe::decompress(&mut out[..], bytes).unwrap();
                out.truncate(size);
            }
        }
        out
    }

    /// Bytes in which no format finds anything.
    fn noise(count: usize) -> Vec<u8> {
        let mut state = 0x9e37_79b9_u32;
        let next = || {
            state ^= state << 13;
            state ^= state >> 17;
            state ^= state << 5;
            state.to_le_bytes()[0]
        };
        std::iter::repeat_with(next).take(count).collect()
    }

    #[test]
    fn a_payload_comes_back_byte_for_byte_and_never_grows() {
        for (_, compression) in Compression::ALL {
            let compressing = of(compression);
            for size in [0, 1, 100, 1_000, 300_000] {
                let text = b"posthaste ".repeat(size / 10 + 1)[..size].to_vec();
                for payload in [text, noise(size)] {
                    let Some(small) = compressing.compress(&payload) else {
                        continue;
                    };
                    assert!(small.len() + CONTENT_ENCODING.len() < payload.len());
                    assert!(unpacked(compression, &small) == payload);
                    assert_eq!(compressing.compress(&payload), Some(small));
                }
            }
            assert!(compressing.compress(&b"a".repeat(1_000)).unwrap().len() < 100);
            assert_eq!(compressing.compress(&noise(100_000)), None);
        }
    }

    #[test]
    fn small_ones_tombstones_and_what_is_compressed_stay_as_they_are() {
        let compressing = of(Compression::Gzip);
        let wanted = |event: &SuiteEvent| {
            let record = &records(std::slice::from_ref(event), 0)[0];
            compressing.wants(record).is_some()
        };
        let mut event = SuiteEvent::new(None, "x".repeat(100));
        assert!(wanted(&event));
        assert!(!wanted(&SuiteEvent::new(None, "x".repeat(99))));
        assert!(!wanted(&SuiteEvent::new(None, "x".repeat(BYTES_MAX + 1))));
        event.headers = vec![("Content-Encoding".to_owned(), Some("br".to_owned()))];
        assert!(!wanted(&event));
        event.headers.clear();
        event.payload = None;
        assert!(!wanted(&event));
    }
}
