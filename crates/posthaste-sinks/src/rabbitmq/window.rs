//! What was published and not yet confirmed: which answer belongs to which record.
//!
//! The broker numbers publishes on a channel from 1 on and confirms by number. A message that it could
//! not route it returns *before* it confirms it, without a number: the returned message is told by its
//! message id and routing key, and is the oldest unconfirmed one of both not yet returned. The id alone does
//! not tell: it may have been emitted twice, and only one of the two be routable.

use std::{collections::VecDeque, sync::Arc};

use posthaste_engine::{Cause, Outcome, Record, RejectionKind, Unavailability, Verdict};
use tokio::time::Instant;

use super::RETRY_WAIT;

/// Records published on one channel, in order, from the oldest that has no answer.
#[derive(Debug, Default)]
pub(super) struct Window {
    /// How many were taken off the front: the front's tag is one higher.
    taken: u64,
    sent: VecDeque<Sent>,
    unanswered: usize,
    bytes: usize,
    /// Behind the last return: the next one is looked for from this tag on.
    returned_to: u64,
}

#[derive(Debug)]
struct Sent {
    record: Record,
    at: Instant,
    /// Why it was returned.
    returned: Option<String>,
    answered: bool,
}

/// An answer that fits nothing that was published.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Mismatch(pub(super) String);

impl Window {
    /// Notes that this record is published, as the next.
    pub(super) fn push(&mut self, record: Record, at: Instant) {
        self.bytes += size(&record);
        self.unanswered += 1;
        self.sent.push_back(Sent {
            record,
            at,
            returned: None,
            answered: false,
        });
    }

    /// The record that was pushed last, unless it is answered and gone.
    pub(super) fn last(&self) -> Option<&Record> {
        self.sent.back().map(|sent| &sent.record)
    }

    /// Records without an answer.
    pub(super) fn len(&self) -> usize {
        self.unanswered
    }

    /// Bytes of their payloads.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// When the oldest record without an answer was published.
    pub(super) fn oldest(&self) -> Option<Instant> {
        self.sent.front().map(|sent| sent.at)
    }

    /// The broker had nowhere to put a message with this id and routing key.
    pub(super) fn returned(
        &mut self,
        message_id: &str,
        routing_key: &str,
        why: String,
    ) -> Result<(), Mismatch> {
        let from = usize::try_from(self.returned_to.saturating_sub(self.taken)).unwrap_or(0);
        let is_it = |sent: &Sent| {
            !sent.answered
                && sent.returned.is_none()
                && sent.record.topic() == routing_key
                && *sent
                    .record
                    .event()
                    .id()
                    .hyphenated()
                    .encode_lower(&mut [0; 36])
                    == *message_id
        };
        let after = self
            .sent
            .iter()
            .skip(from)
            .position(is_it)
            .map(|at| at + from);
        // Returns come in the order of publishing; should they not, they still count.
        let at = after.or_else(|| self.sent.iter().position(is_it));
        let Some(at) = at else {
            return Err(Mismatch(format!(
                "it returned message `{message_id}`, which was not in flight"
            )));
        };
        self.returned_to = self.taken + at as u64 + 1;
        self.sent[at].returned = Some(why);
        Ok(())
    }

    /// The broker confirmed the message of this tag, or all up to it: took responsibility, or not.
    pub(super) fn confirmed(
        &mut self,
        tag: u64,
        multiple: bool,
        taken_over: bool,
        verdicts: &mut Vec<Verdict>,
    ) -> Result<(), Mismatch> {
        let newest = self.taken + self.sent.len() as u64;
        // In a confirm of many, 0 means all.
        let tag = if multiple && tag == 0 { newest } else { tag };
        if tag > newest || tag == 0 {
            return Err(Mismatch(format!(
                "it confirmed message {tag} of {newest} on this channel"
            )));
        }
        // A tag below the front was answered long ago; it says nothing new.
        let Ok(end) = usize::try_from(tag.saturating_sub(self.taken)) else {
            return Ok(());
        };
        let from = if multiple { 0 } else { end.saturating_sub(1) };
        for sent in self.sent.range_mut(from..end) {
            if !std::mem::replace(&mut sent.answered, true) {
                self.unanswered -= 1;
                self.bytes -= size(&sent.record);
                verdicts.push(sent.verdict(taken_over));
            }
        }
        while self.sent.front().is_some_and(|sent| sent.answered) {
            self.sent.pop_front();
            self.taken += 1;
        }
        Ok(())
    }

