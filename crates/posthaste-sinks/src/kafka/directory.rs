//! The cluster's topics as the lanes of a sink know them: how many partitions each has and which of
//! them have a leader, or why it takes nothing. It outlives a lane, so that the next one does not
//! ask everything again.
//!
//! A few topics are asked for by name, at the same time. Where more wait, one question for all
//! topics of the cluster answers them together: those that it does not show are refused at once,
//! and asked for by name when nothing waits, since only that makes a topic on demand, and tells a
//! topic that is hidden from us from one that does not exist.

use std::{
    collections::{BTreeSet, HashMap, HashSet, VecDeque},
    mem,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use posthaste_engine::{Outcome, RejectionKind};
use rdkafka::types::RDKafkaErrorCode as Code;
use tokio::sync::watch;

use super::topic_names;

/// How long a topic's partitions are believed before they are looked up again, beside the traffic.
const KNOWN_FOR: Duration = Duration::from_secs(60);
/// The same for a topic of which a partition has no leader, so that it returns soon after that.
const LEADERLESS_FOR: Duration = Duration::from_secs(1);
/// How long a topic stays missing or denied, so that its events do not ask the cluster one by one.
const REFUSED_FOR: Duration = Duration::from_secs(1);
/// Questions by name at a time. Each takes a thread, and a missing topic takes half a second.
const BY_NAME_MAX: usize = 8;
/// When all topics are asked for again after no answer came in time: the cluster may be too large,
/// or too far, for that question.
const ALL_AGAIN_AFTER: Duration = Duration::from_secs(10);
/// How many topics are remembered before those that were refused are forgotten: an application can
/// name any number of topics that do not exist.
const TOPICS_MAX: usize = 16_384;

/// How long one question may take at most.
const QUESTION_MAX: Duration = Duration::from_secs(2);

/// How long a question may take. A record waits for two at the most: one that was under way when it
/// came, and its own. Then half of its time is left for sending.
pub(super) fn question_limit(publish_timeout: Duration) -> Duration {
    QUESTION_MAX.min(publish_timeout / 4)
}

/// The known fate of a topic's records.
pub(super) enum Answer {
    /// Its partitions, and until when they are believed.
    Known(TopicLayout, Instant),
    /// The cluster is to be asked.
    NotYet,
    /// Nowhere.
    Refused(Outcome),
}

/// A topic's partitions, as the cluster tells of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct TopicLayout {
    /// How many.
    pub(super) partitions: usize,
    /// Those without a leader, which take nothing for now.
    pub(super) leaderless: Arc<BTreeSet<usize>>,
    /// The numbers of the brokers that lead them, in order.
    pub(super) leaders: Arc<[i32]>,
}

/// A question for the cluster.
pub(super) enum Question {
    ByName(Box<str>),
    /// All topics; of interest are these.
    All(HashSet<Box<str>>),
}

/// The cluster's topics, as far as records named them. Shared by the lanes of a sink.
pub(super) struct Directory {
    known: Mutex<KnownTopics>,
    changed: watch::Sender<()>,
}

#[derive(Default)]
struct KnownTopics {
    topics: HashMap<Box<str>, DirectoryEntry>,
    /// Topics to ask for, in whatever way is free first.
    waiting: VecDeque<Box<str>>,
    /// Topics to ask for by name when no other waits.
    behind: VecDeque<Box<str>>,
    /// Questions by name under way.
    by_name: usize,
    /// The question for all topics is under way.
    all: bool,
    all_not_before: Option<Instant>,
}

struct DirectoryEntry {
    state: EntryState,
    /// How many partitions it had before its answer was doubted. It has as many, but for a while
    /// after it was cut anew.
    partitions_before: Option<usize>,
    asked: Asked,
    /// It is in `behind`.
    is_behind: bool,
}

enum EntryState {
    Unknown,
    Known {
        layout: TopicLayout,
        until: Instant,
        /// It is not answered before the cluster was asked again.
        in_doubt: bool,
    },
    Refused {
        kind: RejectionKind,
        reason: String,
        until: Instant,
    },
}

/// Whether the cluster is asked for a topic because records name it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Asked {
    No,
    /// It is in `waiting`.
    Waiting,
    /// By name, now.
    ByName,
}

impl Default for Directory {
    fn default() -> Self {
        Self {
            known: Mutex::default(),
            changed: watch::Sender::new(()),
        }
    }
}

impl Directory {
    fn known(&self) -> MutexGuard<'_, KnownTopics> {
        // Nothing panics while it holds the lock.
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells of every answer from now on.
    pub(super) fn subscribe(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }

