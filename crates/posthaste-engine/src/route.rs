//! Routes: which destination takes which event.
//!
//! The first route that matches an event decides. Without any route every destination takes
//! everything. Each destination asks for itself, since each reads the outbox at its own pace; the
//! answer for one event is the same whenever it is asked, as long as the routes are.

use std::{ops::Range, sync::Arc};

use globset::{GlobBuilder, GlobMatcher, GlobSetBuilder};

use crate::{Field, RejectionKind, StoredEvent};

/// The fate of a key whose event has used up its attempts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnDead {
    /// The key waits until an operator acts: no later event of it overtakes.
    #[default]
    Block,
    /// The key goes on without the event, which is kept as skipped.
    Skip,
}

/// How hard a destination tries with one event, and what comes after.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeliveryPolicy {
    /// Attempts until an event is dead, whatever it is refused for; at least 1. Outages of the
    /// destination count none. Default: as [`DeliveryPolicy::attempts_when`] says.
    pub attempts: Option<u32>,
    /// The fate of the key then.
    pub on_dead: OnDead,
}

impl Default for DeliveryPolicy {
    fn default() -> Self {
        Self {
            attempts: None,
            on_dead: OnDead::Block,
        }
    }
}

/// With the default backoff they span 15 s: long enough for a passing fault of one event, short
/// enough that somebody learns of a poison one.
const ATTEMPTS: u32 = 5;
/// With the default backoff they span half a day: who is to make a topic or to give a right may be
/// asleep.
const ATTEMPTS_PATIENT: u32 = 150;

impl DeliveryPolicy {
    /// How many attempts an event has that is refused for this. Where the policy leaves it open: 5
    /// for a fault of the event, and for one that fails alone, since each of its attempts ends
    /// lanes and so delays all others; and 150 for everything else.
    #[must_use]
    pub fn attempts_when(&self, refused_for: RejectionKind) -> u32 {
        self.attempts.unwrap_or(match refused_for {
            RejectionKind::FailsAlone => ATTEMPTS,
            kind if kind.is_fault_of_the_event() => ATTEMPTS,
            _ => ATTEMPTS_PATIENT,
        })
    }
}

/// Which events a route means. All given conditions hold together; none means every event.
#[derive(Debug, Clone, Default)]
pub struct RouteMatch {
    /// A glob over the topic: `*` and `?` cross dots, `[ab]` and `{a,b}` choose, `\` escapes. `?`
    /// and `[ab]` take one byte, of a character that is no ASCII a part. At most 4 096 bytes.
    pub topic: Option<String>,
    /// A glob over the type; an event without a type matches none.
    pub event_type: Option<String>,
    /// Headers that are there: with this value, or with any value or none.
    pub headers: Vec<(String, Option<String>)>,
}

/// The action of a route with its events.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RouteAction {
    /// These destinations, by name, take them.
    To(Vec<String>),
    /// No destination takes it, on purpose.
    Drop,
}

/// A route as it is written.
#[derive(Debug, Clone)]
pub struct Route {
    /// Which events.
    pub matches: RouteMatch,
    /// Where they go.
    pub action: RouteAction,
    /// Instead of the destination's number of attempts.
    pub attempts: Option<u32>,
    /// Instead of the destination's policy.
    pub on_dead: Option<OnDead>,
}

/// Why routes cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("route {number}: {reason}")]
pub struct RouteError {
    /// Which route, counted from 1.
    pub number: usize,
    /// The mistake, with the fix.
    pub reason: String,
}

/// One destination's decision on an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RouteDecision {
    /// It takes the event.
    Take(DeliveryPolicy),
    /// Another destination takes it.
    NotOurs,
    /// A route drops it.
    Dropped,
    /// It was inserted outside the destination's time.
    OutOfTime,
    /// No route takes it: to be counted and warned about. The answer is the same at every
    /// destination, so one of them counts.
    Unrouted,
}

/// All routes, compiled. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Routes {
    compiled: Arc<[Compiled]>,
}

#[derive(Debug)]
struct Compiled {
    topic: Option<GlobMatcher>,
    event_type: Option<GlobMatcher>,
    headers: Vec<(String, Option<String>)>,
    action: RouteAction,
    attempts: Option<u32>,
    on_dead: Option<OnDead>,
}

/// The routes as one destination sees them.
#[derive(Debug, Clone)]
pub struct DestinationRoutes {
    routes: Routes,
    /// For each route whether it leads here: names are compared once, not for each event.
    ours: Box<[bool]>,
    policy: DeliveryPolicy,
    inserted: Range<i64>,
}

impl Routes {
    /// Compiles routes, in their order.
    ///
    /// # Errors
    /// [`RouteError`] for a glob that does not parse, a route that leads nowhere, no attempts, or a
    /// route that can never be reached.
    pub fn new(routes: Vec<Route>) -> Result<Self, RouteError> {
        let mut compiled: Vec<Compiled> = Vec::with_capacity(routes.len());
        for (number, route) in (1..).zip(routes) {
            if compiled.last().is_some_and(Compiled::matches_all) {
                let reason = format!(
                    "it is never reached, because route {} matches everything; move it up",
                    number - 1
                );
                return Err(RouteError { number, reason });
            }
            compiled.push(Compiled::new(route).map_err(|reason| RouteError { number, reason })?);
        }
        Ok(Self {
            compiled: compiled.into(),
        })
    }

    /// Whether every event is decided on: there are no routes, or the last one matches everything.
    /// Else some event may be [`RouteDecision::Unrouted`].
    #[must_use]
    pub fn catch_all(&self) -> bool {
        self.compiled.last().is_none_or(Compiled::matches_all)
    }

