//! A channel in confirm mode: publishes messages within a window, and collects how they ended.

use std::time::Duration;

use tokio::{
    io::AsyncWriteExt,
    time::{Instant, sleep_until},
};

use super::{
    connection::Connection,
    error::Error,
    message::Message,
    unconfirmed::{Confirmation, Unconfirmed},
    wire::{FRAME_OVERHEAD, Incoming},
    write::FrameWriter,
};
use crate::transport::write_or_flush;

/// Messages published and not yet confirmed, at the most. Wide: a broker that syncs to disk
/// confirms in groups, and waits for the next group between them.
const WINDOW_MESSAGES: usize = 4_096;
/// Bytes of bodies published and not yet confirmed, at the most, but for one larger message.
/// Messages in flight when a connection is destroyed may still arrive, so this is small.
const WINDOW_BYTES: usize = 2 << 20;
/// The window of a new connection, doubled by each full one that is confirmed: a broker that blocks
/// publishers says so only after the first message, and keeps what it was sent until then.
const WINDOW_FIRST: usize = 64;
/// Bytes that wait to be written, at the most, but for one frame.
const OUT_BYTES: usize = 128 << 10;

/// A channel in confirm mode, the only one of its connection. Dropping it destroys the connection.
pub(crate) struct ConfirmChannel<M> {
    connection: Connection,
    /// How long a confirm may take.
    confirm_limit: Duration,
    /// The newest message is not written up to its end: from this byte of its body on.
    body_from: Option<usize>,
    unconfirmed: Unconfirmed<M>,
    window_messages: usize,
    /// Whole frames, written up to `written`.
    out: Vec<u8>,
    written: usize,
    /// Something was written since the last flush.
    unflushed: bool,
    /// Why the broker blocks publishers, while it does.
    blocked: Option<String>,
    /// Why a message is being returned, until it has come whole.
    returning: Option<ReturnedMessage>,
    confirmations: Vec<(M, Confirmation)>,
    last_read: Instant,
    last_write: Instant,
}

struct ReturnedMessage {
    why: (u16, String),
    routing_key: String,
    /// Id and bytes still to come, once its header has come.
    content: Option<(String, u64)>,
}

impl<M: Message> ConfirmChannel<M> {
    /// Publishes on this connection. A message has so long to be confirmed.
    pub(crate) fn new(connection: Connection, confirm_limit: Duration) -> Self {
        let now = Instant::now();
        Self {
            connection,
            confirm_limit,
            body_from: None,
            unconfirmed: Unconfirmed::default(),
            window_messages: WINDOW_FIRST,
            out: Vec::with_capacity(2 * OUT_BYTES),
            written: 0,
            unflushed: false,
            blocked: None,
            returning: None,
            confirmations: Vec::new(),
            last_read: now,
            last_write: now,
        }
    }

    /// Whether another message may be published now.
    pub(crate) fn has_room(&self) -> bool {
        self.body_from.is_none()
            && self.blocked.is_none()
            && self.out.len() - self.written < OUT_BYTES
            && self.unconfirmed.len() < self.window_messages
            && self.unconfirmed.bytes() < WINDOW_BYTES
    }

    /// Why the broker blocks publishers, while it does.
    pub(crate) fn blocked(&self) -> Option<&str> {
        self.blocked.as_deref()
    }

    /// Begins to publish a message. Only while there is [room](Self::has_room).
    ///
    /// # Errors
    /// When it does not fit into the protocol.
    pub(crate) fn publish(&mut self, message: M) -> Result<(), M::Refusal> {
        if self.written > 0 {
            self.out.drain(..self.written);
            self.written = 0;
        }
        let start = self.out.len();
        let Connection {
            exchange,
            frame_max,
            ..
        } = &self.connection;
        if let Err(refusal) = message.write_start(&mut self.out, exchange, *frame_max) {
            self.out.truncate(start);
            return Err(refusal);
        }
        self.body_from = (!message.body().is_empty()).then_some(0);
        self.unconfirmed.push(message, Instant::now());
        self.write_body();
        Ok(())
    }

