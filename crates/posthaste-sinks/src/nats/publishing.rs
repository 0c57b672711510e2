//! A connection that publishes messages within a window, and collects how they ended.

use std::{collections::BTreeMap, mem, time::Duration};

use posthaste_engine::{Outcome, Record};
use tokio::time::{Instant, sleep_until};

use super::{
    connection::{Connection, NO_RESPONDERS},
    fault::{Answer, ServerFault, refused_subject},
    message::{self, Envelope},
    wire::Incoming,
};
use crate::transport::{ReadMark, write_or_flush};

/// Messages without an answer, at the most.
const WINDOW_MESSAGES: usize = 4_096;
/// Bytes of messages without an answer, at the most, but for one larger message. Messages in flight
/// when a connection is destroyed may still arrive, so this is small.
const WINDOW_BYTES: usize = 2 << 20;
/// Bytes that wait to be written, at the most, but for one message.
const OUT_BYTES: usize = 128 << 10;

/// How long the server may be silent.
#[derive(Debug, Clone, Copy)]
pub(super) struct Patience {
    /// Until it answers a message.
    pub(super) answer: Duration,
    /// Until it is asked whether it is there, and again until that is answered.
    pub(super) silence: Duration,
}

/// A connection with its messages. Dropping it destroys the connection.
pub(super) struct Publishing {
    connection: Connection,
    patience: Patience,
    /// By the numbers with which the subjects of their answers end. No number is used twice, so
    /// that a late answer meets no other message.
    in_flight: BTreeMap<u64, SentMessage>,
    next: u64,
    /// By those numbers.
    read: ReadMark,
    bytes: usize,
    /// Whole commands, written up to `written`.
    out: Vec<u8>,
    written: usize,
    /// Something was written since the last flush.
    unflushed: bool,
    ended: Vec<(SentMessage, Answer)>,
    last_read: Instant,
}

/// A message without an answer.
#[derive(Debug)]
pub(super) struct SentMessage {
    /// Its slot among the lane's records.
    pub(super) slot: usize,
    pub(super) subject: String,
    bytes: usize,
    at: Instant,
}

impl Publishing {
    pub(super) fn new(connection: Connection, patience: Patience) -> Self {
        Self {
            connection,
            patience,
            in_flight: BTreeMap::new(),
            next: 0,
            read: ReadMark::default(),
            bytes: 0,
            out: Vec::with_capacity(2 * OUT_BYTES),
            written: 0,
            unflushed: false,
            ended: Vec::new(),
            last_read: Instant::now(),
        }
    }

    /// Whether another message may be published now.
    pub(super) fn has_room(&self) -> bool {
        self.out.len() - self.written < OUT_BYTES
            && self.in_flight.len() < WINDOW_MESSAGES
            && self.bytes < WINDOW_BYTES
    }

    /// Begins to publish a record. Only while there is [room](Self::has_room).
    ///
    /// # Errors
    /// The outcome of a record that no message can hold.
    pub(super) fn publish(
        &mut self,
        slot: usize,
        record: &Record,
        subject: String,
        stream: Option<&str>,
    ) -> Result<(), Outcome> {
        self.out.drain(..mem::take(&mut self.written));
        let before = self.out.len();
        let envelope = Envelope {
            subject: &subject,
            reply: &format!("{}{}", self.connection.inbox, self.next),
            stream,
            bytes_max: self.connection.info.max_payload,
        };
        message::write(&mut self.out, record, &envelope)?;
        let bytes = self.out.len() - before;
        self.bytes += bytes;
        let sent = SentMessage {
            slot,
            subject,
            bytes,
            at: Instant::now(),
        };
        self.in_flight.insert(self.next, sent);
        self.next += 1;
        Ok(())
    }

    /// How messages ended since the last call.
    pub(super) fn take_ended(&mut self) -> Vec<(SentMessage, Answer)> {
        mem::take(&mut self.ended)
    }

