//! A connection that publishes messages within a window, and collects how they ended.
//!
//! ```text
//! QoS 1   PUBLISH ──> PUBACK
//! QoS 2   PUBLISH ──> PUBREC ──PUBREL──> PUBCOMP
//! ```
//!
//! A message of QoS 2 has ended with `PUBCOMP` only: a broker may keep it back until `PUBREL`, and
//! drops it where the connection, and with it the session, ends before that.

use std::{
    collections::{BTreeMap, HashMap},
    mem,
    time::Duration,
};

use tokio::time::{Instant, sleep_until};

use super::{
    ClientError, Qos,
    connection::Connection,
    packet::{Incoming, Reason, Step},
    write::{self, BODY_BYTES_MAX, Publish, StringTooLong},
};
use crate::transport::{ReadMark, write_or_flush};

/// Bytes of messages without an answer, at the most, but for one larger message. Messages in flight
/// when a connection is destroyed may still arrive, so this is small.
const WINDOW_BYTES: usize = 2 << 20;
/// Bytes that wait to be written, at the most, but for one message.
const OUT_BYTES: usize = 128 << 10;

/// How long the broker may be silent.
#[derive(Debug, Clone, Copy)]
pub(in crate::mqtt) struct Patience {
    /// Until it answers a message.
    pub(in crate::mqtt) answer: Duration,
    /// Until it is asked whether it is there, and again until that is answered.
    pub(in crate::mqtt) silence: Duration,
}

/// A message to publish.
#[derive(Debug, Clone, Copy)]
pub(in crate::mqtt) struct Outgoing<'a> {
    pub(in crate::mqtt) qos: Qos,
    pub(in crate::mqtt) retain: bool,
    pub(in crate::mqtt) topic: &'a str,
    pub(in crate::mqtt) properties: &'a [u8],
    pub(in crate::mqtt) payload: &'a [u8],
}

/// How a message ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::mqtt) enum Ending {
    /// The broker answered so: it took the message, or refused it.
    Answered(Reason),
    /// It did not answer in time.
    Silent {
        limit: Duration,
        /// It has read the message.
        was_read: bool,
    },
}

/// Why a message was not published.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::mqtt) enum NotPublished {
    /// Bytes of the packet, and the most that the broker takes.
    TooLarge { bytes: usize, max: usize },
    /// Bytes of the topic, over 65 535.
    TopicTooLong(usize),
}

/// A connection with its messages. Dropping it destroys the connection.
pub(in crate::mqtt) struct Publishing {
    connection: Connection,
    patience: Patience,
    /// Messages that it may have without an answer.
    window: usize,
    /// By packet id.
    in_flight: HashMap<u16, InFlight>,
    /// Packet ids of messages that somebody waits for, by the order in which they were sent.
    waiting: BTreeMap<u64, u16>,
    next_number: u64,
    last_id: u16,
    /// By the order of sending.
    read: ReadMark,
    bytes: usize,
    /// Whole packets, written up to `written`.
    out: Vec<u8>,
    written: usize,
    /// Something was written since the last flush.
    unflushed: bool,
    ended: Vec<(usize, Ending)>,
    last_read: Instant,
    last_wrote: Instant,
}

/// A message without an answer. Its packet id stays in use until the answer comes, also when nobody
/// waits for that any more.
#[derive(Debug)]
struct InFlight {
    number: u64,
    /// The caller's name for it.
    slot: usize,
    qos: Qos,
    bytes: usize,
    at: Instant,
    /// The answer to the first half, of QoS 2.
    received: Option<Reason>,
}

impl Publishing {
    /// At most so many messages are without an answer, and no more than the broker takes.
    pub(in crate::mqtt) fn new(connection: Connection, patience: Patience, window: u16) -> Self {
        let theirs = connection.terms.receive_maximum.unwrap_or(u16::MAX);
        let now = Instant::now();
        Self {
            connection,
            patience,
            window: theirs.min(window).into(),
            in_flight: HashMap::new(),
            waiting: BTreeMap::new(),
            next_number: 0,
            last_id: 0,
            read: ReadMark::default(),
            bytes: 0,
            out: Vec::with_capacity(2 * OUT_BYTES),
            written: 0,
            unflushed: false,
            ended: Vec::new(),
            last_read: now,
            last_wrote: now,
        }
    }

