//! Records as they arrived, with everything that routing can give a record instead of its event's
//! own.

/// A record as a consumer sees it, whoever made its headers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WireRecord {
    /// The key's bytes.
    pub key: Option<Vec<u8>>,
    /// The value; none is a tombstone.
    pub value: Option<Vec<u8>>,
    /// All headers, and attributes wherever the protocol has them; not what stands for key, value
    /// and dedup id where the protocol has no field for these.
    pub headers: Vec<(String, Option<String>)>,
    /// Microseconds since 1970-01-01 UTC.
    pub timestamp: Option<i64>,
    /// The partition, where topics have some.
    pub partition: Option<u32>,
    /// The id by which consumers tell repeats.
    pub wire_id: Option<String>,
}

impl WireRecord {
    /// Its first header of this name.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<String> {
        let mut headers = self.headers.iter();
        headers.find(|(found, _)| found == name)?.1.clone()
    }

    /// Takes its first header of this name away.
    pub fn take_header(&mut self, name: &str) -> Option<String> {
        let at = self.headers.iter().position(|(found, _)| found == name)?;
        self.headers.remove(at).1
    }
}
