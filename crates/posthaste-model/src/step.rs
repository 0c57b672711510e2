//! The steps.

use std::sync::Arc;

use posthaste_engine::{
    KeyOrder,
    rule::{Rule, leave_out},
};
use posthaste_stores::postgres::model::{Number, Position, Standing};

use crate::{
    action::Action,
    checker::Machine,
    database::{Event, Row},
    relay::Memory,
    scenario::{Grain, Promise, System},
    state::{Claim, Heard, LateAdvance, Relay, Sent, State},
};

impl Machine for System {
    type State = State;
    type Action = Action;

    fn first(&self) -> State {
        self.first_state()
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        self.writer_actions(state, actions);
        for r in 0..self.relays {
            self.relay_actions(state, r, actions);
        }
        for at in 0..state.orphans.len() {
            actions.push(Action::Straggle(at));
            actions.push(Action::Drop(at));
        }
        actions.extend((0..state.late.len()).map(Action::Late));
        self.aside_actions(state, actions);
        if state.left.database > 0 {
            actions.push(Action::DatabaseCrash);
        }
    }

    /// Production code runs without the rule that is left out, too.
    fn step(&self, last: &State, action: Action) -> Option<State> {
        match self.left_out {
            Some(rule) => leave_out(rule, || self.sound_step(last, action)),
            None => self.sound_step(last, action),
        }
    }

    fn describe(&self, state: &State) -> Vec<Number> {
        self.described(state)
    }

    fn broken(state: &State) -> Option<Promise> {
        state.broken
    }

    fn is_drained(&self, state: &State) -> bool {
        state.is_drained(self)
    }
}

impl System {
    fn sound_step(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        self.write(&mut state, action)
            .or_else(|| self.relay_step(&mut state, action))
            .or_else(|| self.fault(&mut state, action))
            .or_else(|| self.operate(&mut state, action))?;
        if self.grain != Grain::Reading {
            self.go_on(&mut state);
        }
        self.check(&mut state);
        // An advance that is refused for ever changes nothing.
        let late = std::mem::take(&mut state.late);
        let may_come = |late: &LateAdvance| !self.refuses(&state, late.epoch, late.token);
        state.late = late.into_iter().filter(may_come).collect();
        Some(state)
    }

    /// Steps that nobody else can see are taken at once: an advance is sent, which may be executed
    /// at any time or never, and records are submitted, unless the relay may yet be stopped before
    /// that.
    fn go_on(&self, state: &mut State) {
        for r in 0..self.relays {
            let submits = state.left.pauses == 0 && self.may_submit(state, r);
            let Some(claim) = state.relays[r].running() else {
                continue;
            };
            if submits {
                self.submit(claim);
            }
            if self.grain == Grain::Delivery
                && let Some(memory) = self.memories.begin_advance(&claim.memory)
            {
                claim.memory = memory;
            }
        }
    }

    fn submit(&self, claim: &mut Claim) -> Option<()> {
        let (memory, sent) = self.memories.submit(&claim.memory)?;
        self.submitted(claim, memory, sent);
        Some(())
    }

    fn submitted(&self, claim: &mut Claim, memory: Arc<Memory>, sent: Vec<(u64, Event)>) {
        claim.memory = memory;
        let late = claim.expired;
        let refused_keys = claim.refused_keys.clone();
        let sent = sent.into_iter().map(|(ticket, event)| Sent {
            ticket,
            event,
            late,
            refused: refused_keys.contains(&self.key_of(event)),
        });
        claim.bytes.extend(sent);
        claim.unsettled = false;
    }

    /// The broker takes a record.
    pub(crate) fn deliver(&self, state: &mut State, event: Event) {
        let key = &mut state.keys[usize::from(self.key_of(event))];
        let Some(at) = key.order.iter().position(|&other| other == event) else {
            return state.breaks(self, Promise::Phantom);
        };
        let (first, last) = (key.first, key.last);
        key.last = at + 1;
        if at > first {
            return state.breaks(self, Promise::Order);
        }
        if at == first {
            key.first += 1;
        } else {
            state.repeats += 1;
        }
        state.keys[usize::from(self.key_of(event))].pass_skipped();
        if at > last {
            state.breaks(self, Promise::Replay);
        }
        let faults = self.faults.sum() - state.left.sum();
        if state.repeats > faults * self.bounds.window {
            state.breaks(self, Promise::Repeats);
        }
    }