    /// Whether another message may be published now.
    pub(in crate::mqtt) fn has_room(&self) -> bool {
        self.out.len() - self.written < OUT_BYTES
            && self.in_flight.len() < self.window
            && self.bytes < WINDOW_BYTES
    }

    /// Begins to publish a message. Only while there is [room](Self::has_room).
    ///
    /// # Errors
    /// Why the broker would not take it. Nothing was sent.
    pub(in crate::mqtt) fn publish(
        &mut self,
        slot: usize,
        message: &Outgoing<'_>,
    ) -> Result<(), NotPublished> {
        self.out.drain(..mem::take(&mut self.written));
        let id = self.free_id();
        let publish = Publish {
            version: self.connection.version,
            id,
            qos: message.qos,
            retain: message.retain,
            topic: message.topic,
            properties: message.properties,
            payload: message.payload,
        };
        let body = write::publish_body_bytes(&publish);
        let bytes = write::packet_bytes(body);
        let limit = self.connection.terms.maximum_packet_size;
        let limit = limit.and_then(|limit| usize::try_from(limit).ok());
        let max = limit.unwrap_or_else(|| write::packet_bytes(BODY_BYTES_MAX));
        if body > BODY_BYTES_MAX || bytes > max {
            return Err(NotPublished::TooLarge { bytes, max });
        }
        write::publish(&mut self.out, &publish)
            .map_err(|StringTooLong(bytes)| NotPublished::TopicTooLong(bytes))?;
        let number = self.next_number;
        let sent = InFlight {
            number,
            slot,
            qos: message.qos,
            bytes,
            at: Instant::now(),
            received: None,
        };
        self.last_id = id;
        self.next_number += 1;
        self.bytes += bytes;
        self.in_flight.insert(id, sent);
        self.waiting.insert(number, id);
        Ok(())
    }

    /// The next packet id that no message has. There is one: the window is smaller than the ids are
    /// many.
    fn free_id(&self) -> u16 {
        let behind = self.last_id.checked_add(1).unwrap_or(1);
        let mut ids = (behind..=u16::MAX).chain(1..behind);
        let free = ids.find(|id| !self.in_flight.contains_key(id));
        free.unwrap_or(behind)
    }

    /// The slots of the messages that ended since the last call, and how.
    pub(in crate::mqtt) fn take_ended(&mut self) -> Vec<(usize, Ending)> {
        mem::take(&mut self.ended)
    }

    /// Leaves the broker. The caller sets a limit.
    pub(in crate::mqtt) async fn goodbye(self) {
        self.connection.goodbye().await;
    }

