//! The calls that meet faults.

use std::{
    collections::{HashMap, VecDeque},
    future::{Future, pending},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    time::Duration,
};

use tokio::sync::{Notify, watch};

/// The faults.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// The answer is *unavailable*, and nothing was done.
    Refuse,
    /// The answer is *unavailable*, and the work was done.
    FailAfter,
    /// The work is done; the answer comes when [`Script::release`] is called.
    Hold,
    /// The work is done; the answer comes so much later (tokio's clock).
    Slow(Duration),
    /// The work is done so much later (tokio's clock), and the answer comes then.
    Late(Duration),
    /// Nothing is done, and no answer ever comes.
    Silent,
}

/// The calls that can be made to fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Call {
    /// `Leases::register`.
    Register,
    /// `Leases::renew`.
    Renew,
    /// `Leases::fence`.
    Fence,
    /// `Ownership::claim`.
    Claim,
    /// `Ownership::revoke`.
    Revoke,
    /// `Ownership::shares`.
    Shares,
    /// `Ownership::withdraw`.
    Withdraw,
    /// `Leases::announce_leaving`.
    AnnounceLeaving,
    /// `Leases::leave`.
    Leave,
    /// `Store::check`.
    CheckStore,
    /// `Store::open`.
    Open,
    /// `ClaimMarkers::markers`.
    Markers,
    /// `ClaimMarkers::marked`.
    Marked,
    /// `ClaimParking::set_aside`.
    SetAside,
    /// `ClaimReader::next`.
    Next,
    /// `ClaimProgress::advance`.
    Advance,
    /// `ClaimParking::park`.
    Park,
    /// `ClaimParking::due`.
    Due,
    /// `ClaimParking::put_off`.
    PutOff,
    /// `ClaimParking::settle`.
    Settle,
    /// `ClaimMarkers::side_read`.
    SideRead,
    /// `SideRead::next`.
    SideNext,
    /// `SideRead::advance`.
    SideAdvance,
    /// `ClaimMarkers::join`.
    Join,
    /// `ClaimReports::report`.
    Report,
    /// `ClaimReports::reached`.
    Reached,
    /// `ClaimReports::fences_taken`.
    FencesTaken,
    /// `Retention::housekeep`.
    Housekeep,
    /// `Sink::check`.
    CheckSink,
    /// `Sink::open_lane`.
    OpenLane,
    /// `Lane::take_over`.
    TakeOver,
    /// `Lane::submit`, one batch a call. A batch that was refused or failed after the work breaks
    /// its lane, as a cut connection does.
    Submit,
}

impl Call {
    /// Its name, for people.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Register => "register",
            Self::Renew => "renew",
            Self::Fence => "fence",
            Self::Claim => "claim",
            Self::Revoke => "revoke",
            Self::Shares => "shares",
            Self::Withdraw => "withdraw",
            Self::AnnounceLeaving => "announce leaving",
            Self::Leave => "leave",
            Self::CheckStore => "check the store",
            Self::Open => "open",
            Self::Markers => "markers",
            Self::Marked => "marked",
            Self::SetAside => "set aside",
            Self::Next => "next",
            Self::Advance => "advance",
            Self::Park => "park",
            Self::Due => "due",
            Self::PutOff => "put off",
            Self::Settle => "settle",
            Self::SideRead => "side read",
            Self::SideNext => "side read's next",
            Self::SideAdvance => "side read's advance",
            Self::Join => "join",
            Self::Report => "report",
            Self::Reached => "reached",
            Self::FencesTaken => "fences taken",
            Self::Housekeep => "housekeep",
            Self::CheckSink => "check the sink",
            Self::OpenLane => "open a lane",
            Self::TakeOver => "take over",
            Self::Submit => "submit",
        }
    }
}

/// The faults to come, shared by all clones.
#[derive(Debug, Clone)]
pub struct Script(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    plan: Mutex<Plan>,
    /// How many faults each call has met so far.
    met: watch::Sender<HashMap<Call, usize>>,
    /// How often [`Script::release`] was called.
    released: watch::Sender<u64>,
    stopped: AtomicBool,
    goes_on: Notify,
    draw: Option<Draw>,
}

struct Draw(Box<dyn Fn(Call) -> Option<Fault> + Send + Sync>);

impl std::fmt::Debug for Draw {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Draw")
    }
}

#[derive(Debug, Default)]
struct Plan {
    once: HashMap<Call, VecDeque<Fault>>,
    always: HashMap<Call, Fault>,
    calls: HashMap<Call, usize>,
}

impl Default for Script {
    /// No faults.
    fn default() -> Self {
        Self::new(None)
    }
}

impl Script {
    fn new(draw: Option<Draw>) -> Self {
        Self(Arc::new(Inner {
            plan: Mutex::default(),
            met: watch::Sender::new(HashMap::new()),
            released: watch::Sender::new(0),
            stopped: AtomicBool::new(false),
            goes_on: Notify::new(),
            draw,
        }))
    }