    /// The answer for a topic, as far as it is known. An unknown or old one becomes a question: see
    /// [`questions`](Self::questions).
    pub(super) fn answer(&self, name: &str, now: Instant) -> Answer {
        if let Some(reason) = topic_names::refuse_name(name) {
            return Answer::Refused(Outcome::rejected(RejectionKind::Invalid, reason));
        }
        let known = &mut *self.known();
        if !known.topics.contains_key(name) {
            known.make_room();
            known.topics.insert(name.into(), DirectoryEntry::default());
        }
        let Some(topic) = known.topics.get_mut(name) else {
            return Answer::NotYet;
        };
        let (answer, is_due) = match &topic.state {
            EntryState::Unknown => (Answer::NotYet, true),
            EntryState::Known { in_doubt: true, .. } => (Answer::NotYet, true),
            EntryState::Known { layout, until, .. } => {
                (Answer::Known(layout.clone(), *until), now >= *until)
            }
            EntryState::Refused {
                kind,
                reason,
                until,
            } if now < *until => {
                let outcome = Outcome::rejected(*kind, reason.as_str());
                (Answer::Refused(outcome), false)
            }
            EntryState::Refused { .. } => {
                topic.state = EntryState::Unknown;
                (Answer::NotYet, true)
            }
        };
        if is_due {
            known.ask(name);
        }
        answer
    }

    /// Has this topic asked for; the former answer counts until then.
    pub(super) fn ask_again(&self, name: &str) {
        self.known().ask(name);
    }

    /// How many partitions a topic has. If that was never known, the cluster is asked.
    pub(super) fn partitions_or_ask(&self, name: &str) -> Option<usize> {
        let partitions = self.partitions(name);
        if partitions.is_none() && matches!(self.answer(name, Instant::now()), Answer::NotYet) {
            // A lane asks.
            self.changed.send_replace(());
        }
        partitions
    }

    /// How many partitions a topic has, as far as it was ever known; nothing is asked.
    fn partitions(&self, name: &str) -> Option<usize> {
        let known = self.known();
        let topic = known.topics.get(name)?;
        match &topic.state {
            EntryState::Known { layout, .. } => Some(layout.partitions),
            _ => topic.partitions_before,
        }
    }

    /// The answer for this topic was wrong.
    pub(super) fn forget(&self, name: &str) {
        if let Some(topic) = self.known().topics.get_mut(name)
            && let EntryState::Known { layout, .. } =
                mem::replace(&mut topic.state, EntryState::Unknown)
        {
            topic.partitions_before = Some(layout.partitions);
        }
    }

    /// Leaders may have changed, and nothing says whose: each topic is asked for before it is
    /// answered again. A cluster that cannot be asked leaves the former answer.
    pub(super) fn doubt_leaders(&self) {
        self.known().set_doubt(true);
    }

    /// The questions that the cluster may be asked now. Each has to be answered:
    /// [`answered`](Self::answered), [`all_answered`](Self::all_answered).
    pub(super) fn questions(&self, now: Instant) -> Vec<Question> {
        let known = &mut *self.known();
        let mut questions = Vec::new();
        while known.by_name < BY_NAME_MAX
            && let Some(name) = known.next_by_name()
        {
            known.by_name += 1;
            questions.push(Question::ByName(name));
        }
        let may_ask = !known.all && known.all_not_before.is_none_or(|at| at <= now);
        // Fewer are asked for by name next, and no cluster need tell us all that it has.
        if may_ask && known.waiting.len() > BY_NAME_MAX {
            known.all = true;
            let names = known.waiting.iter().cloned().collect();
            questions.push(Question::All(names));
        }
        questions
    }

    /// Takes the answer to a question by name.
    ///
    /// # Errors
    /// The reason why the topic is not known, when that is not the topic's fault.
    pub(super) fn answered(
        &self,
        name: &str,
        found: Result<TopicLayout, Code>,
        now: Instant,
    ) -> Result<(), Code> {
        let known = &mut *self.known();
        known.by_name = known.by_name.saturating_sub(1);
        let mut result = Ok(());
        if let Some(topic) = known.topics.get_mut(name) {
            topic.asked = Asked::No;
            let found = topic.found(name, found, now);
            if matches!(topic.state, EntryState::Unknown) {
                result = found;
            }
            if found.is_err() {
                known.set_doubt(false);
            }
        }
        self.changed.send_replace(());
        result
    }

    /// Takes the answer to the question for all topics, of which `names` were of interest.
    pub(super) fn all_answered(
        &self,
        names: &HashSet<Box<str>>,
        shown: Result<HashMap<Box<str>, Result<TopicLayout, Code>>, Code>,
        now: Instant,
    ) {
        let known = &mut *self.known();
        known.all = false;
        match shown {
            Ok(shown) => known.take_shown(names, &shown, now),
            // Questions by name go on; if the cluster is away, they say so.
            Err(code) => {
                tracing::debug!(?code, "the cluster was asked for all its topics");
                known.set_doubt(false);
                known.all_not_before = Some(now + ALL_AGAIN_AFTER);
            }
        }
        self.changed.send_replace(());
    }
}

impl Default for DirectoryEntry {
    fn default() -> Self {
        Self {
            state: EntryState::Unknown,
            partitions_before: None,
            asked: Asked::No,
            is_behind: false,
        }
    }
}