    /// Reads, writes, or waits until something is to be done. Cancel safe.
    ///
    /// # Errors
    /// When the connection has ended. It must not be called again then.
    pub(super) async fn turn(&mut self) -> Result<(), ServerFault> {
        let deadline = self.deadline();
        let Connection { reader, writer, .. } = &mut self.connection;
        let rest = &self.out[self.written..];
        tokio::select! {
            read = reader.fill() => {
                read.map_err(|error| ServerFault::lost("waiting for answers", &error))?;
                self.last_read = Instant::now();
                while let Some(incoming) = self.connection.reader.next()? {
                    self.take(incoming)?;
                }
            }
            wrote = write_or_flush(writer, rest), if !rest.is_empty() || self.unflushed => {
                let count = wrote.map_err(|error| ServerFault::lost("publishing", &error))?;
                self.wrote(count);
            }
            () = sleep_until(deadline) => self.look_at_the_clock(Instant::now())?,
        }
        Ok(())
    }

    /// So many bytes of `out` are gone; with none left, it was a flush.
    fn wrote(&mut self, count: usize) {
        self.unflushed = !self.out.is_empty();
        self.written += count;
        if self.written == self.out.len() {
            self.out.clear();
            self.out.shrink_to(2 * OUT_BYTES);
            self.written = 0;
        }
    }

    fn take(&mut self, incoming: Incoming) -> Result<(), ServerFault> {
        match incoming {
            Incoming::Message(message) => {
                let number = message.subject.strip_prefix(&self.connection.inbox);
                let number = number.and_then(|number| number.parse().ok());
                let answer = match message.status {
                    Some(NO_RESPONDERS) => Answer::NoResponders,
                    _ => Answer::Payload(message.payload),
                };
                // An answer to a message that had its time finds none.
                if let Some(number) = number {
                    self.read.answered(number);
                    self.end(number, answer);
                }
            }
            Incoming::Ping => self.out.extend_from_slice(b"PONG\r\n"),
            Incoming::Info(info) => self.connection.info = info,
            Incoming::Error(words) => {
                let subject = refused_subject(&words).ok_or_else(|| ServerFault::said(&words))?;
                // Of several the oldest: the server takes them in their order.
                let refused = self
                    .in_flight
                    .iter()
                    .find(|(_, sent)| sent.subject == subject);
                if let Some(number) = refused.map(|(number, _)| *number) {
                    self.end(number, Answer::Refused);
                }
            }
            Incoming::Pong => drop(self.read.replied()),
            Incoming::Ok => {}
        }
        Ok(())
    }

    fn end(&mut self, number: u64, answer: Answer) {
        if let Some(sent) = self.in_flight.remove(&number) {
            self.bytes -= sent.bytes;
            self.ended.push((sent, answer));
        }
    }

    fn look_at_the_clock(&mut self, now: Instant) -> Result<(), ServerFault> {
        let Patience { answer, silence } = self.patience;
        while let Some((&number, sent)) = self.in_flight.first_key_value()
            && sent.at + answer <= now
        {
            let answer = Answer::None {
                limit: answer,
                was_read: self.read.has_read(number),
            };
            self.end(number, answer);
        }
        let was_asked = self.read.waits();
        if was_asked && self.last_read + 2 * silence <= now {
            return Err(ServerFault::slow("the server says nothing", 2 * silence));
        }
        let is_silent = !was_asked && self.last_read + silence <= now;
        if is_silent || self.asks_at().is_some_and(|at| at <= now) {
            self.out.extend_from_slice(b"PING\r\n");
            self.read.asked(self.next);
        }
        Ok(())
    }

    /// When the server is asked whether it has read a message that has no answer.
    fn asks_at(&self) -> Option<Instant> {
        let (number, oldest) = self.in_flight.first_key_value()?;
        let is_due = self.read.is_to_be_asked(*number);
        is_due.then(|| oldest.at + self.patience.answer / 2)
    }

    /// When to look at the clock again.
    fn deadline(&self) -> Instant {
        let silences = if self.read.waits() { 2 } else { 1 };
        let silence = self.last_read + silences * self.patience.silence;
        let oldest = self.in_flight.first_key_value();
        let answer = oldest.map(|(_, sent)| sent.at + self.patience.answer);
        let dues = [answer, self.asks_at()];
        dues.into_iter().flatten().fold(silence, Instant::min)
    }
}