    /// A script that asks `draw` for the fault of each call that has no other.
    #[must_use]
    pub fn drawn_by(draw: impl Fn(Call) -> Option<Fault> + Send + Sync + 'static) -> Self {
        Self::new(Some(Draw(Box::new(draw))))
    }

    /// A caller of these calls stands still, as a stopped process does: no call begins and no
    /// answer is taken in until [`go_on`](Self::go_on). A call that was handed over before takes
    /// its course.
    pub fn stop(&self) {
        self.0.stopped.store(true, SeqCst);
    }

    /// Ends a [`stop`](Self::stop).
    pub fn go_on(&self) {
        self.0.stopped.store(false, SeqCst);
        self.0.goes_on.notify_waiters();
    }

    /// Waits while it is stopped.
    pub(super) async fn going(&self) {
        loop {
            let goes_on = self.0.goes_on.notified();
            tokio::pin!(goes_on);
            goes_on.as_mut().enable();
            if !self.0.stopped.load(SeqCst) {
                return;
            }
            goes_on.await;
        }
    }

    /// The next such call that has no fault yet meets this one.
    pub fn once(&self, call: Call, fault: Fault) {
        self.plan(|plan| plan.once.entry(call).or_default().push_back(fault));
    }

    /// Every such call meets this fault, until [`heal`](Self::heal).
    pub fn always(&self, call: Call, fault: Fault) {
        self.plan(|plan| plan.always.insert(call, fault));
    }

    /// No call meets a fault from now on. Answers that are held stay held.
    pub fn heal(&self) {
        self.plan(|plan| {
            plan.once.clear();
            plan.always.clear();
        });
    }

    /// Lets the answers go that are held now. See [`met`](Self::met) for when one is.
    pub fn release(&self) {
        self.0.released.send_modify(|times| *times += 1);
    }

    /// How many such calls were made, with or without a fault.
    #[must_use]
    pub fn calls(&self, call: Call) -> usize {
        self.plan(|plan| plan.calls.get(&call).copied().unwrap_or(0))
    }

    /// Waits until such calls have met this many faults in all. *Hold*, *fail after* and *slow* are
    /// met when the work is done.
    pub async fn met(&self, call: Call, times: usize) {
        let mut met = self.0.met.subscribe();
        let enough = |met: &HashMap<Call, usize>| met.get(&call).is_some_and(|&n| n >= times);
        met.wait_for(enough)
            .await
            .expect("the script holds the sender");
    }

    fn plan<T>(&self, change: impl FnOnce(&mut Plan) -> T) -> T {
        change(&mut self.0.plan.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Counts the call; answers its fault.
    pub(super) fn take(&self, call: Call) -> Option<Fault> {
        let planned = self.plan(|plan| {
            *plan.calls.entry(call).or_default() += 1;
            let once = plan.once.get_mut(&call).and_then(VecDeque::pop_front);
            once.or_else(|| plan.always.get(&call).copied())
        });
        planned.or_else(|| self.0.draw.as_ref().and_then(|Draw(draw)| draw(call)))
    }

    pub(super) fn note(&self, call: Call) {
        self.0
            .met
            .send_modify(|met| *met.entry(call).or_default() += 1);
    }

    /// Changes with each release, from the one that this was taken at.
    pub(super) fn releases(&self) -> watch::Receiver<u64> {
        self.0.released.subscribe()
    }

    /// Makes the call with its fault.
    pub(super) async fn run<T, E>(
        &self,
        call: Call,
        unavailable: fn(Call) -> E,
        work: impl Future<Output = Result<T, E>>,
    ) -> Result<T, E> {
        self.going().await;
        let fault = self.take(call);
        let answer = self.meet(call, fault, unavailable, work).await;
        self.going().await;
        answer
    }

    async fn meet<T, E>(
        &self,
        call: Call,
        fault: Option<Fault>,
        unavailable: fn(Call) -> E,
        work: impl Future<Output = Result<T, E>>,
    ) -> Result<T, E> {
        let Some(fault) = fault else {
            return work.await;
        };
        if let Fault::Late(later) = fault {
            tokio::time::sleep(later).await;
        }
        if fault == Fault::Refuse {
            self.note(call);
            return Err(unavailable(call));
        }
        if fault == Fault::Silent {
            self.note(call);
            return pending().await;
        }
        let answer = work.await;
        let mut releases = self.releases();
        self.note(call);
        match fault {
            Fault::Hold => {
                releases
                    .changed()
                    .await
                    .expect("the script holds the sender");
                answer
            }
            Fault::Slow(later) => {
                tokio::time::sleep(later).await;
                answer
            }
            Fault::Late(_) => answer,
            Fault::FailAfter | Fault::Refuse | Fault::Silent => Err(unavailable(call)),
        }
    }
}