    /// How messages ended since the last call.
    pub(crate) fn take_confirmed(&mut self) -> Vec<(M, Confirmation)> {
        std::mem::take(&mut self.confirmations)
    }

    /// The messages without an answer. The connection is destroyed.
    pub(crate) fn into_unconfirmed(self) -> impl Iterator<Item = M> {
        drop(self.connection);
        self.unconfirmed.into_messages()
    }

    /// Reads, writes, or waits until something is to be done; heartbeats too. Cancel safe.
    ///
    /// # Errors
    /// When the connection has ended. It must not be called again then.
    pub(crate) async fn turn(&mut self) -> Result<(), Error> {
        let deadline = self.deadline();
        let Connection { reader, writer, .. } = &mut self.connection;
        let rest = &self.out[self.written..];
        tokio::select! {
            read = reader.fill() => {
                read.map_err(|error| Error::lost("waiting for confirms", &error))?;
                self.last_read = Instant::now();
                while let Some(incoming) = self.connection.reader.next()? {
                    self.take(incoming)?;
                }
            }
            wrote = write_or_flush(writer, rest), if !rest.is_empty() || self.unflushed => {
                self.wrote(wrote.map_err(|error| Error::lost("publishing", &error))?);
                self.write_body();
            }
            () = sleep_until(deadline) => self.look_at_the_clock(Instant::now())?,
        }
        Ok(())
    }

    /// Closes the connection as the protocol wants it. Everything must be confirmed. The caller
    /// sets a limit.
    pub(crate) async fn goodbye(&mut self) {
        // A heartbeat may be half written.
        let rest = &self.out[self.written..];
        if self.connection.writer.write_all(rest).await.is_ok() {
            // All is confirmed: nothing depends on the broker's farewell.
            let _ = self.connection.goodbye().await;
        }
    }

    /// So many bytes of `out` are gone; with none left, it was a flush.
    fn wrote(&mut self, count: usize) {
        self.unflushed = !self.out.is_empty();
        self.written += count;
        self.last_write = Instant::now();
        if self.written == self.out.len() {
            self.out.clear();
            self.written = 0;
        }
    }

    /// Writes frames of the newest message's body into `out`, as far as there is room.
    fn write_body(&mut self) {
        let body = self.unconfirmed.last().map(M::body).unwrap_or_default();
        while let Some(from) = self.body_from
            && self.out.len() - self.written < OUT_BYTES
        {
            let end = write_frame(&mut self.out, body, from, self.connection.frame_max);
            self.body_from = (end < body.len()).then_some(end);
        }
    }

    fn take(&mut self, incoming: Incoming) -> Result<(), Error> {
        match incoming {
            Incoming::Ack { tag, multiple } => self.confirmed(tag, multiple, true),
            Incoming::Nack { tag, multiple } => self.confirmed(tag, multiple, false),
            Incoming::Return {
                code,
                text,
                routing_key,
            } => {
                self.returning = Some(ReturnedMessage {
                    why: (code, text),
                    routing_key,
                    content: None,
                });
                Ok(())
            }
            Incoming::Content { message_id, size } => self.returned_part(|returning| {
                returning.content = Some((message_id, size));
            }),
            Incoming::Body { size } => self.returned_part(|returning| {
                if let Some((_, rest)) = &mut returning.content {
                    *rest = rest.saturating_sub(size);
                }
            }),
            Incoming::Blocked { reason } => {
                tracing::warn!(%reason, "the broker blocks publishers");
                self.blocked = Some(reason);
                Ok(())
            }
            Incoming::Unblocked => {
                self.blocked = None;
                Ok(())
            }
            Incoming::Heartbeat => Ok(()),
            Incoming::ConfirmSelectOk if self.unconfirmed.reads() => Ok(()),
            Incoming::ChannelClose { code, text } => {
                let what = "channel";
                Err(Error::Closed { what, code, text })
            }
            Incoming::ConnectionClose { code, text } => {
                let what = "connection";
                Err(Error::Closed { what, code, text })
            }
            other => Err(Error::unexpected("publishing", &other)),
        }
    }