    /// Ends it: the records without an answer, with the reason of those that were returned.
    pub(super) fn drain(&mut self) -> impl Iterator<Item = Record> {
        self.unanswered = 0;
        self.bytes = 0;
        self.sent
            .drain(..)
            .filter(|sent| !sent.answered)
            .map(|sent| sent.record)
    }
}

impl Sent {
    fn verdict(&mut self, taken_over: bool) -> Verdict {
        let outcome = match (self.returned.take(), taken_over) {
            (Some(why), _) => Outcome::rejected(RejectionKind::Unroutable, why),
            (None, true) => Outcome::Accepted(None),
            (None, false) => Outcome::Unavailable(Arc::new(Unavailability {
                cause: Cause::Throttled,
                reason: "the broker refused the message (basic.nack): a queue is full and rejects \
                         publishing, or the queue is in trouble; see the broker's log"
                    .to_owned(),
                wait: Some(RETRY_WAIT),
            })),
        };
        Verdict {
            ticket: self.record.ticket(),
            outcome,
        }
    }
}

fn size(record: &Record) -> usize {
    record.value().map_or(0, <[u8]>::len)
}

#[cfg(test)]
mod tests {
    use posthaste_testkit::sink_suite::{SuiteEvent, records};

    use super::*;

    struct Channel {
        window: Window,
        verdicts: Vec<Verdict>,
    }

    impl Channel {
        /// Each event published, with its place as the ticket.
        fn with(events: &[SuiteEvent]) -> Self {
            let mut window = Window::default();
            for record in records(events, 0) {
                window.push(record, Instant::now());
            }
            Self {
                window,
                verdicts: Vec::new(),
            }
        }

        fn ack(&mut self, tag: u64, multiple: bool) -> Result<(), Mismatch> {
            self.window
                .confirmed(tag, multiple, true, &mut self.verdicts)
        }

        fn nack(&mut self, tag: u64, multiple: bool) {
            let confirmed = self
                .window
                .confirmed(tag, multiple, false, &mut self.verdicts);
            confirmed.unwrap();
        }

        fn bounce(&mut self, event: &SuiteEvent) -> Result<(), Mismatch> {
            self.window
                .returned(&event.id.to_string(), &event.topic, "312".to_owned())
        }

        /// Ticket and how it ended, since the last call.
        fn told(&mut self) -> Vec<(u64, char)> {
            let told = self.verdicts.drain(..).map(|verdict| {
                let how = match verdict.outcome {
                    Outcome::Accepted(_) => 'a',
                    Outcome::Rejected(_) => 'r',
                    Outcome::Unavailable(_) => 'u',
                };
                (verdict.ticket, how)
            });
            told.collect()
        }
    }

    fn events(count: usize) -> Vec<SuiteEvent> {
        (0..count).map(|_| SuiteEvent::new(None, "1234")).collect()
    }

    #[test]
    fn each_confirm_finds_its_record() {
        let mut channel = Channel::with(&events(8));
        assert_eq!((channel.window.len(), channel.window.bytes()), (8, 32));
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
        assert_eq!((channel.window.len(), channel.window.bytes()), (2, 8));
        channel.ack(0, true).unwrap();
        assert_eq!(channel.told(), [(6, 'a'), (7, 'a')]);
        assert_eq!(channel.window.oldest(), None);
    }

    #[test]
    fn a_return_counts_for_its_own_record() {
        let sent = events(6);
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
        let mut sent = events(3);
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
        let mut sent = events(2);
        sent[1].id = sent[0].id;
        sent[1].topic = "nobody.wants.this".to_owned();
        let mut channel = Channel::with(&sent);
        channel.bounce(&sent[1]).unwrap();
        channel.ack(2, true).unwrap();
        assert_eq!(channel.told(), [(0, 'a'), (1, 'r')]);
    }

    #[test]
    fn answers_that_fit_nothing_are_refused() {
        let sent = events(2);
        let mut channel = Channel::with(&sent[..1]);
        assert!(channel.bounce(&sent[1]).is_err());
        assert!(channel.window.returned("", "", String::new()).is_err());
        assert!(channel.ack(2, false).is_err());
        assert!(channel.ack(2, true).is_err());
        assert!(channel.ack(0, false).is_err());
        channel.ack(1, false).unwrap();
        assert!(channel.bounce(&sent[0]).is_err());
        assert_eq!(channel.window.drain().count(), 0);
    }
}
