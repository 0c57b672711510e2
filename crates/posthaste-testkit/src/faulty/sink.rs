//! Faults around a sink.

use std::{collections::HashMap, sync::Arc, time::Duration};

use async_trait::async_trait;
use posthaste_engine::{
    Cause, Lane, LaneSpec, Outcome, Record, Sink, SinkError, SinkInfo, StoredProgress, Verdict,
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

    async fn check(&self) -> Result<(), SinkError> {
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
mod tests {
    use crate::sink_suite::lane_spec;
    use std::sync::Mutex;

    use posthaste_engine::{FenceKind, KeyOrder, PageBuilder, StoredEvent, StoredFields};
    use uuid::Uuid;

    use super::*;

    /// Accepts everything at once, and remembers it.
    #[derive(Default)]
    struct Accepts(Arc<Mutex<Vec<u64>>>);

    struct AcceptingLane {
        accepted: Arc<Mutex<Vec<u64>>>,
        ready: Vec<Verdict>,
    }

    #[async_trait]
    impl Sink for Accepts {
        fn info(&self) -> SinkInfo {
            SinkInfo {
                kind: "accepts",
                batch_events_max: 10,
                batch_bytes_max: 1_000,
                in_flight_events_max: 100,
                key_order: KeyOrder::Pipelined,
                fence: FenceKind::Exact,
                single_lane: false,
            }
        }

        async fn check(&self) -> Result<(), SinkError> {
            Ok(())
        }

        async fn open_lane(&self, _spec: LaneSpec) -> Result<Box<dyn Lane>, SinkError> {
            Ok(Box::new(AcceptingLane {
                accepted: Arc::clone(&self.0),
                ready: Vec::new(),
            }))
        }
    }

    #[async_trait]
    impl Lane for AcceptingLane {
        async fn submit(&mut self, batch: Vec<Record>) {
            for record in batch {
                self.accepted.lock().unwrap().push(record.ticket());
                self.ready.push(Verdict {
                    ticket: record.ticket(),
                    outcome: Outcome::Accepted(None),
                });
            }
        }

        async fn outcomes(&mut self) -> Vec<Verdict> {
            if self.ready.is_empty() {
                std::future::pending::<()>().await;
            }
            std::mem::take(&mut self.ready)
        }

        async fn abort(self: Box<Self>) {}

        async fn close(self: Box<Self>, _limit: Duration) -> Vec<Verdict> {
            self.ready
        }
    }

    fn event() -> StoredEvent {
        let mut page = PageBuilder::default();
        let fields = StoredFields {
            seq: 1,
            id: Uuid::nil(),
            occurred_at: 0,
            inserted_at: 0,
            slot: 0,
            texts: [None; 9],
            payload: None,
        };
        page.push(&fields, std::iter::empty()).unwrap();
        page.finish().remove(0)
    }

    fn batch(tickets: std::ops::Range<u64>) -> Vec<Record> {
        tickets.map(|ticket| Record::new(ticket, event())).collect()
    }

    async fn lane(script: &Script) -> (Box<dyn Lane>, Arc<Mutex<Vec<u64>>>) {
        let sink = Accepts::default();
        let accepted = Arc::clone(&sink.0);
        let sink = Faulty::new(Arc::new(sink), script.clone());
        (sink.open_lane(lane_spec(1)).await.unwrap(), accepted)
    }

    fn causes(verdicts: Vec<Verdict>) -> Vec<(u64, Option<Cause>)> {
        verdicts
            .into_iter()
            .map(|verdict| match verdict.outcome {
                Outcome::Unavailable(why) => (verdict.ticket, Some(why.cause)),
                _ => (verdict.ticket, None),
            })
            .collect()
    }

    #[tokio::test]
    async fn refused_is_not_done_and_breaks_the_lane() {
        let script = Script::default();
        let (mut lane, accepted) = lane(&script).await;
        script.once(Call::Submit, Fault::Refuse);
        lane.submit(batch(0..2)).await;
        lane.submit(batch(2..3)).await;
        let causes = causes(lane.outcomes().await);
        let expected = [
            (0, Some(Cause::Connection)),
            (1, Some(Cause::Connection)),
            (2, Some(Cause::LaneEnded)),
        ];
        assert_eq!(causes, expected);
        assert!(accepted.lock().unwrap().is_empty());
        script.met(Call::Submit, 1).await;
        assert_eq!(script.calls(Call::Submit), 2);
    }

    #[tokio::test]
    async fn failed_after_is_done() {
        let script = Script::default();
        let (mut lane, accepted) = lane(&script).await;
        script.once(Call::Submit, Fault::FailAfter);
        lane.submit(batch(0..2)).await;
        let unknown = Some(Cause::Unknown);
        assert_eq!(causes(lane.outcomes().await), [(0, unknown), (1, unknown)]);
        assert_eq!(*accepted.lock().unwrap(), [0, 1]);
    }

    #[tokio::test]
    async fn held_answers_wait_for_their_release_and_others_do_not() {
        let script = Script::default();
        let (mut lane, accepted) = lane(&script).await;
        script.release();
        script.once(Call::Submit, Fault::Hold);
        lane.submit(batch(0..2)).await;
        lane.submit(batch(2..3)).await;
        assert_eq!(causes(lane.outcomes().await), [(2, None)]);
        script.met(Call::Submit, 1).await;
        assert_eq!(accepted.lock().unwrap().len(), 3);
        script.release();
        assert_eq!(causes(lane.outcomes().await), [(0, None), (1, None)]);
    }

    #[tokio::test(start_paused = true)]
    async fn slow_answers_come_later() {
        let script = Script::default();
        let (mut lane, _) = lane(&script).await;
        script.once(Call::Submit, Fault::Slow(Duration::from_secs(60)));
        lane.submit(batch(0..1)).await;
        let before = Instant::now();
        assert_eq!(causes(lane.outcomes().await), [(0, None)]);
        assert!(before.elapsed() >= Duration::from_secs(60));
    }

    #[tokio::test(start_paused = true)]
    async fn a_closed_lane_answers_for_everything() {
        let script = Script::default();
        let (mut lane, _) = lane(&script).await;
        script.once(Call::Submit, Fault::Hold);
        lane.submit(batch(0..1)).await;
        lane.submit(batch(1..2)).await;
        let closed = causes(lane.close(Duration::from_secs(1)).await);
        assert_eq!(closed, [(1, None), (0, Some(Cause::LaneEnded))]);
    }
}
