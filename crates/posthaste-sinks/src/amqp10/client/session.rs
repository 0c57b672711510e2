//! A session that sends messages, and collects how they ended.

use std::{collections::BTreeMap, mem, sync::Arc, time::Duration};

use tokio::time::{Instant, sleep_until, timeout};

use super::{
    Error,
    connection::Connection,
    frame::{self, Part, SessionNumbers},
    links::{Link, Links, Room, Step},
    performative::{Condition, Disposition, Flow, Incoming, State},
};
use crate::transport::write_or_flush;

/// Messages without an outcome, at the most.
const WINDOW_MESSAGES: usize = 4_096;
/// Bytes of messages without an outcome, at the most, but for one larger message. Messages in
/// flight when a connection is destroyed may still arrive, so this is small.
const WINDOW_BYTES: usize = 2 << 20;
/// Bytes that wait to be written, at the most, but for one message.
const OUT_BYTES: usize = 128 << 10;

/// How long the peer may be silent.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Patience {
    /// Until a message has its outcome.
    pub(crate) answer: Duration,
    /// Until it says that it is there, and again until it is given up.
    pub(crate) silence: Duration,
}

/// How a message ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum End {
    /// The peer said so.
    State(State),
    /// Its link ended first.
    LinkEnded {
        why: Condition,
        /// No other message was on the link without an outcome.
        is_alone: bool,
    },
    /// The time is over.
    Silence {
        limit: Duration,
        /// The peer has read the message.
        was_read: bool,
    },
}

/// A session with its messages. Dropping it destroys the connection.
pub(crate) struct Session {
    connection: Connection,
    /// The kind of all addresses, as a capability.
    kind: Option<&'static str>,
    patience: Patience,
    links: Links,
    /// By the numbers of deliveries, of which the peer sees the low half.
    in_flight: BTreeMap<u64, SentMessage>,
    next_delivery: u64,
    /// The peer has read deliveries of lower numbers.
    read_to: u64,
    /// It was asked whether it has read those of lower numbers.
    asked_to: u64,
    bytes: usize,
    next_transfer: u32,
    /// Transfers that the peer has room for.
    window: u32,
    /// The message for whose parts there is no room yet.
    begun: Option<BegunMessage>,
    /// Whole frames, written up to `written`.
    out: Vec<u8>,
    written: usize,
    /// Something was written since the last flush.
    unflushed: bool,
    ended: Vec<(usize, End)>,
    ended_links: Vec<(Arc<str>, Condition)>,
    last_read: Instant,
    last_written: Instant,
}

/// A message without an outcome.
#[derive(Debug)]
struct SentMessage {
    /// Its slot among the lane's records.
    slot: usize,
    handle: u32,
    bytes: usize,
    at: Instant,
    /// The number behind that of its last transfer, once all are in frames.
    transfers_end: Option<u32>,
}

#[derive(Debug)]
struct BegunMessage {
    handle: u32,
    delivery: u64,
    bytes: Vec<u8>,
    /// Bytes that are in frames already.
    done: usize,
}

impl Session {
    pub(crate) fn new(
        connection: Connection,
        kind: Option<&'static str>,
        patience: Patience,
    ) -> Self {
        let now = Instant::now();
        Self {
            kind,
            patience,
            links: Links::new(connection.session.handle_max),
            in_flight: BTreeMap::new(),
            next_delivery: 0,
            read_to: 0,
            asked_to: 0,
            bytes: 0,
            next_transfer: 0,
            window: connection.session.incoming_window,
            begun: None,
            out: Vec::with_capacity(2 * OUT_BYTES),
            written: 0,
            unflushed: false,
            ended: Vec::new(),
            ended_links: Vec::new(),
            last_read: now,
            last_written: now,
            connection,
        }
    }

    /// Whether another message may be sent now, to any address.
    pub(crate) fn has_room(&self) -> bool {
        self.begun.is_none()
            && self.window > 0
            && self.out.len() - self.written < OUT_BYTES
            && self.in_flight.len() < WINDOW_MESSAGES
            && self.bytes < WINDOW_BYTES
    }