    /// The guard of a change.
    pub(crate) fn refuses(&self, state: &State, epoch: u64, token: u64) -> bool {
        let database = &state.database;
        let epoch_differs = database.epoch != epoch && !self.without(Rule::EpochIsChecked);
        let token_differs = database.token != token && !self.without(Rule::IncarnationIsChecked);
        epoch_differs || token_differs
    }

    /// An advance is executed. False: the guard refuses it.
    fn store(&self, state: &mut State, to: &Position, epoch: u64, token: u64) -> bool {
        if self.refuses(state, epoch, token) {
            return false;
        }
        let database = &state.database;
        let ours = database.epoch == epoch && database.token == token;
        let behind = |at: &Position, row: &Row| at.standing(row.xid, row.seq) == Standing::Behind;
        let back = !to.covers(&database.stored)
            || (database.mvcc.rows.values())
                .any(|row| behind(&database.stored, row) && !behind(to, row));
        state.database.stored = Arc::new(to.clone());
        if back || !ours {
            state.breaks(self, Promise::Authority);
        }
        true
    }

    fn check(&self, state: &mut State) {
        let mut broken = None;
        for row in state.database.mvcc.committed() {
            let key = &state.keys[usize::from(self.key_of(row.event))];
            let at = key.order.iter().position(|&event| event == row.event);
            let at = at.unwrap_or(usize::MAX);
            let standing = self.standing(state, row);
            if at >= key.first && standing != Standing::Ahead {
                broken = Some(Promise::Loss);
            } else if at >= key.last && standing == Standing::Behind {
                // The next owner goes on behind it: the consumer's last event stays an older one.
                broken = broken.or(Some(Promise::Replay));
            }
        }
        if let Some(promise) = broken {
            state.breaks(self, promise);
        }
        if self.checks(Promise::Authority) {
            self.forget_passed(state);
        }
    }

    fn relay_step(&self, state: &mut State, action: Action) -> Option<()> {
        match action {
            Action::Ask(r) => state.relays[r] = Relay::Claiming(state.database.mvcc.sequence),
            Action::Claim(r) => self.claim(state, r),
            Action::Send(r) => self.send(state, r)?,
            Action::Answer(r) => self.answer(state, r),
            Action::Submit(r) => {
                self.submit(state.relays[r].running()?)?;
            }
            Action::Turn(r) => {
                let claim = state.relays[r].running()?;
                let (memory, sent) = claim.memory.submit_after_a_while()?;
                self.submitted(claim, self.memories.keep(memory), sent);
                state.left.turns -= 1;
            }
            Action::Deliver(r) => {
                let (Relay::Running(claim) | Relay::Paused(claim)) = &mut state.relays[r] else {
                    return None;
                };
                let sent = claim.bytes.remove(0);
                if claim.refusing || sent.refused {
                    claim.answers.push(Heard::Behind(sent.ticket));
                } else {
                    claim.answers.push(Heard::Accepted(sent.ticket));
                    self.deliver(state, sent.event);
                }
            }
            Action::Fail(r) => {
                let (Relay::Running(claim) | Relay::Paused(claim)) = &mut state.relays[r] else {
                    return None;
                };
                let sent = claim.bytes.remove(0);
                claim.answers.push(Heard::Failed(sent.ticket));
                claim.refusing = !self.without(Rule::ReceiverRefusesAfterFailure);
                state.left.failures -= 1;
            }
            Action::Refuse(r) => {
                self.refuse(state, r, Heard::Refused)?;
                state.left.refusals -= 1;
            }
            Action::PutOff(r) => {
                self.refuse(state, r, Heard::PutOff)?;
                state.left.laters -= 1;
            }
            Action::Change(r) => self.change(state, r)?,
            Action::Park(r) => self.park_late(state, r)?,
            Action::Side(r) => self.side_step(state, r)?,
            Action::Hear(r) | Action::Doubled(r) => {
                let claim = state.relays[r].running()?;
                match claim.answers.remove(0) {
                    Heard::Failed(ticket) => self.hear_of_a_failure(state, r, ticket)?,
                    Heard::Accepted(ticket) => {
                        claim.memory = self.memories.accepted(&claim.memory, ticket)?;
                        if matches!(action, Action::Doubled(_)) {
                            claim.memory = self.memories.accepted(&claim.memory, ticket)?;
                        }
                    }
                    Heard::Refused(ticket) => {
                        claim.memory = self.memories.keep(claim.memory.refused(ticket));
                        // The relay knows of the refusal before its next submission.
                        claim.refused_keys.clear();
                    }
                    Heard::PutOff(ticket) => {
                        claim.memory = self.memories.keep(claim.memory.put_off(ticket));
                        claim.heard_of_a_failure();
                    }
                    Heard::Behind(ticket) => {
                        claim.memory = self.memories.keep(claim.memory.behind(ticket));
                        claim.heard_of_a_failure();
                    }
                }
            }
            Action::Cut(r) => {
                let claim = state.relays[r].running()?;
                claim.memory = self.memories.cut(&claim.memory)?;
                self.end_lane(state, r);
                state.left.cuts -= 1;
            }
            Action::Advance(r) => {
                let claim = state.relays[r].running()?;
                claim.memory = self.memories.begin_advance(&claim.memory)?;
            }
            Action::Number(r) => {
                let claim = state.relays[r].claim()?;
                if self.refuses(state, claim.epoch, claim.token) {
                    state.forget(self, r);
                    state.late.pop();
                    return Some(());
                }
                let xid = state.database.mvcc.begin();
                state.relays[r].running()?.advance = Some(xid);
            }
            Action::Advanced(r) => self.advanced(state, r)?,
            _ => return None,
        }
        Some(())
    }