impl EntryState {
    fn known(layout: TopicLayout, now: Instant) -> Self {
        let believed = match layout.leaderless.is_empty() {
            true => KNOWN_FOR,
            false => LEADERLESS_FOR,
        };
        Self::Known {
            layout,
            until: now + believed,
            in_doubt: false,
        }
    }
}

impl KnownTopics {
    fn set_doubt(&mut self, doubt: bool) {
        for topic in self.topics.values_mut() {
            if let EntryState::Known { in_doubt, .. } = &mut topic.state {
                *in_doubt = doubt;
            }
        }
    }

    /// The topic waits to be asked for, unless it does already.
    fn ask(&mut self, name: &str) {
        if let Some(topic) = self.topics.get_mut(name)
            && topic.asked == Asked::No
        {
            topic.asked = Asked::Waiting;
            self.waiting.push_back(name.into());
        }
    }

    /// The topic to ask for by name next.
    fn next_by_name(&mut self) -> Option<Box<str>> {
        if let Some(name) = self.waiting.pop_front() {
            self.topics.get_mut(&name)?.asked = Asked::ByName;
            return Some(name);
        }
        loop {
            let name = self.behind.pop_front()?;
            let Some(topic) = self.topics.get_mut(&name) else {
                continue;
            };
            topic.is_behind = false;
            // Else it was asked for in the meantime.
            if topic.asked == Asked::No {
                topic.asked = Asked::ByName;
                return Some(name);
            }
        }
    }

    fn take_shown(
        &mut self,
        names: &HashSet<Box<str>>,
        shown: &HashMap<Box<str>, Result<TopicLayout, Code>>,
        now: Instant,
    ) {
        for name in names {
            let Some(topic) = self.topics.get_mut(name) else {
                continue;
            };
            // By name tells more, and may have been faster.
            if topic.asked != Asked::Waiting {
                continue;
            }
            topic.asked = Asked::No;
            if let Some(Ok(layout)) = shown.get(name) {
                topic.state = EntryState::known(layout.clone(), now);
                continue;
            }
            match &mut topic.state {
                // By name it will be known whether it is gone.
                EntryState::Known {
                    until, in_doubt, ..
                } => (*until, *in_doubt) = (now + REFUSED_FOR, false),
                _ => topic.refuse(RejectionKind::Unroutable, not_shown(name), now),
            }
            if !mem::replace(&mut topic.is_behind, true) {
                self.behind.push_back(name.clone());
            }
        }
        let topics = &self.topics;
        self.waiting.retain(|name| {
            let topic = topics.get(name);
            topic.is_some_and(|topic| topic.asked == Asked::Waiting)
        });
    }

    /// Forgets what was refused, once there is much to remember.
    fn make_room(&mut self) {
        if self.topics.len() < TOPICS_MAX {
            return;
        }
        self.topics.retain(|_, topic| {
            topic.asked != Asked::No || matches!(topic.state, EntryState::Known { .. })
        });
        let topics = &self.topics;
        self.behind
            .retain(|name| topics.get(name).is_some_and(|topic| topic.is_behind));
    }
}

impl DirectoryEntry {
    /// Takes an answer of the cluster.
    ///
    /// # Errors
    /// The reason why there is none, when that is not the topic's fault.
    fn found(
        &mut self,
        name: &str,
        found: Result<TopicLayout, Code>,
        now: Instant,
    ) -> Result<(), Code> {
        let (kind, reason) = match found {
            Ok(layout) => {
                self.state = EntryState::known(layout, now);
                return Ok(());
            }
            Err(Code::UnknownTopicOrPartition | Code::UnknownTopic) => {
                (RejectionKind::Unroutable, missing(name))
            }
            Err(Code::TopicAuthorizationFailed) => {
                (RejectionKind::Denied, topic_names::denial(name))
            }
            Err(Code::InvalidTopic) => (
                RejectionKind::Invalid,
                format!("the broker takes no topic of the name `{name}`"),
            ),
            Err(code) => {
                // The former answer may well be right still: sending will show.
                if let EntryState::Known { until, .. } | EntryState::Refused { until, .. } =
                    &mut self.state
                {
                    *until = now + REFUSED_FOR;
                }
                return Err(code);
            }
        };
        self.refuse(kind, reason, now);
        Ok(())
    }

    fn refuse(&mut self, kind: RejectionKind, reason: String, now: Instant) {
        self.state = EntryState::Refused {
            kind,
            reason,
            until: now + REFUSED_FOR,
        };
    }
}

fn not_shown(name: &str) -> String {
    format!(
        "the cluster shows us no topic `{name}`; create it, allow the user DESCRIBE on it, or \
         route the event to another topic"
    )
}

fn missing(name: &str) -> String {
    format!("topic `{name}` does not exist; create it, or route the event to another topic")
}

#[cfg(test)]
mod tests;
