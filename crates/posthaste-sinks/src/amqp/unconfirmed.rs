//! Messages that were published and not yet confirmed: which confirm belongs to which.
//!
//! The broker numbers publishes on a channel from 1 on and confirms by number. A message that it
//! could not route it returns *before* it confirms it, without a number: the returned message is
//! told by its message id and routing key, and is the oldest unconfirmed one of both not yet
//! returned. The id alone does not tell: it may have been sent twice, and only one of the two be
//! routable.

use std::collections::VecDeque;

use tokio::time::Instant;

use super::{error::Error, message::Message};

/// How a message ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Confirmation {
    /// The broker took responsibility (`basic.ack`).
    Ack,
    /// It did not (`basic.nack`).
    Nack,
    /// It had nowhere to put the message (`basic.return`).
    Returned {
        /// The reply code.
        code: u16,
        /// The reply text.
        text: String,
    },
}

/// Messages published on one channel, in order, from the oldest that has no answer.
#[derive(Debug)]
pub(super) struct Unconfirmed<M> {
    /// How many were taken off the front: the front's tag is one higher.
    taken: u64,
    /// None: answered, behind one that is not.
    sent: VecDeque<Option<SentMessage<M>>>,
    unanswered: usize,
    bytes: usize,
    /// Behind the last return: the next one is looked for from this tag on.
    returned_to: u64,
}

#[derive(Debug)]
struct SentMessage<M> {
    message: M,
    at: Instant,
    /// Code and text of its return.
    returned: Option<(u16, String)>,
}

impl<M> Default for Unconfirmed<M> {
    fn default() -> Self {
        Self {
            taken: 0,
            sent: VecDeque::new(),
            unanswered: 0,
            bytes: 0,
            returned_to: 0,
        }
    }
}

impl<M: Message> Unconfirmed<M> {
    /// Notes that this message is published, as the next.
    pub(super) fn push(&mut self, message: M, at: Instant) {
        self.bytes += message.body().len();
        self.unanswered += 1;
        self.sent.push_back(Some(SentMessage {
            message,
            at,
            returned: None,
        }));
    }

    /// The message that was pushed last, unless it is answered.
    pub(super) fn last(&self) -> Option<&M> {
        Some(&self.sent.back()?.as_ref()?.message)
    }

    /// Messages without an answer.
    pub(super) fn len(&self) -> usize {
        self.unanswered
    }

    /// Bytes of their bodies.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// When the oldest message without an answer was published.
    pub(super) fn oldest(&self) -> Option<Instant> {
        Some(self.sent.front()?.as_ref()?.at)
    }

    /// The broker had nowhere to put a message with this id and routing key.
    pub(super) fn returned(
        &mut self,
        message_id: &str,
        routing_key: &str,
        why: (u16, String),
    ) -> Result<(), Error> {
        let from = usize::try_from(self.returned_to.saturating_sub(self.taken)).unwrap_or(0);
        let is_it = |sent: &Option<SentMessage<M>>| {
            sent.as_ref().is_some_and(|sent| {
                sent.returned.is_none()
                    && sent.message.routing_key() == routing_key
                    && sent.message.has_id(message_id)
            })
        };
        let after = self
            .sent
            .iter()
            .skip(from)
            .position(is_it)
            .map(|at| at + from);
        // Returns come in the order of publishing; should they not, they still count.
        let at = after.or_else(|| self.sent.iter().position(is_it));
        let Some((at, sent)) = at.and_then(|at| Some((at, self.sent[at].as_mut()?))) else {
            return Err(Error::Mismatch(format!(
                "it returned message `{message_id}`, which was not in flight"
            )));
        };
        self.returned_to = self.taken + at as u64 + 1;
        sent.returned = Some(why);
        Ok(())
    }

    /// The broker confirmed the message of this tag, or all up to it: took responsibility, or not.
    pub(super) fn confirmed(
        &mut self,
        tag: u64,
        multiple: bool,
        taken_over: bool,
        ended: &mut Vec<(M, Confirmation)>,
    ) -> Result<(), Error> {
        let newest = self.taken + self.sent.len() as u64;
        // In a confirm of many, 0 means all.
        let tag = if multiple && tag == 0 { newest } else { tag };
        if tag > newest || tag == 0 {
            return Err(Error::Mismatch(format!(
                "it confirmed message {tag} of {newest} on this channel"
            )));
        }
        // A tag below the front was answered long ago; it says nothing new.
        let Ok(end) = usize::try_from(tag.saturating_sub(self.taken)) else {
            return Ok(());
        };
        let from = if multiple { 0 } else { end.saturating_sub(1) };
        for sent in self.sent.range_mut(from..end).filter_map(Option::take) {
            self.unanswered -= 1;
            self.bytes -= sent.message.body().len();
            let confirmation = match (sent.returned, taken_over) {
                (Some((code, text)), _) => Confirmation::Returned { code, text },
                (None, true) => Confirmation::Ack,
                (None, false) => Confirmation::Nack,
            };
            ended.push((sent.message, confirmation));
        }
        while matches!(self.sent.front(), Some(None)) {
            self.sent.pop_front();
            self.taken += 1;
        }
        Ok(())
    }

    /// The messages without an answer.
    pub(super) fn into_messages(self) -> impl Iterator<Item = M> {
        self.sent.into_iter().flatten().map(|sent| sent.message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Clone)]
    struct Sample {
        id: String,
        routing_key: &'static str,
        number: u64,
    }

    impl Message for Sample {
        type Refusal = ();

