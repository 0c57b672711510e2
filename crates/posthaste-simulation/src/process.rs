//! A relay's process: the production relay with its own clock, its own ways to database and broker,
//! and a life that can end at any moment.

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicI64, Ordering::Relaxed},
    },
    time::Duration,
};

use posthaste_engine::{Backoff, DeliveryPolicy, Moment, Sink, Store};
use posthaste_relay::{Clock, Destination, Relay, RelayBuilder};
use posthaste_testkit::faulty::{Call, Fault, Faulty, Script};
use tokio::{sync::oneshot, task::JoinHandle, time::Instant};
use uuid::Uuid;

use crate::{
    broker::{Broker, Kind},
    faults::Injection,
    observed::{ObservedSink, ObservedStore, Observer},
    seed::Emphasis,
    seen::Seen,
    trace::Trace,
};

pub(crate) const LEASE: Duration = Duration::from_secs(6);
pub(crate) const SETTLE: Duration = Duration::from_secs(1);
/// Events that a claim may have read and not stored.
pub(crate) fn window(emphasis: Emphasis) -> usize {
    match emphasis {
        // A relay that is cut from the database still has much to send.
        Emphasis::Zombies => 400,
        _ => 60,
    }
}

/// Events of a page.
fn batch(emphasis: Emphasis) -> usize {
    match emphasis {
        // The events of one blocked key fill it soon.
        Emphasis::Marks => 4,
        _ => 20,
    }
}

/// A relay's own clock over tokio's. It stands still while its process does, so that nothing is
/// decided meanwhile.
pub(crate) struct WrongClock {
    began: Instant,
    rate: f64,
    set_forth_ms: AtomicI64,
    stopped_at: Mutex<Option<Moment>>,
}

/// So long since boot when the run begins: clocks are set back by less.
const UPTIME_MS: i64 = 3_000_000;

/// Seconds.
const WALL_CLOCK_SET_EVERY: u64 = 7;
const WALL_CLOCK_SET_BY: Duration = Duration::from_secs(600);

impl WrongClock {
    fn read(&self) -> Moment {
        let ran = self.began.elapsed().mul_f64(self.rate);
        let set = u64::try_from(UPTIME_MS + self.set_forth_ms.load(Relaxed)).unwrap_or_default();
        Moment(Duration::from_millis(set) + ran)
    }

    fn stop(&self) {
        let now = self.read();
        *self.stopped() = Some(now);
    }

    fn go_on(&self) {
        *self.stopped() = None;
    }

    fn stopped(&self) -> std::sync::MutexGuard<'_, Option<Moment>> {
        self.stopped_at
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

impl Clock for WrongClock {
    fn now(&self) -> Moment {
        self.stopped().unwrap_or_else(|| self.read())
    }

    /// Set forth and back by ten minutes all the time: nothing but latencies may depend on it.
    fn wall_micros(&self) -> i64 {
        let forth = (self.began.elapsed().as_secs() / WALL_CLOCK_SET_EVERY).is_multiple_of(2);
        let set = if forth {
            WALL_CLOCK_SET_BY
        } else {
            Duration::ZERO
        };
        i64::try_from((self.read().0 + set).as_micros()).unwrap_or(i64::MAX)
    }
}

/// The cuts between a process and everything else.
#[derive(Default)]
struct Cuts {
    database: AtomicBool,
    broker: AtomicBool,
    /// A relay that is cut from the database waits for answers, and is not refused.
    hangs: bool,
    /// Not a cut: a process may stand still before a write.
    stalls: bool,
}

pub(crate) struct Process {
    pub(crate) name: String,
    script: Script,
    clock: Arc<WrongClock>,
    cuts: Arc<Cuts>,
    registration: Arc<Mutex<Option<Uuid>>>,
    stop: Option<oneshot::Sender<()>>,
    /// Answers whether it ended in order.
    task: JoinHandle<bool>,
}

/// The parts that a new process is given.
pub(crate) struct Equipment<'a> {
    pub(crate) trace: &'a Trace,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) observer: &'a Observer,
    pub(crate) database_away: &'a Arc<AtomicBool>,
    pub(crate) brokers: &'a [Broker],
    pub(crate) policy: DeliveryPolicy,
    pub(crate) emphasis: Emphasis,
    pub(crate) settle: Duration,
    pub(crate) rate: f64,
}

fn is_broker_call(call: Call) -> bool {
    use Call::{CheckSink, OpenLane, Submit, TakeOver};
    matches!(call, CheckSink | OpenLane | TakeOver | Submit)
}

/// Draws what becomes of a call.
fn draw(trace: &Trace, cuts: &Cuts, away: &AtomicBool, call: Call) -> Option<Fault> {
    let of_broker = is_broker_call(call);
    if !of_broker && (away.load(Relaxed) || cuts.database.load(Relaxed))
        || of_broker && cuts.broker.load(Relaxed)
    {
        return Some(match cuts.hangs && !of_broker {
            true => Fault::Late(trace.millis(4_000, 12_000)),
            false => Fault::Refuse,
        });
    }
    // A poll is the most frequent call by far.
    let sides = match call {
        Call::Next => 250,
        Call::Submit => 12,
        _ => 50,
    };
    if trace.is_quiet() || !trace.one_in(sides) {
        return None;
    }
    let wait = trace.millis(20, 4_000);
    let (injection, fault) = match (call == Call::Submit, trace.roll(8)) {
        (false, 0) => (Injection::CallRefused, Fault::Refuse),
        (false, 1 | 2) => (Injection::AnswerLost, Fault::FailAfter),
        (false, 3) => (Injection::AnswerSlow, Fault::Slow(wait)),
        (false, 4 | 5) => (Injection::StatementLate, Fault::Late(wait)),
        // Nobody releases what is held.
        (false, 6) => (Injection::NeverAnswered, Fault::Hold),
        (false, _) => (Injection::NeverAnswered, Fault::Silent),
        (true, 0 | 1) => (Injection::LaneCut, Fault::Refuse),
        (true, 2 | 3) => (Injection::AckLost, Fault::FailAfter),
        (true, _) if !cuts.stalls => return None,
        (true, _) => {
            trace.see(&Seen::RepeatsMayShuffle);
            (Injection::WriteStalled, Fault::Late(wait))
        }
    };
    trace.note(format_args!("{} meets {fault:?}", call.name()));
    trace.inject(injection);
    Some(fault)
}

