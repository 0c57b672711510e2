use std::collections::VecDeque;

/// How far the other side has read the messages of a connection, which are numbered in the order in
/// which they are sent: it answers in that order, so that an answer behind a message shows that the
/// message was read.
#[derive(Debug, Default)]
pub(crate) struct ReadMark {
    /// Messages of lower numbers were read.
    read_to: u64,
    /// Questions without a reply, by the number behind the messages before each.
    asked: VecDeque<u64>,
}

impl ReadMark {
    /// A message of this number was answered: those before it were read.
    pub(crate) fn answered(&mut self, number: u64) {
        self.read_to = self.read_to.max(number);
    }

    /// A question that is replied in its turn was sent before the message of this number.
    pub(crate) fn asked(&mut self, next: u64) {
        self.asked.push_back(next);
    }

    /// The first of the questions was replied. False: there was none.
    pub(crate) fn replied(&mut self) -> bool {
        let asked = self.asked.pop_front();
        self.read_to = self.read_to.max(asked.unwrap_or_default());
        asked.is_some()
    }

    /// Whether a question waits for its reply.
    pub(crate) fn waits(&self) -> bool {
        !self.asked.is_empty()
    }

    /// Whether the message of this number was read.
    pub(crate) fn has_read(&self, number: u64) -> bool {
        number < self.read_to
    }

    /// Whether nobody knows, and no question behind the message would tell.
    pub(crate) fn is_to_be_asked(&self, number: u64) -> bool {
        let was_asked = self.asked.back().is_some_and(|&next| number < next);
        !self.has_read(number) && !was_asked
    }
}