    /// Whether a message may be sent to this address. Attaches its link, if there is none.
    pub(crate) fn room(&mut self, address: &Arc<str>) -> Room {
        let (room, step) = self.links.look(address, Instant::now());
        match step {
            None => {}
            Some(Step::Attach(handle)) => self.attach(handle, address),
            Some(Step::Detach(handle)) => frame::detach(&mut self.out, handle),
        }
        room
    }

    fn attach(&mut self, handle: u32, address: &str) {
        // Of this connection alone: links of others have other containers.
        let name = format!("{}-{handle}", self.connection.container_id);
        frame::attach(&mut self.out, handle, &name, address, self.kind);
    }

    /// Bytes of a message for this address at the most, once its link is attached; none where there
    /// is no limit.
    pub(crate) fn message_bytes_max(&self, address: &str) -> Option<u64> {
        self.links.message_bytes_max(address)
    }

    /// Begins to send a message on a link. Only while there is [room](Self::room) on it, and
    /// [any](Self::has_room).
    pub(crate) fn send(&mut self, slot: usize, handle: u32, bytes: Vec<u8>) {
        self.out.drain(..mem::take(&mut self.written));
        let sent = SentMessage {
            slot,
            handle,
            bytes: bytes.len(),
            at: Instant::now(),
            transfers_end: None,
        };
        self.bytes += sent.bytes;
        self.links.sent(handle, sent.at);
        self.in_flight.insert(self.next_delivery, sent);
        self.begun = Some(BegunMessage {
            handle,
            delivery: self.next_delivery,
            bytes,
            done: 0,
        });
        self.next_delivery += 1;
        self.go_on();
    }

    /// Puts parts of the message that was begun into frames, as far as there is room.
    fn go_on(&mut self) {
        let part_max = frame::part_bytes_max(self.connection.peer.frame_max);
        while let Some(message) = &mut self.begun
            && self.window > 0
        {
            let rest = &message.bytes[message.done..];
            let count = rest.len().min(part_max);
            let part = Part {
                handle: message.handle,
                delivery_id: low(message.delivery),
                bytes: &rest[..count],
                has_more: count < rest.len(),
            };
            frame::transfer(&mut self.out, part);
            message.done += count;
            self.window -= 1;
            self.next_transfer = self.next_transfer.wrapping_add(1);
            if message.done == message.bytes.len() {
                if let Some(sent) = self.in_flight.get_mut(&message.delivery) {
                    sent.transfers_end = Some(self.next_transfer);
                }
                self.begun = None;
            }
        }
    }

    /// How messages ended since the last call, by their slots.
    pub(crate) fn take_ended(&mut self) -> Vec<(usize, End)> {
        mem::take(&mut self.ended)
    }

    /// The addresses whose links the peer ended since the last call, and why.
    pub(crate) fn take_ended_links(&mut self) -> Vec<(Arc<str>, Condition)> {
        mem::take(&mut self.ended_links)
    }

    /// Reads, writes, or waits until something is to be done. Cancel safe.
    ///
    /// # Errors
    /// When the connection has ended. It must not be called again then.
    pub(crate) async fn turn(&mut self) -> Result<(), Error> {
        // Everything that waited for credit was sent since the peer has asked.
        let numbers = self.numbers();
        for (handle, delivery_count) in self.links.drained() {
            frame::drained(&mut self.out, numbers, handle, delivery_count);
        }
        let deadline = self.deadline();
        let Connection { reader, writer, .. } = &mut self.connection;
        let rest = &self.out[self.written..];
        tokio::select! {
            read = reader.fill() => {
                read.map_err(|error| Error::lost("waiting for answers", &error))?;
                self.last_read = Instant::now();
                while let Some(incoming) = self.connection.reader.next()? {
                    self.take(incoming)?;
                }
            }
            wrote = write_or_flush(writer, rest), if !rest.is_empty() || self.unflushed => {
                let count = wrote.map_err(|error| Error::lost("sending", &error))?;
                self.wrote(count);
            }
            () = sleep_until(deadline) => self.look_at_the_clock(Instant::now())?,
        }
        Ok(())
    }

