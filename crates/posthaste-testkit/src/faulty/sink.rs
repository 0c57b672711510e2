//! Faults around a sink.

use std::{collections::HashMap, sync::Arc, time::Duration};

use async_trait::async_trait;
use posthaste_engine::{
    Cause, CheckReport, Lane, LaneSpec, Outcome, Record, Sink, SinkError, SinkInfo, StoredProgress,
    Verdict,
};
use tokio::{sync::watch, time::Instant};

use super::{
    Call, Fault, Faulty, Script,
    watch::{LaneWatch, SinkWatch},
};

fn unavailable(call: Call) -> SinkError {
    SinkError::Unavailable {
        target: call.name().to_owned(),
        reason: "a fault of the script".to_owned(),
    }
}

#[async_trait]
impl<S: Sink + ?Sized, W: SinkWatch> Sink for Faulty<Arc<S>, W> {
    fn info(&self) -> SinkInfo {
        self.inner.info()
    }

    async fn check(&self) -> Result<CheckReport, SinkError> {
        let work = self.inner.check();
        self.script.run(Call::CheckSink, unavailable, work).await
    }

    async fn open_lane(&self, spec: LaneSpec) -> Result<Box<dyn Lane>, SinkError> {
        let watch = self.watch.open_lane(&spec);
        let work = self.inner.open_lane(spec);
        let inner = self.script.run(Call::OpenLane, unavailable, work).await?;
        Ok(Box::new(FaultyLane {
            releases: self.script.releases(),
            script: self.script.clone(),
            inner: Some(inner),
            watch,
            broken: false,
            answers: Answers::default(),
        }))
    }
}

/// A lane whose batches meet faults.
struct FaultyLane<W> {
    /// None once it was closed.
    inner: Option<Box<dyn Lane>>,
    watch: W,
    script: Script,
    releases: watch::Receiver<u64>,
    /// After a batch was refused or failed nothing is passed on, as on a cut connection: a later
    /// record of a key must not be accepted behind one that was not.
    broken: bool,
    answers: Answers,
}

/// The questions to the lane inside, and its answers.
#[derive(Default)]
struct Answers {
    /// The fault and the batch of each record that was passed on with one.
    faults: HashMap<u64, (Fault, usize)>,
    /// Records without an answer, by batch.
    open: HashMap<usize, usize>,
    batches: usize,
    ready: Vec<Verdict>,
    held: Vec<Verdict>,
    slow: Vec<(Instant, Verdict)>,
}

impl Answers {
    fn expect(&mut self, batch: &[Record], fault: Fault) {
        self.batches += 1;
        self.open.insert(self.batches, batch.len());
        let faults = batch
            .iter()
            .map(|record| (record.ticket(), (fault, self.batches)));
        self.faults.extend(faults);
    }

    /// Sorts an answer. True: it was the last one of a batch with a fault.
    fn sort(&mut self, answer: Verdict) -> bool {
        let Some((fault, batch)) = self.faults.remove(&answer.ticket) else {
            self.ready.push(answer);
            return false;
        };
        match fault {
            Fault::Hold => self.held.push(answer),
            Fault::Slow(later) => self.slow.push((Instant::now() + later, answer)),
            Fault::Late(_) => self.ready.push(answer),
            Fault::Silent => {}
            Fault::FailAfter | Fault::Refuse => {
                self.ready.push(verdict(answer.ticket, Cause::Unknown));
            }
        }
        let open = self.open.entry(batch).or_default();
        *open -= 1;
        *open == 0
    }

    fn release(&mut self) {
        self.ready.append(&mut self.held);
    }

    /// Moves the slow verdicts whose time has come.
    fn move_due(&mut self) {
        let now = Instant::now();
        for (at, verdict) in std::mem::take(&mut self.slow) {
            if at <= now {
                self.ready.push(verdict);
            } else {
                self.slow.push((at, verdict));
            }
        }
    }
}

