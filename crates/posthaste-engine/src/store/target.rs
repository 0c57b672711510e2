//! Where a destination's events go, and in which order: to one address at a time, in one order for
//! good, whatever its relays are told.

use uuid::Uuid;

use super::{ClaimRequest, Shares, StoreError};
use crate::OrderBy;

impl ClaimRequest<'_> {
    /// True where the stored address differs from the one that this relay was told. The events go
    /// on to the stored one while another live relay serves the destination
    /// ([`Shares::is_served_beside`]); else two relays would split one outbox between two brokers.
    /// `stored` is empty where nobody has claimed the destination yet.
    ///
    /// # Errors
    /// [`StoreError::Misconfigured`] where it is another kind of broker, unless that is meant
    /// ([`ClaimRequest::retarget`]), and where the destination keeps another order.
    pub fn is_elsewhere(&self, operation: &'static str, stored: &str) -> Result<bool, StoreError> {
        let (name, address) = (self.destination, self.address);
        if stored.is_empty() || split(stored) == split(address) {
            return Ok(false);
        }
        let ((order, stored), (wanted, address)) =
            (OrderBy::of_target(stored), OrderBy::of_target(address));
        let refused = |reason| StoreError::Misconfigured { operation, reason };
        if order != wanted {
            let (order, wanted) = (order.as_str(), wanted.as_str());
            return Err(refused(format!(
                "destination `{name}` was made with the order `{order}`, and this relay is told to \
                 keep the order `{wanted}`: what waits is written in terms of the first\nfix: set \
                 `order` of `{name}` to `{order}`, or give this relay a destination of its own \
                 (`--destination NAME`)"
            )));
        }
        if kind(stored) == kind(address) || self.retarget {
            return Ok(true);
        }
        Err(refused(format!(
            "destination `{name}` delivers to `{stored}`, and this relay is told to deliver to \
                 `{address}`, another kind of broker\nfix: give this relay a destination of its \
                 own (`--destination NAME`); or, if `{name}` is to go on there, stop its relays \
                 and start one with `--retarget`"
        )))
    }
}

impl ClaimRequest<'_> {
    /// Whether relays of versions that do not know the order `key-and-topic` may do harm beside
    /// this claim: their housekeeping would pass over what waits in it.
    #[must_use]
    pub fn needs_relays_that_know_its_order(&self) -> bool {
        OrderBy::of_target(self.address).0 == OrderBy::KeyAndTopic
    }

    /// This live relay is of such a version: the claim waits until it is gone.
    #[must_use]
    pub fn beside_older(&self, operation: &'static str, relay: &str) -> StoreError {
        StoreError::Unavailable {
            operation,
            reason: format!(
                "relay `{relay}` is of a version that does not know the order `key-and-topic`, and \
                 would lose what waits for `{}`: waiting until it has stopped\nfix: stop it, or \
                 upgrade it",
                self.destination
            ),
            source: None,
        }
    }
}

impl Shares {
    /// Whether a live relay beside this one serves the destination.
    #[must_use]
    pub fn is_served_beside(&self, registration: Uuid) -> bool {
        let mut members = self.members.iter();
        members.any(|member| member.registration != registration)
    }
}

/// An address's scheme. Where it ends with `s`, that says TLS: `amqps` is the same broker as
/// `amqp`.
fn kind(address: &str) -> String {
    let (scheme, _) = split(address);
    scheme.strip_suffix('s').unwrap_or(&scheme).to_owned()
}

/// The scheme, which may be written in capitals, and the rest.
fn split(address: &str) -> (String, &str) {
    let (scheme, rest) = address.split_once(':').unwrap_or((address, ""));
    (scheme.to_ascii_lowercase(), rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_elsewhere(stored: &str, told: &str, retarget: bool) -> Option<bool> {
        let request = ClaimRequest {
            retarget,
            ..ClaimRequest::all("default", told)
        };
        request.is_elsewhere("claim", stored).ok()
    }

    #[test]
    fn another_kind_of_broker_is_refused_unless_it_is_meant() {
        assert_eq!(is_elsewhere("", "kafka://a", false), Some(false));
        assert_eq!(is_elsewhere("kafka://a", "kafka://a", false), Some(false));
        assert_eq!(is_elsewhere("kafka://a", "kafka://b", false), Some(true));
        assert_eq!(
            is_elsewhere("amqp://a/?exchange=e", "amqps://a/?exchange=e", false),
            Some(true)
        );
        assert_eq!(is_elsewhere("KAFKA://a", "kafka://a", false), Some(false));
        assert_eq!(is_elsewhere("null:", "file:///a", false), None);
        assert_eq!(is_elsewhere("kafka://a", "amqp://a", false), None);
        assert_eq!(is_elsewhere("kafka://a", "amqp://a", true), Some(true));
    }

    #[test]
    fn another_order_is_refused_whatever_is_meant() {
        let by_topic = "key-and-topic+kafka://a";
        assert_eq!(is_elsewhere(by_topic, by_topic, false), Some(false));
        assert_eq!(is_elsewhere("", by_topic, false), Some(false));
        let other = "key-and-topic+kafka://b";
        assert_eq!(is_elsewhere(by_topic, other, false), Some(true));
        for told in ["kafka://a", "amqp://a"] {
            assert_eq!(is_elsewhere(by_topic, told, true), None);
            assert_eq!(is_elsewhere(told, by_topic, true), None);
        }
    }

    #[test]
    fn the_refusal_names_both_and_the_way_out() {
        let request = ClaimRequest::all("default", "amqp://a");
        let said = request
            .is_elsewhere("claim", "kafka://b")
            .unwrap_err()
            .to_string();
        for part in ["`default`", "`kafka://b`", "`amqp://a`", "`--retarget`"] {
            assert!(said.contains(part), "{said}");
        }
    }
}
