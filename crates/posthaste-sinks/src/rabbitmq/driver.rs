//! The task behind a lane: writes records into the connection within a window, and turns what the
//! broker says into verdicts.

use std::{collections::VecDeque, io, sync::Arc, time::Duration};

use posthaste_engine::{Cause, Outcome, Record, Unavailability, Verdict};
use tokio::{
    io::{AsyncWrite, AsyncWriteExt},
    sync::mpsc::{UnboundedReceiver, UnboundedSender},
    time::{Instant, sleep_until},
};

use super::{
    RETRY_WAIT,
    connection::{Connection, lost, unexpected},
    fault::{Culprit, Fault},
    limits::SizeLimit,
    message,
    window::{Mismatch, Window},
    wire::Incoming,
    write::Writer,
};

/// Records published and not yet confirmed, at the most. Wide: a broker that syncs to disk confirms in
/// groups, and waits for the next group between them.
const WINDOW_EVENTS: usize = 4_096;
/// Bytes of payload published and not yet confirmed, at the most, but for one larger message. What is
/// in flight when a lane is aborted may still arrive, so this is small.
const WINDOW_BYTES: usize = 2 << 20;
/// The window of a new lane, doubled by each full one that is confirmed: a broker that blocks
/// publishers says so only after the first message, and keeps what it was sent until then.
const WINDOW_FIRST: usize = 64;
/// Bytes that wait to be written, at the most, but for one frame.
const OUT_BYTES: usize = 128 << 10;

const UNCONFIRMED: &str =
    "the broker is slow, or a quorum queue is without the majority of its nodes";

/// Everything of a lane that is not the relay's.
pub(super) struct Driver {
    pub(super) connection: Connection,
    pub(super) exchange: Arc<str>,
    pub(super) limit: Arc<SizeLimit>,
    /// How long a confirm may take.
    pub(super) publish_timeout: Duration,
}

/// What there is to do next.
enum Turn {
    Read(io::Result<()>),
    Wrote(io::Result<usize>),
    Records(Option<Vec<Record>>),
    Time,
}

struct Running {
    driver: Driver,
    records: UnboundedReceiver<Vec<Record>>,
    /// No more records will come.
    closing: bool,
    /// Records that were not begun.
    waiting: VecDeque<Record>,
    /// The newest record of the window is not written up to its end: from this byte of its payload on.
    body_from: Option<usize>,
    window: Window,
    window_events: usize,
    /// Whole frames, written up to `written`.
    out: Vec<u8>,
    written: usize,
    /// Something was written since the last flush.
    unflushed: bool,
    /// Why the broker blocks publishers, while it does.
    blocked: Option<String>,
    /// Why a message is being returned, until it has come whole.
    returning: Option<Returning>,
    verdicts: Vec<Verdict>,
    last_read: Instant,
    last_write: Instant,
}

struct Returning {
    why: (u16, String),
    routing_key: String,
    /// Id and bytes still to come, once its header has come.
    content: Option<(String, u64)>,
}

impl Driver {
    /// Runs until the relay lets go of its end, or until the connection fails; then answers what has
    /// no verdict, and all that still comes.
    pub(super) async fn run(
        self,
        records: UnboundedReceiver<Vec<Record>>,
        verdicts: UnboundedSender<Vec<Verdict>>,
    ) {
        let now = Instant::now();
        let mut running = Running {
            driver: self,
            records,
            closing: false,
            waiting: VecDeque::new(),
            body_from: None,
            window: Window::default(),
            window_events: WINDOW_FIRST,
            out: Vec::with_capacity(2 * OUT_BYTES),
            written: 0,
            unflushed: false,
            blocked: None,
            returning: None,
            verdicts: Vec::new(),
            last_read: now,
            last_write: now,
        };
        match running.serve(&verdicts).await {
            // The relay bounds how long it waits for this.
            Ok(()) => drop(running.driver.connection.goodbye().await),
            Err(fault) => running.end(&fault, &verdicts).await,
        }
    }
}

impl Running {
    async fn serve(&mut self, verdicts: &UnboundedSender<Vec<Verdict>>) -> Result<(), Fault> {
        loop {
            self.fill(Instant::now());
            self.hand_out(verdicts);
            if self.closing && self.is_idle() {
                return Ok(());
            }
            match self.turn().await {
                Turn::Read(read) => {
                    read.map_err(|error| lost("waiting for confirms", &error))?;
                    self.last_read = Instant::now();
                    while let Some(incoming) = self.driver.connection.reader.next()? {
                        self.take(incoming)?;
                    }
                }
                Turn::Wrote(wrote) => {
                    self.wrote(wrote.map_err(|error| lost("publishing", &error))?);
                }
                Turn::Records(Some(batch)) => self.waiting.extend(batch),
                Turn::Records(None) => self.closing = true,
                Turn::Time => self.look_at_the_clock(Instant::now())?,
            }
        }
    }