impl<W> FaultyLane<W> {
    fn refuse(&mut self, batch: &[Record], cause: Cause) {
        let verdicts = batch.iter().map(|record| verdict(record.ticket(), cause));
        self.answers.ready.extend(verdicts);
    }

    fn answered(&mut self, verdicts: Vec<Verdict>) {
        // A release is for what was held before it, and for nothing that is held from now on.
        if self.releases.has_changed().unwrap_or(false) {
            self.answers.release();
            self.releases.mark_unchanged();
        }
        for answer in verdicts {
            if self.answers.sort(answer) {
                self.script.note(Call::Submit);
            }
        }
    }
}

fn verdict(ticket: u64, cause: Cause) -> Verdict {
    Verdict {
        ticket,
        outcome: Outcome::unavailable(cause, "a fault of the script"),
    }
}

/// Waits until the first slow verdict is due; for ever when there is none.
async fn first_due(slow: &[(Instant, Verdict)]) {
    match slow.iter().map(|(at, _)| *at).min() {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}

async fn outcomes_of(lane: Option<&mut Box<dyn Lane>>) -> Vec<Verdict> {
    match lane {
        Some(lane) => lane.outcomes().await,
        None => std::future::pending().await,
    }
}

#[async_trait]
impl<W: LaneWatch> Lane for FaultyLane<W> {
    async fn submit(&mut self, batch: Vec<Record>) {
        self.watch.submit(&batch);
        self.script.going().await;
        let fault = self.script.take(Call::Submit);
        if self.broken {
            return self.refuse(&batch, Cause::LaneEnded);
        }
        if fault == Some(Fault::Refuse) {
            self.broken = true;
            self.refuse(&batch, Cause::Connection);
            return self.script.note(Call::Submit);
        }
        if fault == Some(Fault::Silent) {
            return self.script.note(Call::Submit);
        }
        if let Some(Fault::Late(later)) = fault {
            tokio::time::sleep(later).await;
        }
        if let Some(fault) = fault {
            self.broken |= fault == Fault::FailAfter;
            self.answers.expect(&batch, fault);
        }
        let inner = self.inner.as_mut().expect("an open lane");
        inner.submit(batch).await;
    }

    async fn outcomes(&mut self) -> Vec<Verdict> {
        loop {
            if !self.answers.ready.is_empty() {
                self.script.going().await;
                return std::mem::take(&mut self.answers.ready);
            }
            tokio::select! {
                biased;
                answered = outcomes_of(self.inner.as_mut()) => self.answered(answered),
                _ = self.releases.changed() => self.answers.release(),
                () = first_due(&self.answers.slow) => self.answers.move_due(),
            }
        }
    }

    async fn take_over(&mut self) -> Result<Option<String>, SinkError> {
        let inner = self.inner.as_mut().expect("an open lane");
        let work = inner.take_over();
        self.script.run(Call::TakeOver, unavailable, work).await
    }

    fn progressed(&mut self, progress: StoredProgress) {
        if let Some(inner) = &mut self.inner {
            inner.progressed(progress);
        }
    }

    async fn abort(mut self: Box<Self>) {
        self.script.going().await;
        if let Some(inner) = self.inner.take() {
            inner.abort().await;
        }
    }

    async fn close(mut self: Box<Self>, limit: Duration) -> Vec<Verdict> {
        self.script.going().await;
        let deadline = Instant::now() + limit;
        let inner = self.inner.take().expect("an open lane");
        let answered = inner.close(limit).await;
        self.answered(answered);
        let mut verdicts = std::mem::take(&mut self.answers.ready);
        while !(self.answers.held.is_empty() && self.answers.slow.is_empty()) {
            match tokio::time::timeout_at(deadline, self.outcomes()).await {
                Ok(more) => verdicts.extend(more),
                Err(_) => break,
            }
        }
        let slow = self.answers.slow.iter().map(|(_, late)| late);
        let late = self.answers.held.iter().chain(slow);
        verdicts.extend(late.map(|late| verdict(late.ticket, Cause::LaneEnded)));
        verdicts
    }
}

#[cfg(test)]
mod tests;
