//! A request of several events, and the ways to an answer for each.

use std::{sync::Arc, time::Duration};

use posthaste_engine::Cause;
use tokio::time::Instant;

use super::{
    refusal::{Answer, Blame, Refusal},
    target::Service,
};

/// A place that fails over so many single events, and takes none, fails over all.
const ALONE_MAX: usize = 2;

/// A request.
pub(super) struct Call<M> {
    pub(super) place: Arc<str>,
    pub(super) events: Vec<InCall>,
    pub(super) messages: Vec<Arc<M>>,
    pub(super) bytes: usize,
    /// When the first of its events has to be answered.
    pub(super) until: Instant,
}

/// An event of a request.
pub(super) struct InCall {
    pub(super) slot: usize,
    pub(super) order_key: Option<u64>,
}

/// The answer for an event.
pub(super) struct Told {
    pub(super) answer: Answer,
    /// Others of the same request may have been taken.
    pub(super) is_of_event: bool,
}

impl Told {
    /// There was no answer in time, as it may be over this event.
    pub(super) fn nothing(limit: Duration) -> Self {
        let reason = format!("no whole answer within {limit:?}");
        Self {
            answer: Err(Refusal::unclear(Cause::Unknown, reason)),
            is_of_event: true,
        }
    }
}

impl<M> Call<M> {
    pub(super) fn new(place: Arc<str>, until: Instant) -> Self {
        Self {
            place,
            events: Vec::new(),
            messages: Vec::new(),
            bytes: 0,
            until,
        }
    }
}

/// Sends a request. Where one of its events may be at fault and nobody knows which, it sends each
/// half in a request of its own, until that event is alone. Where each topic has its place, it does
/// so in tenths with a request that nobody answered: nothing else would tell such an event from a
/// place that fails. The answers are in the order of the events.
pub(super) async fn send<S: Service>(
    service: &S,
    call: &Call<S::Message>,
    has_topic: bool,
    answers: &mut Vec<Option<Told>>,
) {
    let mut open = vec![&*call.messages];
    let mut is_taken = false;
    let mut failed_alone = 0;
    while let Some(messages) = open.pop() {
        let refusal = match service.send(&call.place, messages).await {
            Ok(told) => {
                is_taken = true;
                let told = told.into_iter().map(|answer| Told {
                    answer,
                    is_of_event: true,
                });
                answers.extend(told.map(Some));
                continue;
            }
            Err(refusal) => refusal,
        };
        let is_unclear = has_topic && matches!(refusal.blame, Blame::Unclear(_));
        if messages.len() > 1 && (is_unclear || matches!(refusal.blame, Blame::Event(_))) {
            // Parts of a request without an answer may have arrived: few are sent often.
            let parts = if is_unclear { 10 } else { 2 };
            open.extend(messages.chunks(messages.len().div_ceil(parts)).rev());
            continue;
        }
        failed_alone += usize::from(is_unclear);
        let is_place = is_unclear && !is_taken && failed_alone >= ALONE_MAX;
        let count = match is_place {
            true => call.events.len() - answers.len(),
            false => messages.len(),
        };
        let told = || {
            Some(Told {
                answer: Err(refusal.clone()),
                is_of_event: false,
            })
        };
        answers.resize_with(answers.len() + count, told);
        if is_place {
            return;
        }
    }
    // The place took others of the same request.
    for told in answers.iter_mut().flatten() {
        told.is_of_event |= is_taken;
    }
}