    async fn turn(&mut self) -> Turn {
        let deadline = self.deadline();
        let Connection { reader, writer, .. } = &mut self.driver.connection;
        let rest = &self.out[self.written..];
        tokio::select! {
            read = reader.fill() => Turn::Read(read),
            wrote = write_or_flush(writer, rest), if !rest.is_empty() || self.unflushed => {
                Turn::Wrote(wrote)
            }
            batch = self.records.recv(), if !self.closing => Turn::Records(batch),
            () = sleep_until(deadline) => Turn::Time,
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

    fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.window.len() == 0 && self.out.is_empty() && !self.unflushed
    }

    /// Writes frames into `out` as far as window and buffer have room.
    fn fill(&mut self, now: Instant) {
        while self.out.len() - self.written < OUT_BYTES {
            if let Some(from) = self.body_from {
                self.continue_body(from);
                continue;
            }
            if let Some(reason) = &self.blocked {
                let outcome = blocked(reason);
                let refused = self.waiting.drain(..).map(|record| Verdict {
                    ticket: record.ticket(),
                    outcome: outcome.clone(),
                });
                self.verdicts.extend(refused);
                return;
            }
            if self.window.len() >= self.window_events || self.window.bytes() >= WINDOW_BYTES {
                return;
            }
            let Some(record) = self.waiting.pop_front() else {
                return;
            };
            self.begin(record, now);
        }
    }

    fn begin(&mut self, record: Record, now: Instant) {
        if self.written > 0 {
            self.out.drain(..self.written);
            self.written = 0;
        }
        let frame_max = self.driver.connection.frame_max;
        let refused = self.driver.limit.refuses(&record).or_else(|| {
            message::write_start(&mut self.out, &self.driver.exchange, &record, frame_max).err()
        });
        if let Some(outcome) = refused {
            self.verdicts.push(Verdict {
                ticket: record.ticket(),
                outcome,
            });
            return;
        }
        let has_body = record.value().is_some_and(|payload| !payload.is_empty());
        self.body_from = has_body.then_some(0);
        self.window.push(record, now);
    }

    fn continue_body(&mut self, from: usize) {
        let frame_max = self.driver.connection.frame_max;
        let payload = self
            .window
            .last()
            .and_then(Record::value)
            .unwrap_or_default();
        let end = message::write_body(&mut self.out, payload, from, frame_max);
        self.body_from = (end < payload.len()).then_some(end);
    }

    fn take(&mut self, incoming: Incoming) -> Result<(), Fault> {
        match incoming {
            Incoming::Ack { tag, multiple } => self.confirmed(tag, multiple, true),
            Incoming::Nack { tag, multiple } => self.confirmed(tag, multiple, false),
            Incoming::Return {
                code,
                text,
                routing_key,
            } => {
                self.returning = Some(Returning {
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
            Incoming::ChannelClose { code, text } => Err(Fault::closed("channel", code, &text)),
            Incoming::ConnectionClose { code, text } => {
                Err(Fault::closed("connection", code, &text))
            }
            other => Err(unexpected("publishing", &other)),
        }
    }

    fn confirmed(&mut self, tag: u64, multiple: bool, taken_over: bool) -> Result<(), Fault> {
        let before = self.verdicts.len();
        let confirmed = self
            .window
            .confirmed(tag, multiple, taken_over, &mut self.verdicts);
        confirmed.map_err(mismatch)?;
        if taken_over {
            let answered = self.verdicts.len() - before;
            self.window_events = WINDOW_EVENTS.min(self.window_events + answered);
        }
        Ok(())
    }

    /// A frame of a message that comes back. Once whole, it counts.
    fn returned_part(&mut self, note: impl FnOnce(&mut Returning)) -> Result<(), Fault> {
        let Some(returning) = &mut self.returning else {
            return Err(mismatch(Mismatch(
                "it sent a message nobody asked for".to_owned(),
            )));
        };
        note(returning);
        if !matches!(returning.content, Some((_, 0))) {
            return Ok(());
        }
        let Some(Returning {
            why: (code, text),
            routing_key,
            content: Some((id, _)),
        }) = self.returning.take()
        else {
            return Ok(());
        };
        let exchange = &self.driver.exchange;
        let why = match &**exchange {
            "" => format!("{code} {text}: no queue has the name of its topic; declare the queue"),
            _ => format!(
                "{code} {text}: no queue is bound to exchange `{exchange}` for its topic as the \
                 routing key; bind one, or give the exchange an alternate exchange"
            ),
        };
        let returned = self.window.returned(&id, &routing_key, why);
        returned.map_err(mismatch)
    }

    fn look_at_the_clock(&mut self, now: Instant) -> Result<(), Fault> {
        let patience = self.patience();
        if self.window.oldest().is_some_and(|at| at + patience <= now) {
            let waited = format!("no confirm within {patience:?}");
            return Err(match &self.blocked {
                Some(reason) => {
                    Fault::new(Cause::Throttled, format!("{}; {waited}", blocks(reason)))
                }
                None => Fault::new(Cause::Unknown, format!("{waited}; {UNCONFIRMED}")),
            });
        }
        let heartbeat = self.driver.connection.heartbeat;
        if heartbeat.is_zero() {
            return Ok(());
        }
        if self.last_read + 2 * heartbeat <= now {
            return Err(Fault::new(
                Cause::Connection,
                format!("the broker said nothing for two heartbeats of {heartbeat:?}"),
            ));
        }
        if self.last_write + heartbeat / 2 <= now {
            if self.out.is_empty() {
                Writer::new(&mut self.out).heartbeat();
            }
            self.last_write = now;
        }
        Ok(())
    }

    /// How long a confirm may take: a little less than what the relay waits for any answer, since
    /// the relay could not say what is missing.
    fn patience(&self) -> Duration {
        self.driver.publish_timeout * 9 / 10
    }

    /// When to look at the clock again.
    fn deadline(&self) -> Instant {
        let heartbeat = self.driver.connection.heartbeat;
        let confirm = self.window.oldest().map(|at| at + self.patience());
        let beat = (!heartbeat.is_zero())
            .then(|| (self.last_write + heartbeat / 2).min(self.last_read + 2 * heartbeat));
        let far = self.last_read + Duration::from_secs(3600);
        confirm.into_iter().chain(beat).min().unwrap_or(far)
    }

    fn hand_out(&mut self, verdicts: &UnboundedSender<Vec<Verdict>>) {
        if !self.verdicts.is_empty() {
            // A lane that is gone wants no answer.
            let _ = verdicts.send(std::mem::take(&mut self.verdicts));
        }
    }

    /// Destroys the connection, then answers all that has no verdict and all that still comes.
    async fn end(mut self, fault: &Fault, verdicts: &UnboundedSender<Vec<Verdict>>) {
        drop(self.driver.connection);
        if let Some(Culprit::LargerThan(limit)) = fault.culprit {
            self.driver.limit.learn(limit);
        }
        let others = others(fault);
        for record in self.window.drain() {
            self.verdicts.push(fault_verdict(fault, &others, &record));
        }
        loop {
            let untried = self
                .waiting
                .drain(..)
                .map(|record| fault_verdict(fault, &others, &record));
            self.verdicts.extend(untried);
            if !self.verdicts.is_empty() {
                let _ = verdicts.send(std::mem::take(&mut self.verdicts));
            }
            match self.records.recv().await {
                Some(batch) => self.waiting.extend(batch),
                None => return,
            }
        }
    }
}

/// Cancel safe. A TLS stream may keep written bytes until it is flushed.
async fn write_or_flush(writer: &mut (impl AsyncWrite + Unpin), bytes: &[u8]) -> io::Result<usize> {
    if bytes.is_empty() {
        return writer.flush().await.map(|()| 0);
    }
    match writer.write(bytes).await? {
        0 => Err(io::ErrorKind::WriteZero.into()),
        count => Ok(count),
    }
}

/// What the end of the lane means for records that are not at fault themselves. When events are, the
/// others merely were on the same lane.
fn others(fault: &Fault) -> Outcome {
    match &fault.culprit {
        Some(_) => {
            let reason = format!("another event ended the lane: {}", fault.reason);
            Outcome::unavailable(Cause::LaneEnded, reason)
        }
        None => Outcome::unavailable(fault.cause, fault.reason.as_str()),
    }
}

fn fault_verdict(fault: &Fault, others: &Outcome, record: &Record) -> Verdict {
    let culprit = fault.culprit.as_ref();
    let own = culprit.and_then(|culprit| culprit.outcome(record, &fault.reason));
    Verdict {
        ticket: record.ticket(),
        outcome: own.unwrap_or_else(|| others.clone()),
    }
}

fn blocked(reason: &str) -> Outcome {
    Outcome::Unavailable(Arc::new(Unavailability {
        cause: Cause::Throttled,
        reason: blocks(reason),
        wait: Some(RETRY_WAIT),
    }))
}

fn blocks(reason: &str) -> String {
    format!("the broker blocks publishers: {reason}; see `rabbitmqctl status` for its alarms")
}

fn mismatch(Mismatch(what): Mismatch) -> Fault {
    Fault::new(
        Cause::Unknown,
        format!("the broker's answers do not fit what was published: {what}"),
    )
}