    /// The broker refuses the next record, for good or for now, and what follows it of its key
    /// where the receiver keeps order.
    fn refuse(&self, state: &mut State, r: usize, heard: fn(u64) -> Heard) -> Option<()> {
        let (Relay::Running(claim) | Relay::Paused(claim)) = &mut state.relays[r] else {
            return None;
        };
        let sent = claim.bytes.remove(0);
        claim.answers.push(heard(sent.ticket));
        if self.bounds.order == KeyOrder::Pipelined {
            let key = self.key_of(sent.event);
            let of_key = |sent: &&mut Sent| self.key_of(sent.event) == key;
            let behind = claim.bytes.iter_mut().filter(of_key);
            behind.for_each(|sent| sent.refused = true);
            claim.refused_keys.push(key);
        }
        Some(())
    }

    /// The verdicts of a failure and of what was refused behind it so far come together; the lane
    /// goes.
    fn hear_of_a_failure(&self, state: &mut State, r: usize, ticket: u64) -> Option<()> {
        let claim = state.relays[r].running()?;
        let behind = claim.answers.iter().map_while(|answer| match answer {
            Heard::Behind(ticket) => Some(*ticket),
            _ => None,
        });
        let behind = behind.collect();
        claim.memory = self.memories.failed(&claim.memory, ticket, behind)?;
        self.end_lane(state, r);
        Some(())
    }

    /// The relay aborts its lane and opens another one.
    fn end_lane(&self, state: &mut State, r: usize) {
        let Some(claim) = state.relays[r].running() else {
            return;
        };
        claim.answers.clear();
        claim.refused_keys.clear();
        claim.unsettled = true;
        let refusing = std::mem::take(&mut claim.refusing);
        let bytes = std::mem::take(&mut claim.bytes);
        state.orphan(self, refusing, bytes);
    }

    fn claim(&self, state: &mut State, r: usize) {
        let proven = match state.relays[r] {
            Relay::Claiming(proven) => proven,
            _ => state.database.mvcc.sequence,
        };
        state.database.execute();
        let former = state.database.owner.replace(r);
        // Others may claim only once its lease is over, by its own clock as well.
        if let Some(Relay::Paused(claim)) = former.map(|former| &mut state.relays[former]) {
            claim.expired = true;
        }
        state.database.epoch += 1;
        let found = self.found(state);
        let memory = self
            .memories
            .open(self.bounds, &state.database.stored, proven, &found);
        state.relays[r] = Relay::Running(Box::new(Claim {
            memory,
            epoch: state.database.epoch,
            token: state.database.token,
            bytes: Vec::new(),
            answers: Vec::new(),
            refusing: false,
            refused_keys: Vec::new(),
            parking: Vec::new(),
            unsettled: true,
            expired: false,
            advance: None,
        }));
    }