        fn has_id(&self, id: &str) -> bool {
            self.id == id
        }

        fn routing_key(&self) -> &str {
            self.routing_key
        }

        fn body(&self) -> &[u8] {
            b"1234"
        }

        fn write_start(&self, _: &mut Vec<u8>, _: &str, _: usize) -> Result<(), ()> {
            Ok(())
        }
    }

    struct Channel {
        unconfirmed: Unconfirmed<Sample>,
        ended: Vec<(Sample, Confirmation)>,
    }

    impl Channel {
        /// Each message published, with its place as its number.
        fn with(messages: &[Sample]) -> Self {
            let mut unconfirmed = Unconfirmed::default();
            for (number, message) in (0..).zip(messages) {
                let message = Sample {
                    number,
                    ..message.clone()
                };
                unconfirmed.push(message, Instant::now());
            }
            Self {
                unconfirmed,
                ended: Vec::new(),
            }
        }

        fn ack(&mut self, tag: u64, multiple: bool) -> Result<(), Error> {
            self.unconfirmed
                .confirmed(tag, multiple, true, &mut self.ended)
        }

        fn nack(&mut self, tag: u64, multiple: bool) {
            let confirmed = self
                .unconfirmed
                .confirmed(tag, multiple, false, &mut self.ended);
            confirmed.unwrap();
        }

        fn bounce(&mut self, message: &Sample) -> Result<(), Error> {
            let why = (312, "NO_ROUTE".to_owned());
            self.unconfirmed
                .returned(&message.id, message.routing_key, why)
        }

        /// Number and how it ended, since the last call.
        fn told(&mut self) -> Vec<(u64, char)> {
            let told = self.ended.drain(..).map(|(message, answer)| {
                let how = match answer {
                    Confirmation::Ack => 'a',
                    Confirmation::Returned { .. } => 'r',
                    Confirmation::Nack => 'u',
                };
                (message.number, how)
            });
            told.collect()
        }
    }

    fn messages(count: usize) -> Vec<Sample> {
        (0..count)
            .map(|number| Sample {
                id: format!("id-{number}"),
                routing_key: "orders",
                number: 0,
            })
            .collect()
    }

    #[test]
    fn each_confirm_finds_its_record() {
        let mut channel = Channel::with(&messages(8));
        assert_eq!(
            (channel.unconfirmed.len(), channel.unconfirmed.bytes()),
            (8, 32)
        );
        channel.ack(3, false).unwrap();
        assert_eq!(channel.told(), [(2, 'a')]);
        channel.nack(2, true);
        assert_eq!(channel.told(), [(0, 'u'), (1, 'u')]);
        // Again, and below what is still known.
        channel.ack(3, true).unwrap();
        channel.ack(1, false).unwrap();
        assert_eq!(channel.told(), []);
        channel.nack(5, false);
        channel.ack(6, true).unwrap();
        assert_eq!(channel.told(), [(4, 'u'), (3, 'a'), (5, 'a')]);
        assert_eq!(
            (channel.unconfirmed.len(), channel.unconfirmed.bytes()),
            (2, 8)
        );
        channel.ack(0, true).unwrap();
        assert_eq!(channel.told(), [(6, 'a'), (7, 'a')]);
        assert_eq!(channel.unconfirmed.oldest(), None);
    }

    #[test]
    fn a_return_counts_for_its_own_record() {
        let sent = messages(6);
        let mut channel = Channel::with(&sent);
        channel.bounce(&sent[1]).unwrap();
        channel.bounce(&sent[4]).unwrap();
        // Out of order, which no broker does.
        channel.bounce(&sent[0]).unwrap();
        channel.ack(4, true).unwrap();
        assert_eq!(channel.told(), [(0, 'r'), (1, 'r'), (2, 'a'), (3, 'a')]);
        channel.nack(5, false);
        channel.ack(6, false).unwrap();
        assert_eq!(channel.told(), [(4, 'r'), (5, 'a')]);
    }

    #[test]
    fn of_one_id_the_oldest_is_returned() {
        let mut sent = messages(3);
        sent[1] = sent[0].clone();
        sent[2] = sent[0].clone();
        let mut channel = Channel::with(&sent);
        channel.bounce(&sent[0]).unwrap();
        channel.bounce(&sent[0]).unwrap();
        channel.ack(3, true).unwrap();
        assert_eq!(channel.told(), [(0, 'r'), (1, 'r'), (2, 'a')]);
    }

    #[test]
    fn of_one_id_the_one_with_the_returned_routing_key_is_meant() {
        let mut sent = messages(2);
        sent[1].id = sent[0].id.clone();
        sent[1].routing_key = "nobody.wants.this";
        let mut channel = Channel::with(&sent);
        channel.bounce(&sent[1]).unwrap();
        channel.ack(2, true).unwrap();
        assert_eq!(channel.told(), [(0, 'a'), (1, 'r')]);
    }

    #[test]
    fn answers_that_fit_nothing_are_refused() {
        let sent = messages(2);
        let mut channel = Channel::with(&sent[..1]);
        assert!(channel.bounce(&sent[1]).is_err());
        assert!(
            channel
                .unconfirmed
                .returned("", "", (0, String::new()))
                .is_err()
        );
        assert!(channel.ack(2, false).is_err());
        assert!(channel.ack(2, true).is_err());
        assert!(channel.ack(0, false).is_err());
        channel.ack(1, false).unwrap();
        assert!(channel.bounce(&sent[0]).is_err());
        assert_eq!(channel.unconfirmed.into_messages().count(), 0);
    }
}
