//! Messages that were published and not yet confirmed: which confirm belongs to which.
//!
//! The broker numbers publishes on a channel from 1 on and confirms by number. A message that it
//! could not route it returns *before* it confirms it, without a number: the returned message is
//! told by its message id and routing key, and is the oldest unconfirmed one of both not yet
//! returned. The id alone does not tell: it may have been sent twice, and only one of the two be
//! routable.

use std::{collections::VecDeque, time::Duration};

use tokio::time::Instant;

use super::{error::Error, message::Message};
use crate::transport::ReadMark;

/// How a message ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Confirmation {
    /// The broker took responsibility (`basic.ack`).
    Ack,
    /// It did not (`basic.nack`).
    Nack,
    /// It said nothing about it within this time, though it has read it.
    None(Duration),
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
    /// By tags.
    read: ReadMark,
    /// Some were given up: their returns may still come.
    gave_up: bool,
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
            read: ReadMark::default(),
            gave_up: false,
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
            if self.gave_up {
                return Ok(());
            }
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
        self.read.answered(tag);
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
        self.drop_answered();
        Ok(())
    }

    fn drop_answered(&mut self) {
        while matches!(self.sent.front(), Some(None)) {
            self.sent.pop_front();
            self.taken += 1;
        }
    }

    /// Whether the broker is to be asked whether it has read the oldest message.
    pub(super) fn is_to_be_asked(&self) -> bool {
        self.read.is_to_be_asked(self.taken + 1)
    }

    /// The broker is asked, behind all that was published.
    pub(super) fn ask(&mut self) {
        let newest = self.taken + self.sent.len() as u64;
        self.read.asked(newest + 1);
    }

    /// It has answered the first of the questions. False: there was none.
    pub(super) fn reads(&mut self) -> bool {
        self.read.replied()
    }

    /// Gives up the oldest message, which had so long, where the broker has read it. False: nobody
    /// knows.
    pub(super) fn give_up(&mut self, limit: Duration, ended: &mut Vec<(M, Confirmation)>) -> bool {
        if !self.read.has_read(self.taken + 1) {
            return false;
        }
        let Some(sent) = self.sent.front_mut().and_then(Option::take) else {
            return false;
        };
        self.gave_up = true;
        self.unanswered -= 1;
        self.bytes -= sent.message.body().len();
        ended.push((sent.message, Confirmation::None(limit)));
        self.drop_answered();
        true
    }

    /// The messages without an answer.
    pub(super) fn into_messages(self) -> impl Iterator<Item = M> {
        self.sent.into_iter().flatten().map(|sent| sent.message)
    }
}

#[cfg(test)]
mod tests;