    fn send(&self, state: &mut State, r: usize) -> Option<()> {
        let snapshot = state.database.mvcc.snapshot();
        let claim = state.relays[r].running()?;
        claim.memory = self.memories.begin_read(&claim.memory, snapshot)?;
        if self.grain != Grain::Reading {
            self.answer(state, r);
        }
        Some(())
    }

    fn answer(&self, state: &mut State, r: usize) {
        let State {
            database, relays, ..
        } = state;
        let Some(claim) = relays[r].running() else {
            return;
        };
        if claim.token != database.token && !self.without(Rule::IncarnationIsChecked) {
            return state.forget(self, r);
        }
        let key_of = |event| self.key_name(event);
        let size = self.bounds.page;
        let page = claim.memory.page(&database.mvcc, size, key_of);
        match self.memories.answer(&claim.memory, page) {
            Some(memory) => claim.memory = memory,
            None => return state.breaks(self, Promise::Soundness),
        }
        if self.grain == Grain::Reading {
            self.deliver_at_once(state, r);
        }
    }

    fn deliver_at_once(&self, state: &mut State, r: usize) {
        while let Some(claim) = state.relays[r].running()
            && let Some((mut memory, sent)) = self.memories.submit(&claim.memory)
        {
            for (ticket, event) in sent {
                self.deliver(state, event);
                memory = self.memories.accepted(&memory, ticket).unwrap_or(memory);
            }
            if let Some(claim) = state.relays[r].running() {
                claim.memory = memory;
            }
        }
    }

    pub(crate) fn advanced(&self, state: &mut State, r: usize) -> Option<()> {
        let begun = state.relays[r].running()?.advance.take();
        let claim = state.relays[r].running()?;
        let (to, epoch, token) = (claim.memory.advancing_to()?, claim.epoch, claim.token);
        let stored = self.store(state, &to, epoch, token);
        if !stored {
            state.forget(self, r);
            state.late.pop();
            return Some(());
        }
        let xid = begun.unwrap_or_else(|| state.database.mvcc.begin());
        state.database.commit(xid);
        let claim = state.relays[r].running()?;
        claim.memory = self.memories.advanced(&claim.memory)?;
        Some(())
    }

    fn fault(&self, state: &mut State, action: Action) -> Option<()> {
        match action {
            Action::Crash(r) => {
                state.left.crashes -= 1;
                state.forget(self, r);
            }
            Action::Stop(r) => {
                state.left.pauses -= 1;
                if let Relay::Running(claim) = std::mem::take(&mut state.relays[r]) {
                    state.relays[r] = Relay::Paused(claim);
                }
            }
            Action::Continue(r) => {
                if let Relay::Paused(claim) = std::mem::take(&mut state.relays[r]) {
                    state.relays[r] = Relay::Running(claim);
                }
            }
            Action::GiveUp(r) => state.forget(self, r),
            Action::Straggle(at) => {
                let sent = state.orphans[at].remove(0);
                state.orphans.retain(|bytes| !bytes.is_empty());
                state.orphans.sort();
                self.deliver(state, sent.event);
            }
            Action::Drop(at) => drop(state.orphans.remove(at)),
            Action::Late(at) => {
                let LateAdvance { to, epoch, token } = state.late.remove(at);
                if self.store(state, &to, epoch, token) {
                    state.database.execute();
                }
            }
            Action::DatabaseCrash => {
                state.left.database -= 1;
                state.database.crash();
                state.late.clear();
                for writer in &mut state.writers {
                    writer.open = None;
                }
                // Connections break: who waits for an answer claims anew.
                for r in 0..self.relays {
                    let waits =
                        |claim: &Claim| claim.memory.is_reading() || claim.memory.is_advancing();
                    if state.relays[r].claim().is_some_and(waits) {
                        state.forget(self, r);
                        state.late.clear();
                    }
                    if let Relay::Claiming(_) = state.relays[r] {
                        state.relays[r] = Relay::Idle;
                    }
                }
            }
            _ => return None,
        }
        Some(())
    }
}
