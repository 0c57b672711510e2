//! The steps that may be taken in a state.

use std::fmt;

use posthaste_engine::rule::Rule;

use crate::{
    database::Event,
    scenario::{End, Grain, Pace, System, Transaction},
    state::{Heard, Relay, Sent, State},
};

/// A step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// The writer's transaction gets its number.
    Begin(usize),
    /// It locks the next key, draws a `seq` and inserts.
    Emit(usize),
    /// It commits.
    Commit(usize),
    /// It is rolled back.
    RollBack(usize),
    /// The relay receives the sequence's value before its claim.
    Ask(usize),
    /// It fences who is dead, raises the epoch and reads the cursor.
    Claim(usize),
    /// A read is sent: its snapshot is taken.
    Send(usize),
    /// Its rows and the sequence's value are read, and answered.
    Answer(usize),
    /// Records are handed to the network.
    Submit(usize),
    /// The broker takes the next record.
    Deliver(usize),
    /// The broker does not take it for now.
    Fail(usize),
    /// The broker refuses it for good.
    Refuse(usize),
    /// Its place takes nothing for now.
    PutOff(usize),
    /// Records are handed to the network once the waits of places are over.
    Turn(usize),
    /// The store makes the next change: it parks, settles, advances, or tells what is due.
    Change(usize),
    /// A control: what counts as parked is parked.
    Park(usize),
    /// The side read makes its next step.
    Side(usize),
    /// An operator has a dead event tried again.
    Retry(Event),
    /// An operator leaves a dead event behind.
    Skip(Event),
    /// Its answer arrives.
    Hear(usize),
    /// Its answer arrives twice.
    Doubled(usize),
    /// No answer: the lane is aborted.
    Cut(usize),
    /// An advance is sent.
    Advance(usize),
    /// It gets its transaction number and changes the row.
    Number(usize),
    /// It commits and is answered.
    Advanced(usize),
    /// The relay loses its memory.
    Crash(usize),
    /// It is stopped.
    Stop(usize),
    /// It goes on.
    Continue(usize),
    /// It notices that its lease is over.
    GiveUp(usize),
    /// Bytes of a lane that is gone arrive.
    Straggle(usize),
    /// They are lost.
    Drop(usize),
    /// The advance of a relay that is gone is executed.
    Late(usize),
    /// The database crashes and recovers.
    DatabaseCrash,
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let writer = |w: usize| format!("W{w}");
        let relay = |r: usize| format!("R{r}");
        let (who, what) = match *self {
            Self::Begin(w) => (writer(w), "begins"),
            Self::Emit(w) => (writer(w), "emits"),
            Self::Commit(w) => (writer(w), "commits"),
            Self::RollBack(w) => (writer(w), "rolls back"),
            Self::Ask(r) => (relay(r), "receives F"),
            Self::Claim(r) => (relay(r), "claims"),
            Self::Send(r) => (relay(r), "sends a poll: its snapshot is taken"),
            Self::Answer(r) => (relay(r), "reads F and the rows"),
            Self::Submit(r) => (relay(r), "submits"),
            Self::Deliver(r) => (relay(r), "'s next record is accepted by the broker"),
            Self::Fail(r) => (relay(r), "'s next record is refused for now"),
            Self::Refuse(r) => (relay(r), "'s next record is refused for good"),
            Self::Turn(r) => (relay(r), "'s places have their turn"),
            Self::PutOff(r) => (relay(r), "'s next record is put off by its place"),
            Self::Change(r) => (relay(r), "'s next change of the store is made"),
            Self::Park(r) => (relay(r), "'s event is parked at last"),
            Self::Side(r) => (relay(r), "'s side read makes a step"),
            Self::Retry(event) => (format!("event {event}"), "is to be tried again"),
            Self::Skip(event) => (format!("event {event}"), "is left behind by an operator"),
            Self::Hear(r) => (relay(r), "hears of it"),
            Self::Doubled(r) => (relay(r), "hears of it twice"),
            Self::Cut(r) => (relay(r), "hears nothing and aborts its lane"),
            Self::Advance(r) => (relay(r), "sends an advance"),
            Self::Number(r) => (relay(r), "'s advance gets its number"),
            Self::Advanced(r) => (relay(r), "'s advance is made and answered"),
            Self::Crash(r) => (relay(r), "is killed"),
            Self::Stop(r) => (relay(r), "is stopped"),
            Self::Continue(r) => (relay(r), "continues"),
            Self::GiveUp(r) => (relay(r), "notices that its lease is over"),
            Self::Straggle(_) => ("a byte".to_owned(), "of an aborted lane arrives"),
            Self::Drop(_) => ("the bytes".to_owned(), "of an aborted lane are lost"),
            Self::Late(_) => ("the advance".to_owned(), "of a relay that is gone is made"),
            Self::DatabaseCrash => ("the database".to_owned(), "crashes"),
        };
        let space = if what.starts_with('\'') { "" } else { " " };
        write!(f, "{who}{space}{what}")
    }
}

impl End {
    fn ways(self) -> &'static [fn(usize) -> Action] {
        match self {
            Self::Commits => &[Action::Commit],
            Self::RollsBack => &[Action::RollBack],
            Self::Any => &[Action::Commit, Action::RollBack],
        }
    }
}