    fn confirmed(&mut self, tag: u64, multiple: bool, taken_over: bool) -> Result<(), Error> {
        let before = self.confirmations.len();
        self.unconfirmed
            .confirmed(tag, multiple, taken_over, &mut self.confirmations)?;
        if self.body_from.is_some() && self.unconfirmed.last().is_none() {
            return Err(Error::Mismatch(
                "it confirmed a message that was not sent to its end".to_owned(),
            ));
        }
        if taken_over {
            let answered = self.confirmations.len() - before;
            self.window_messages = WINDOW_MESSAGES.min(self.window_messages + answered);
        }
        Ok(())
    }

    /// A frame of a message that comes back. Once whole, it counts.
    fn returned_part(&mut self, note: impl FnOnce(&mut ReturnedMessage)) -> Result<(), Error> {
        let Some(mut returning) = self.returning.take() else {
            return Err(Error::Mismatch(
                "it sent a message nobody asked for".to_owned(),
            ));
        };
        note(&mut returning);
        match returning.content {
            Some((id, 0)) => {
                let ReturnedMessage {
                    why, routing_key, ..
                } = returning;
                self.unconfirmed.returned(&id, &routing_key, why)
            }
            _ => {
                self.returning = Some(returning);
                Ok(())
            }
        }
    }

    fn look_at_the_clock(&mut self, now: Instant) -> Result<(), Error> {
        let limit = self.confirm_limit;
        while self
            .unconfirmed
            .oldest()
            .is_some_and(|at| at + limit <= now)
        {
            if !self.unconfirmed.give_up(limit, &mut self.confirmations) {
                let blocked = self.blocked.clone();
                return Err(Error::Unconfirmed { limit, blocked });
            }
        }
        if self.asks_at().is_some_and(|at| at <= now) {
            FrameWriter::new(&mut self.out).confirm_select();
            self.unconfirmed.ask();
        }
        let heartbeat = self.connection.heartbeat;
        if heartbeat.is_zero() {
            return Ok(());
        }
        if self.last_read + 2 * heartbeat <= now {
            return Err(Error::Connection(format!(
                "the broker said nothing for two heartbeats of {heartbeat:?}"
            )));
        }
        if self.last_write + heartbeat / 2 <= now {
            if self.out.is_empty() {
                FrameWriter::new(&mut self.out).heartbeat();
            }
            self.last_write = now;
        }
        Ok(())
    }

    /// When the broker is asked whether it has read a message that it does not confirm: by what has
    /// no effect and is answered in its turn, between two messages.
    fn asks_at(&self) -> Option<Instant> {
        let may = self.body_from.is_none() && self.unconfirmed.is_to_be_asked();
        let oldest = self.unconfirmed.oldest().filter(|_| may)?;
        Some(oldest + self.confirm_limit / 2)
    }

    /// When to look at the clock again.
    fn deadline(&self) -> Instant {
        let heartbeat = self.connection.heartbeat;
        let confirm = self.unconfirmed.oldest().map(|at| at + self.confirm_limit);
        let beat = (!heartbeat.is_zero())
            .then(|| (self.last_write + heartbeat / 2).min(self.last_read + 2 * heartbeat));
        let far = self.last_read + Duration::from_secs(3600);
        let dues = [confirm, self.asks_at(), beat];
        dues.into_iter().flatten().min().unwrap_or(far)
    }
}

/// Appends the next body frame: of `body` from `at` on. Answers where the one after it begins.
pub(crate) fn write_frame(out: &mut Vec<u8>, body: &[u8], at: usize, frame_max: usize) -> usize {
    let end = body.len().min(at + frame_max - FRAME_OVERHEAD);
    FrameWriter::new(out).body(&body[at..end]);
    end
}