    /// Reads, writes, or waits until something is to be done. Cancel safe.
    ///
    /// # Errors
    /// When the connection has ended. It must not be called again then.
    pub(in crate::mqtt) async fn turn(&mut self) -> Result<(), ClientError> {
        let deadline = self.deadline();
        let Connection { reader, writer, .. } = &mut self.connection;
        let rest = &self.out[self.written..];
        tokio::select! {
            read = reader.fill() => {
                let doing = "waiting for answers";
                read.map_err(|error| ClientError::Lost { doing, error })?;
                self.last_read = Instant::now();
                while let Some(incoming) = self.connection.reader.next()? {
                    self.take(incoming)?;
                }
            }
            wrote = write_or_flush(writer, rest), if !rest.is_empty() || self.unflushed => {
                let doing = "publishing";
                let count = wrote.map_err(|error| ClientError::Lost { doing, error })?;
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
        self.last_wrote = Instant::now();
        if self.written == self.out.len() {
            self.out.clear();
            self.out.shrink_to(2 * OUT_BYTES);
            self.written = 0;
        }
    }

    fn take(&mut self, incoming: Incoming) -> Result<(), ClientError> {
        match incoming {
            Incoming::Answer { step, id, reason } => self.answered(step, id, reason),
            Incoming::Pong => {
                self.read.replied();
                Ok(())
            }
            Incoming::Disconnect(reason) => Err(ClientError::Ended(reason)),
            Incoming::Auth => Err(ClientError::AuthAsked),
            Incoming::Connected(_) => Err(ClientError::Unexpected { packet: "CONNACK" }),
        }
    }

    fn answered(&mut self, step: Step, id: u16, reason: Reason) -> Result<(), ClientError> {
        let Some(sent) = self.in_flight.get_mut(&id) else {
            let packet = "an answer to a message that was not sent";
            return Err(ClientError::Unexpected { packet });
        };
        match (step, sent.qos, &sent.received) {
            (Step::Received, Qos::ExactlyOnce, None) if !reason.is_refusal() => {
                self.read.answered(sent.number);
                sent.received = Some(reason);
                write::release(&mut self.out, id);
                Ok(())
            }
            (Step::Acknowledged, Qos::AtLeastOnce, _)
            | (Step::Received, Qos::ExactlyOnce, None) => {
                self.read.answered(sent.number);
                self.end(id, reason);
                Ok(())
            }
            (Step::Completed, Qos::ExactlyOnce, Some(received)) => {
                // The first half may tell that nobody has subscribed.
                let reason = match reason.is_refusal() {
                    true => reason,
                    false => received.clone(),
                };
                self.end(id, reason);
                Ok(())
            }
            _ => Err(ClientError::Unexpected {
                packet: "an answer of another step",
            }),
        }
    }

    /// The packet id is free from here on.
    fn end(&mut self, id: u16, reason: Reason) {
        if let Some(sent) = self.in_flight.remove(&id) {
            self.bytes -= sent.bytes;
            if self.waiting.remove(&sent.number).is_some() {
                self.ended.push((sent.slot, Ending::Answered(reason)));
            }
        }
    }

    /// The oldest message that somebody waits for.
    fn oldest(&self) -> Option<(u64, &InFlight)> {
        let (&number, id) = self.waiting.first_key_value()?;
        Some((number, self.in_flight.get(id)?))
    }

    fn look_at_the_clock(&mut self, now: Instant) -> Result<(), ClientError> {
        let Patience { answer, silence } = self.patience;
        while let Some((number, id)) = self.waiting.first_key_value().map(|(n, id)| (*n, *id))
            && let Some(sent) = self.in_flight.get_mut(&id)
            && sent.at + answer <= now
        {
            let was_read = self.read.has_read(number);
            let limit = answer;
            self.ended
                .push((sent.slot, Ending::Silent { limit, was_read }));
            self.waiting.remove(&number);
            // It keeps its packet id, and no room from others: the broker has it, or the lane ends.
            self.bytes -= mem::take(&mut sent.bytes);
        }
        let was_asked = self.read.waits();
        if was_asked && self.last_read + 2 * silence <= now {
            return Err(ClientError::Silent { limit: 2 * silence });
        }
        let is_silent = !was_asked && self.asks_when_silent() <= now;
        if is_silent || self.asks_at().is_some_and(|at| at <= now) {
            self.out.extend_from_slice(write::PING);
            self.read.asked(self.next_number);
        }
        Ok(())
    }

    /// When the broker is asked whether it is there: it has said nothing, or it would miss us.
    fn asks_when_silent(&self) -> Instant {
        let heard = self.last_read + self.patience.silence;
        heard.min(self.last_wrote + self.connection.keep_alive * 3 / 4)
    }

    /// When it is asked whether it has read a message that has no answer.
    fn asks_at(&self) -> Option<Instant> {
        let (number, oldest) = self.oldest()?;
        let is_due = self.read.is_to_be_asked(number);
        is_due.then(|| oldest.at + self.patience.answer / 2)
    }

    /// When to look at the clock again.
    fn deadline(&self) -> Instant {
        let silence = match self.read.waits() {
            true => self.last_read + 2 * self.patience.silence,
            false => self.asks_when_silent(),
        };
        let answer = self
            .oldest()
            .map(|(_, sent)| sent.at + self.patience.answer);
        let dues = [answer, self.asks_at()];
        dues.into_iter().flatten().fold(silence, Instant::min)
    }
}