    /// So many bytes of `out` are gone; with none left, it was a flush.
    fn wrote(&mut self, count: usize) {
        self.last_written = Instant::now();
        self.unflushed = !self.out.is_empty();
        self.written += count;
        if self.written == self.out.len() {
            self.out.clear();
            self.out.shrink_to(2 * OUT_BYTES);
            self.written = 0;
        }
    }

    fn take(&mut self, incoming: Incoming) -> Result<(), Error> {
        match incoming {
            Incoming::Attach {
                handle: peer,
                name,
                message_bytes_max,
            } => {
                let own = name.rsplit_once('-').and_then(|(_, own)| own.parse().ok());
                if let Some(handle) = own {
                    self.links.attached(handle, peer, message_bytes_max);
                }
            }
            Incoming::Flow(flow) => self.take_flow(&flow),
            Incoming::Disposition(told) => self.settle(&told),
            Incoming::Detach { handle, error } => self.link_ended(handle, error),
            Incoming::End(why) | Incoming::Close(why) => {
                return Err(Error::Ended(why.unwrap_or_default()));
            }
            Incoming::Open(_)
            | Incoming::Begin { .. }
            | Incoming::Mechanisms(_)
            | Incoming::SaslOutcome(_)
            | Incoming::Nothing => {}
        }
        Ok(())
    }

    fn numbers(&self) -> SessionNumbers {
        SessionNumbers {
            next_incoming_id: self.connection.session.next_outgoing_id,
            next_outgoing_id: self.next_transfer,
        }
    }

    fn take_flow(&mut self, flow: &Flow) {
        let end = flow.next_incoming_id.unwrap_or_default();
        let end = end.wrapping_add(flow.incoming_window);
        let left = end.wrapping_sub(self.next_transfer);
        // A window that ends behind what was sent already has no room.
        let is_behind = left > flow.incoming_window;
        self.window = if is_behind { 0 } else { left };
        let numbers = self.numbers();
        if let Some((_, link)) = flow.handle.and_then(|peer| self.links.of_peer(peer)) {
            link.give(flow.delivery_count, flow.credit);
            link.drains = flow.drain;
        }
        if let Some(next) = flow.next_incoming_id {
            self.has_read(next);
        }
        if flow.echo {
            frame::session_flow(&mut self.out, numbers, false);
        }
        self.go_on();
    }

    /// The peer expects the transfer of this number next: it has read those before.
    fn has_read(&mut self, next: u32) {
        let is_read = |sent: &SentMessage| {
            let end = sent.transfers_end;
            end.is_some_and(|end| next.wrapping_sub(end) <= u32::MAX / 2)
        };
        let unread = self.in_flight.range(self.read_to..);
        let read = unread.take_while(|(_, sent)| is_read(sent));
        self.read_to = read.last().map_or(self.read_to, |(id, _)| id + 1);
    }

    /// The delivery that a peer means by the low half of its number: one of the last ones.
    fn whole(&self, id: u32) -> Option<u64> {
        let back = low(self.next_delivery).wrapping_sub(id);
        self.next_delivery.checked_sub(u64::from(back))
    }

    fn settle(&mut self, told: &Disposition) {
        let (Some(first), Some(last)) = (self.whole(told.first), self.whole(told.last)) else {
            return;
        };
        // Bytes that have come are no outcome, and one follows. A peer that settles without an
        // outcome has told its last word.
        if told.state == State::NoOutcome && !told.settled || first > last {
            return;
        }
        let told_of: Vec<u64> = self
            .in_flight
            .range(first..=last)
            .map(|(id, _)| *id)
            .collect();
        if !told.settled {
            // The peer keeps it in mind until we settle it too.
            frame::settled(&mut self.out, told.first, told.last);
        }
        for id in told_of {
            self.read_to = self.read_to.max(id + 1);
            self.end(id, End::State(told.state.clone()));
        }
    }

    fn end(&mut self, id: u64, end: End) {
        if let Some(sent) = self.in_flight.remove(&id) {
            self.bytes -= sent.bytes;
            self.links.settled(sent.handle);
            self.ended.push((sent.slot, end));
        }
    }

    fn link_ended(&mut self, peer: u32, error: Option<Condition>) {
        let Some((handle, _)) = self.links.of_peer(peer) else {
            return;
        };
        // Otherwise it answers ours.
        if let Some(link) = self.links.ended(handle) {
            frame::detach(&mut self.out, handle);
            self.peer_ended(handle, link, error);
        }
        if let Some((handle, address)) = self.links.next_in_queue(Instant::now()) {
            self.attach(handle, &address);
        }
    }