impl Process {
    pub(crate) fn start(
        name: String,
        with: &Equipment<'_>,
        change: impl FnOnce(RelayBuilder) -> RelayBuilder,
    ) -> Self {
        let cuts = Arc::new(Cuts {
            hangs: with.emphasis == Emphasis::Zombies,
            stalls: !matches!(with.emphasis, Emphasis::Zombies | Emphasis::Sharing),
            ..Cuts::default()
        });
        let script = {
            let (trace, cuts) = (with.trace.clone(), Arc::clone(&cuts));
            let away = Arc::clone(with.database_away);
            Script::drawn_by(move |call| draw(&trace, &cuts, &away, call))
        };
        let clock = Arc::new(WrongClock {
            began: Instant::now(),
            rate: with.rate,
            set_forth_ms: AtomicI64::default(),
            stopped_at: Mutex::default(),
        });
        let registration = Arc::default();
        let watch = ObservedStore {
            observer: with.observer.clone(),
            registration: Arc::clone(&registration),
        };
        let store = Faulty::watched(Arc::clone(&with.store), script.clone(), watch);
        let jitter = with.trace.clone();
        let mut builder = Relay::builder(Arc::new(store))
            .name(&name)
            .clock(Arc::clone(&clock) as Arc<dyn Clock>)
            .jitter(move || jitter.share())
            .lease(LEASE)
            .settle(with.settle)
            .window(window(with.emphasis), 1 << 20)
            .batch(batch(with.emphasis), 1 << 20)
            .limits(|limits| limits.due_every = Duration::from_secs(1));
        for broker in with.brokers {
            let sink = Arc::new(broker.clone()) as Arc<dyn Sink>;
            let watch = ObservedSink {
                place: broker.place,
                trace: with.trace.clone(),
            };
            let sink = Faulty::watched(sink, script.clone(), watch);
            let destination = Destination::new(format!("d{}", broker.place), Arc::new(sink));
            let retry = Backoff {
                first: Duration::from_millis(300),
                max: Duration::from_secs(3),
                jitter: 0.25,
            };
            let destination = destination.order_by(broker.order_by);
            builder = builder.destination(destination.policy(with.policy).retry(retry));
        }
        let builder = change(builder);
        let (stop, stopped) = oneshot::channel::<()>();
        let (trace, ours) = (with.trace.clone(), name.clone());
        let task = tokio::spawn(async move {
            let ended = match builder.build() {
                Ok(relay) => relay.run(async { drop(stopped.await) }).await,
                Err(error) => Err(error),
            };
            match ended {
                Ok(summary) => {
                    trace.note(format_args!("{ours} ended, {summary:?}"));
                    summary.clean
                }
                Err(error) => {
                    trace.wrong(format!("{ours} ended: {error}"));
                    false
                }
            }
        });
        Self {
            name,
            script,
            clock,
            cuts,
            registration,
            stop: Some(stop),
            task,
        }
    }

    /// Kills it: nothing of it is done any more, whatever it had begun.
    pub(crate) fn kill(self, trace: &Trace) {
        self.script.stop();
        self.task.abort();
        let registration = self.registration.lock();
        let registration = *registration.unwrap_or_else(PoisonError::into_inner);
        trace.note(format_args!("{} is killed", self.name));
        trace.see(&Seen::Killed { registration });
    }

    /// Asks it to end.
    pub(crate) fn ask_to_stop(&mut self) {
        if let Some(stop) = self.stop.take() {
            // It may have ended already.
            let _ = stop.send(());
        }
    }

    /// Waits for its end. Answers whether it ended in order. None: it does not end.
    pub(crate) async fn ended(self, trace: &Trace) -> Option<bool> {
        let limit = Duration::from_secs(60);
        let ended = tokio::time::timeout(limit, self.task).await.ok()?;
        if let Err(error) = &ended {
            trace.wrong(format!("{} failed: {error}", self.name));
        }
        Some(ended.unwrap_or(false))
    }

    /// Its next such call is refused.
    #[cfg(test)]
    pub(crate) fn refuse_once(&self, call: Call) {
        self.script.once(call, Fault::Refuse);
    }

    pub(crate) fn freeze(&self) {
        self.script.stop();
        self.clock.stop();
    }

    pub(crate) fn thaw(&self) {
        self.clock.go_on();
        self.script.go_on();
    }

    pub(crate) fn cut_from_database(&self, cut: bool) {
        self.cuts.database.store(cut, Relaxed);
    }

    pub(crate) fn cut_from_broker(&self, cut: bool) {
        self.cuts.broker.store(cut, Relaxed);
    }

    pub(crate) fn set_clock(&self, milliseconds: i64) {
        self.clock.set_forth_ms.store(milliseconds, Relaxed);
    }

    pub(crate) fn heal(&self) {
        self.thaw();
        self.cut_from_database(false);
        self.cut_from_broker(false);
        self.script.heal();
    }
}

/// Whether the relays of a run each own a part, or one all.
pub(crate) fn is_shared(kinds: &[Kind]) -> bool {
    !kinds.contains(&Kind::File)
}
