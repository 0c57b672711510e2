//! Ids as they go over the wire, and the identity of events that have no UUID.

use uuid::{Uuid, fmt::Hyphenated};

/// Room in which an id without text is rendered. Ids are rendered for each record.
pub type WireIdRoom = [u8; Hyphenated::LENGTH];

/// Room for [`Record::wire_id`](crate::Record::wire_id) and the like.
#[must_use]
pub fn wire_id_room() -> WireIdRoom {
    [0; Hyphenated::LENGTH]
}

/// The id of an event that has no UUID.
///
/// An event of our own outbox has a UUID, whose text is its wire id. An event of a foreign table
/// has the id of its row as text: that is its wire id, and a UUID made of it stands for it in our
/// tables. A foreign store owes the same text for the same event whenever it reads it, also after a
/// restart, and another text for another event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ForeignId<'a>(&'a str);

/// A text that can be no id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("an event's id of {0} bytes: it has 1 to {BYTES_MAX}")]
pub struct ForeignIdError(usize);

/// Bytes of an id: RabbitMQ's `message-id` takes no more.
const BYTES_MAX: usize = 255;

/// Fixed for good: stored ids are made with it.
const NAMESPACE: Uuid = Uuid::from_u128(0x3f12_7344_37ad_4ea6_898f_6381_7ac5_e743);

impl<'a> ForeignId<'a> {
    /// The id of this text.
    ///
    /// # Errors
    /// It is empty, or longer than 255 bytes.
    pub fn new(text: &'a str) -> Result<Self, ForeignIdError> {
        match text.len() {
            1..=BYTES_MAX => Ok(Self(text)),
            bytes => Err(ForeignIdError(bytes)),
        }
    }

    /// The text.
    #[must_use]
    pub fn as_str(self) -> &'a str {
        self.0
    }

    /// The UUID that stands for it in our tables: version 5, always the same for the same text.
    #[must_use]
    pub fn uuid(self) -> Uuid {
        Uuid::new_v5(&NAMESPACE, self.0.as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_has_a_length_and_its_uuid_stays() {
        let longest = "x".repeat(BYTES_MAX);
        assert!(ForeignId::new(&longest).is_ok());
        for wrong in ["", &*"x".repeat(BYTES_MAX + 1)] {
            assert_eq!(ForeignId::new(wrong), Err(ForeignIdError(wrong.len())));
        }
        let uuid = ForeignId::new("orders-41").unwrap().uuid();
        assert_eq!(uuid.to_string(), "ce41a98c-fdc5-5bfd-a083-efac7e01aa96");
    }
}