impl System {
    fn is_locked(&self, state: &State, key: u8, by: usize) -> bool {
        state.writers.iter().enumerate().any(|(w, writer)| {
            let held = |(_, emitted): (u64, usize)| {
                self.writers[w][writer.done].keys[..emitted].contains(&key)
            };
            w != by && writer.open.is_some_and(held)
        })
    }

    pub(crate) fn writer_actions(&self, state: &State, actions: &mut Vec<Action>) {
        for (w, writer) in state.writers.iter().enumerate() {
            let Some(Transaction { keys, end, pace }) = self.writers[w].get(writer.done) else {
                continue;
            };
            let is_free = |key: &u8| !self.is_locked(state, *key, w);
            let may_begin = match pace {
                Pace::AtOnce => keys.iter().all(is_free),
                Pace::Locking => is_free(&keys[0]),
                Pace::Numbered => true,
            };
            match writer.open {
                None if may_begin => actions.push(Action::Begin(w)),
                None => {}
                Some((_, emitted)) => match keys.get(emitted) {
                    Some(key) if is_free(key) => actions.push(Action::Emit(w)),
                    Some(_) => {}
                    None => actions.extend(end.ways().iter().map(|way| way(w))),
                },
            }
        }
    }

    pub(crate) fn relay_actions(&self, state: &State, r: usize, actions: &mut Vec<Action>) {
        let left = state.left;
        let reading = self.grain == Grain::Reading;
        match &state.relays[r] {
            Relay::Idle if state.may_claim() => {
                actions.push(if reading {
                    Action::Ask(r)
                } else {
                    Action::Claim(r)
                });
            }
            Relay::Claiming(_) if state.may_claim() => actions.push(Action::Claim(r)),
            Relay::Idle | Relay::Claiming(_) => {}
            Relay::Paused(_) => actions.push(Action::Continue(r)),
            Relay::Running(claim) => {
                if claim.expired {
                    actions.push(Action::GiveUp(r));
                } else if !claim.memory.is_reading() {
                    // How reads and advances overlap is the other grain's.
                    if reading || !claim.memory.is_advancing() {
                        actions.push(Action::Send(r));
                    }
                } else {
                    actions.push(Action::Answer(r));
                }
                if !reading && self.may_submit(state, r) {
                    actions.push(Action::Submit(r));
                    if left.turns > 0 {
                        actions.push(Action::Turn(r));
                    }
                }
                let answer = claim.answers.first();
                actions.extend(answer.map(|_| Action::Hear(r)));
                let sets_aside = self.grain == Grain::SettingAside;
                if matches!(answer, Some(Heard::Accepted(_))) && !sets_aside {
                    actions.push(Action::Doubled(r));
                }
                if sets_aside {
                    actions.extend([Action::Change(r), Action::Side(r)]);
                }
                if !claim.parking.is_empty() {
                    actions.push(Action::Park(r));
                }
                let in_flight = claim.bytes.len() + claim.answers.len() > 0;
                if left.cuts > 0 && in_flight {
                    actions.push(Action::Cut(r));
                }
                match (claim.memory.is_advancing(), claim.advance) {
                    (false, _) if reading => actions.push(Action::Advance(r)),
                    (false, _) => {}
                    (true, None) if reading => actions.push(Action::Number(r)),
                    (true, _) => actions.push(Action::Advanced(r)),
                }
                // A statement that has its number ends within a moment.
                if claim.advance.is_none() {
                    if left.crashes > 0 {
                        actions.push(Action::Crash(r));
                    }
                    if left.pauses > 0 {
                        actions.push(Action::Stop(r));
                    }
                }
            }
        }
        let claim = state.relays[r].claim();
        if let Some(claim) = claim.filter(|claim| !claim.bytes.is_empty()) {
            actions.push(Action::Deliver(r));
            let is_taken = !claim.refusing && !claim.bytes[0].refused;
            if left.failures > 0 && is_taken {
                actions.push(Action::Fail(r));
            }
            if left.refusals > 0 && is_taken {
                actions.push(Action::Refuse(r));
            }
            if left.laters > 0 && is_taken {
                actions.push(Action::PutOff(r));
            }
        }
    }

    /// Whether the relay may hand records to the network, if it has any.
    pub(crate) fn may_submit(&self, state: &State, r: usize) -> bool {
        let Relay::Running(claim) = &state.relays[r] else {
            return false;
        };
        let may_send = !claim.expired || self.without(Rule::SendingEndsWithLease);
        may_send && (!claim.unsettled || self.is_settled(state, r))
    }

    /// Whether bytes that others handed over in time have arrived or are gone.
    pub(crate) fn is_settled(&self, state: &State, r: usize) -> bool {
        let in_time = |bytes: &Vec<Sent>| bytes.iter().any(|sent| !sent.late);
        let others = state
            .relays
            .iter()
            .enumerate()
            .filter(|(other, _)| *other != r);
        let mut others = others.filter_map(|(_, relay)| relay.claim());
        self.without(Rule::SettleTimeIsWaitedFor)
            || !(state.orphans.iter().any(in_time) || others.any(|other| in_time(&other.bytes)))
    }
}