    /// The routes as this destination sees them; `policy` is what it does where a route is silent.
    #[must_use]
    pub fn for_destination(&self, name: &str, policy: DeliveryPolicy) -> DestinationRoutes {
        let ours = self.compiled.iter().map(|route| match &route.action {
            RouteAction::To(names) => names.iter().any(|other| other == name),
            RouteAction::Drop => false,
        });
        DestinationRoutes {
            ours: ours.collect(),
            routes: self.clone(),
            policy,
            inserted: i64::MIN..i64::MAX,
        }
    }
}

impl DestinationRoutes {
    /// The destination's own policy, for routes that have none.
    #[must_use]
    pub fn policy(&self) -> DeliveryPolicy {
        self.policy
    }

    /// Takes only what was inserted in this time ([`StoredEvent::inserted_at`]).
    #[must_use]
    pub fn inserted(mut self, time: Range<i64>) -> Self {
        self.inserted = time;
        self
    }

    /// This destination's decision on the event.
    #[must_use]
    pub fn decide(&self, event: &StoredEvent) -> RouteDecision {
        match self.route(event) {
            RouteDecision::Take(_) if !self.inserted.contains(&event.inserted_at()) => {
                RouteDecision::OutOfTime
            }
            decision => decision,
        }
    }

    fn route(&self, event: &StoredEvent) -> RouteDecision {
        if self.ours.is_empty() {
            return RouteDecision::Take(self.policy);
        }
        let routes = self.routes.compiled.iter().zip(&self.ours);
        for (route, ours) in routes {
            if route.matches(event) {
                return match (&route.action, ours) {
                    (RouteAction::Drop, _) => RouteDecision::Dropped,
                    (RouteAction::To(_), false) => RouteDecision::NotOurs,
                    (RouteAction::To(_), true) => RouteDecision::Take(DeliveryPolicy {
                        attempts: route.attempts.or(self.policy.attempts),
                        on_dead: route.on_dead.unwrap_or(self.policy.on_dead),
                    }),
                };
            }
        }
        RouteDecision::Unrouted
    }
}

impl Compiled {
    fn new(route: Route) -> Result<Self, String> {
        if matches!(&route.action, RouteAction::To(names) if names.is_empty()) {
            return Err("it leads nowhere; name a destination, or drop on purpose".to_owned());
        }
        if route.attempts == Some(0) {
            return Err("attempts must be at least 1".to_owned());
        }
        Ok(Self {
            topic: glob("topic", route.matches.topic.as_deref())?,
            event_type: glob("type", route.matches.event_type.as_deref())?,
            headers: route.matches.headers,
            action: route.action,
            attempts: route.attempts,
            on_dead: route.on_dead,
        })
    }

    fn matches_all(&self) -> bool {
        let any_topic = self.topic.as_ref().is_none_or(|t| t.glob().glob() == "*");
        any_topic && self.event_type.is_none() && self.headers.is_empty()
    }

    fn matches(&self, event: &StoredEvent) -> bool {
        let topic = self
            .topic
            .as_ref()
            .is_none_or(|glob| glob.is_match(event.topic()));
        topic
            && self.event_type.as_ref().is_none_or(|glob| {
                event
                    .text(Field::Type)
                    .is_some_and(|value| glob.is_match(value))
            })
            && self.headers.iter().all(|(name, wanted)| {
                event.headers().any(|(own, value)| {
                    own == name && (wanted.is_none() || value == wanted.as_deref())
                })
            })
    }
}

/// Many times what a topic can have.
const GLOB_BYTES_MAX: usize = 4_096;

/// The error names the condition, and does not repeat the pattern: by mistake it may be an address
/// with a password.
fn glob(condition: &str, pattern: Option<&str>) -> Result<Option<GlobMatcher>, String> {
    let Some(pattern) = pattern else {
        return Ok(None);
    };
    if pattern.len() > GLOB_BYTES_MAX {
        let size = pattern.len();
        return Err(format!(
            "`{condition}` is a glob of {size} bytes; write at most {GLOB_BYTES_MAX}"
        ));
    }
    if chooses_beyond_ascii(pattern) {
        return Err(format!(
            "`{condition}` is no glob: brackets choose among ASCII characters; write {{ä,ö}} for \
             others"
        ));
    }
    // Topics are divided by dots, not slashes: `*` crosses both.
    let glob = GlobBuilder::new(pattern)
        .literal_separator(false)
        .backslash_escape(true)
        .empty_alternates(true)
        .build();
    let refused = |error: globset::Error| format!("`{condition}` is no glob: {}", error.kind());
    let glob = glob.map_err(refused)?;
    // The matcher of a single glob is made without a way to refuse it, and panics where this does.
    let mut set = GlobSetBuilder::new();
    set.add(glob.clone()).build().map_err(refused)?;
    Ok(Some(glob.compile_matcher()))
}

/// Whether a character that is no ASCII stands in brackets: it would be taken for its bytes.
fn chooses_beyond_ascii(pattern: &str) -> bool {
    let mut characters = pattern.chars().peekable();
    while let Some(character) = characters.next() {
        match character {
            '\\' => drop(characters.next()),
            '[' => {
                characters.next_if(|c| matches!(c, '!' | '^'));
                // A `]` that comes first is one of the choice.
                let first = characters.next();
                let rest = characters.by_ref().take_while(|&c| c != ']');
                let mut choice = first.into_iter().chain(rest);
                if choice.any(|c| !c.is_ascii()) {
                    return true;
                }
            }
            _ => {}
        }
    }
    false
}

#[cfg(test)]
mod tests;