    fn peer_ended(&mut self, handle: u32, link: Link, error: Option<Condition>) {
        let why = error.unwrap_or_default();
        let is_alone = link.in_flight == 1;
        let of_link = self.in_flight.iter();
        let of_link = of_link.filter(|(_, sent)| sent.handle == handle);
        for id in of_link.map(|(id, _)| *id).collect::<Vec<_>>() {
            let why = why.clone();
            self.end(id, End::LinkEnded { why, is_alone });
        }
        self.begun.take_if(|message| message.handle == handle);
        self.ended_links.push((link.address, why));
    }

    fn look_at_the_clock(&mut self, now: Instant) -> Result<(), Error> {
        let Patience { answer, silence } = self.patience;
        if self.last_read + 2 * silence <= now {
            return Err(Error::Silent(2 * silence));
        }
        while let Some((&id, sent)) = self.in_flight.first_key_value()
            && sent.at + answer <= now
        {
            let was_read = id < self.read_to;
            let limit = answer;
            self.end(id, End::Silence { limit, was_read });
        }
        let given_up = self.links.give_up(answer, now);
        let given_up = given_up.ok_or_else(|| {
            Error::Lost("the broker does not answer where links begin and end".to_owned())
        })?;
        for handle in given_up {
            frame::detach(&mut self.out, handle);
        }
        if self.asks_at().is_some_and(|at| at <= now) {
            let numbers = self.numbers();
            frame::session_flow(&mut self.out, numbers, true);
            self.asked_to = self.next_delivery;
        }
        if self.speaks_at().is_some_and(|at| at <= now) {
            frame::heartbeat(&mut self.out);
            // Until it is written: once is enough.
            self.last_written = now;
        }
        Ok(())
    }

    /// When the peer is asked whether it has read a message that has no outcome.
    fn asks_at(&self) -> Option<Instant> {
        let (id, oldest) = self.in_flight.first_key_value()?;
        let is_due = *id >= self.read_to && *id >= self.asked_to;
        is_due.then(|| oldest.at + self.patience.answer / 2)
    }

    /// When we say that we are there, unless we have said something else: well before the peer
    /// gives us up.
    fn speaks_at(&self) -> Option<Instant> {
        let idle = self.connection.peer.idle_millis?;
        Some(self.last_written + Duration::from_millis(u64::from(idle)) / 2)
    }

    /// When to look at the clock again.
    fn deadline(&self) -> Instant {
        let oldest = self.in_flight.first_key_value();
        let answer = oldest.map(|(_, sent)| sent.at + self.patience.answer);
        let links = self.links.late_at(self.patience.answer);
        let dues = [answer, links, self.asks_at(), self.speaks_at()];
        let silence = self.last_read + 2 * self.patience.silence;
        dues.into_iter().flatten().fold(silence, Instant::min)
    }

    /// Takes leave. The caller sets a limit.
    pub(crate) async fn goodbye(&mut self) {
        frame::close(&mut self.out);
        // However it ends: an answer, or a connection that breaks.
        while self.turn().await.is_ok() {}
    }
}

/// Looks at the address of the only link, before anything is sent.
///
/// Answers why the peer took no link, if it did not.
///
/// # Errors
/// Why the connection ended.
pub(crate) async fn attach(
    session: &mut Session,
    address: &Arc<str>,
    limit: Duration,
) -> Result<Option<Condition>, Error> {
    let ended = timeout(limit, async {
        loop {
            if matches!(session.room(address), Room::Yes { .. }) {
                return Ok(None);
            }
            session.turn().await?;
            if let Some((_, why)) = session.take_ended_links().pop() {
                return Ok(Some(why));
            }
        }
    });
    // A peer that gives no credit may give some later: that is no fault of the address.
    ended.await.unwrap_or(Ok(None))
}

/// The low half of a number.
fn low(number: u64) -> u32 {
    u32::try_from(number & u64::from(u32::MAX)).unwrap_or(u32::MAX)
}
