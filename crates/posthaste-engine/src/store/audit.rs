//! The words of the audit: what a line says, once for all stores.
//!
//! A store writes a line where the effect is made, in the same transaction. Rust fills a detail
//! with [`AuditWords::detail`]; SQL has it filled in by [`with_audit_words`] and gives it to the
//! database's own `format`.

use std::fmt::Display;

use super::{DeadAction, DestinationState, ParkedState, Start};

/// The words of a line of the audit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AuditWords {
    /// The act.
    pub action: &'static str,
    /// The rest of the line: a `%s` stands for each value.
    pub detail: &'static str,
}

impl AuditWords {
    /// The detail, with these values in their order.
    #[must_use]
    pub fn detail(&self, values: &[&dyn Display]) -> String {
        let mut parts = self.detail.split("%s");
        let mut detail = parts.next().unwrap_or_default().to_owned();
        let mut values = values.iter();
        for part in parts {
            // Fewer values than places would be a fault of the caller; the test of all words tells.
            if let Some(value) = values.next() {
                detail.push_str(&value.to_string());
            }
            detail.push_str(part);
        }
        detail
    }
}

const fn words(action: &'static str, detail: &'static str) -> AuditWords {
    AuditWords { action, detail }
}

/// The detail of an event's first failure: id, `seq`, class of the failure.
const FAILED: &str = "event %s (seq %s): %s";
/// The same of a later one: id, `seq`, attempts, class of the failure.
const FAILED_AGAIN: &str = "event %s (seq %s) after %s attempts: %s";
/// Id, `seq`.
const EVENT: &str = "event %s (seq %s)";
/// Of one, of the other.
const CHANGED: &str = "%s -> %s";

/// An event was parked.
pub const PARK: AuditWords = words("park", FAILED);
/// The attempts of an event are used up at its first failure.
pub const DEAD: AuditWords = words("dead", FAILED);
/// The key of an event goes on without it, from its first failure on.
pub const SKIP: AuditWords = words("skip", FAILED);
/// The attempts of a parked event are used up.
pub const DEAD_AGAIN: AuditWords = words("dead", FAILED_AGAIN);
/// The key of a parked event goes on without it.
pub const SKIP_AGAIN: AuditWords = words("skip", FAILED_AGAIN);
/// A parked event was accepted.
pub const DELIVERED: AuditWords = words("delivered", FAILED_AGAIN);
/// Keys came back to the main group: how many.
pub const JOIN: AuditWords = words("join", "released keys that came back to the main group: %s");
/// An operator has parked events attempted again.
pub const DEAD_RETRY: AuditWords = words("dead retry", EVENT);
/// An operator has keys go on without parked events.
pub const DEAD_SKIP: AuditWords = words("dead skip", EVENT);
/// The same, and their payloads are erased.
pub const DEAD_DISCARD: AuditWords = words("dead discard", EVENT);
/// A dead event was forgotten: id, `seq`.
pub const FORGET: AuditWords = words(
    "forget",
    "event %s (seq %s): dead, and nobody decided on it for 30 days",
);
/// Followers of blocked keys were parked: how many, up to which `seq`.
pub const EVACUATE: AuditWords =
    words("evacuate", "%s events of blocked keys copied, up to seq %s");

/// A destination was created: whether it starts at the `oldest` event or `now`.
pub const DESTINATION_CREATED: AuditWords = words("destination created", "start %s");
/// Copies that a removed destination left are discarded, since the next one of its name reads the
/// events itself: how many.
pub const READ_AGAIN: AuditWords = words(
    "read again",
    "%s skipped events discarded: they are read again from the outbox",
);
/// An operator resumed it.
pub const DESTINATION_ACTIVE: AuditWords = words("destination active", "");
/// An operator paused it.
pub const DESTINATION_PAUSED: AuditWords = words("destination paused", "");
/// An operator resumed a place of it: its name.
pub const PLACE_ACTIVE: AuditWords = words("place active", "%s");
/// An operator paused a place of it: its name.
pub const PLACE_PAUSED: AuditWords = words("place paused", "%s");
/// An operator removes it, which takes more than one transaction: parked events that waited.
pub const DESTINATION_EMPTIED: AuditWords =
    words("destination emptied", "%s parked events closed as skipped");
/// An operator removed it: parked events that waited, in all.
pub const DESTINATION_REMOVED: AuditWords =
    words("destination removed", "%s parked events closed as skipped");
/// It is delivered to another address: the former one, the new one.
pub const ADDRESS_CHANGED: AuditWords = words("address changed", CHANGED);
/// Another cluster answers at its address: the former one, the new one.
pub const CLUSTER_CHANGED: AuditWords = words("cluster changed", CHANGED);
/// It has another number of partitions: the former one, the new one.
pub const RECUT: AuditWords = words("recut", "%s -> %s partitions");

/// A relay that is dead, or whose lease is over, lost its right for good: name, registration, why.
pub const FENCE: AuditWords = words("fence", "relay `%s` (%s): %s");
/// Partitions of a fenced relay are another one's now: how many, the former owner's name.
pub const TAKE_OVER: AuditWords = words("take-over", "%s partitions of relay `%s`");
/// Partitions that a live relay gave up are another one's now: how many, the former owner's name.
pub const HAND_OVER: AuditWords = words("hand-over", "%s partitions of relay `%s`");
/// A relay gave up partitions that another one lacks, or stopped while it was alone: how many.
pub const RELEASE: AuditWords = words("release", "%s partitions");
/// A relay gave up a destination, since it stopped beside others or they reach its broker and it
/// does not: how many partitions.
pub const WITHDRAW: AuditWords = words("withdraw", "%s partitions");

/// The database's counters began a new life: its token.
pub const INCARNATION: AuditWords = words("incarnation", "a new life of the database: %s");
/// The outbox's sequence was set forward: from, to.
pub const SEQUENCE: AuditWords = words(
    "sequence",
    "set forward from %s to %s: every place looks at the whole outbox once",
);
/// A leaf was emptied as a whole: its name, its least and greatest `seq`, bytes.
pub const TRUNCATE: AuditWords = words("truncate", "%s: seq %s to %s, %s bytes");
/// A copy of a database lives by itself: its era, behind which `seq`, as which store.
pub const NEW_ERA: AuditWords = words(
    "new era",
    "era %s of a copy begins behind seq %s, as store %s",
);
/// A destination in a new era: `at most ` or nothing, events pending, events sent again at the
/// most, keys blocked.
pub const NEW_ERA_DESTINATION: AuditWords = words(
    "new era",
    "%s%s events pending, at most %s sent again, %s keys blocked",
);

/// Why a registration is fenced whose lease ran out.
pub const LEASE_OVER: &str = "its lease is over";
/// Why a registration is fenced that came along with a copy of the database.
pub const OF_THE_ORIGINAL: &str = "it is the original's";
/// Instead of the id of an event that was stored without one.
pub const WITHOUT_ID: &str = "without an id";

/// The actions by which partitions, or the right to them, pass from one relay to another.
///
/// A line of one of these has the name of the relay that did it, and names the other one in its
/// detail.
pub const HAND_OVERS: [&str; 5] = [
    FENCE.action,
    TAKE_OVER.action,
    HAND_OVER.action,
    RELEASE.action,
    WITHDRAW.action,
];

/// The words for an event that was parked in this state.
#[must_use]
pub fn parked_as(state: ParkedState) -> AuditWords {
    match state {
        ParkedState::Dead => DEAD,
        ParkedState::Skipped => SKIP,
        ParkedState::Parked | ParkedState::Discarded | ParkedState::Delivered => PARK,
    }
}

/// The words for a parked event that an attempt has brought to this state; none: it waits for
/// another attempt.
#[must_use]
pub fn settled_as(state: ParkedState) -> Option<AuditWords> {
    match state {
        ParkedState::Dead => Some(DEAD_AGAIN),
        ParkedState::Skipped => Some(SKIP_AGAIN),
        ParkedState::Delivered => Some(DELIVERED),
        ParkedState::Parked | ParkedState::Discarded => None,
    }
}

/// The words for partitions that one relay has taken over from another; `died`: it was fenced.
#[must_use]
pub fn taken_from(died: bool) -> AuditWords {
    match died {
        true => TAKE_OVER,
        false => HAND_OVER,
    }
}

/// The words for an operator's action on a parked event.
#[must_use]
pub fn acted(action: DeadAction) -> AuditWords {
    match action {
        DeadAction::Retry => DEAD_RETRY,
        DeadAction::Skip => DEAD_SKIP,
        DeadAction::Discard => DEAD_DISCARD,
    }
}

/// The words for a destination that an operator has brought to this state.
#[must_use]
pub fn destination_set(state: DestinationState) -> AuditWords {
    match state {
        DestinationState::Active => DESTINATION_ACTIVE,
        DestinationState::Paused => DESTINATION_PAUSED,
        DestinationState::Removed => DESTINATION_REMOVED,
    }
}

/// The words for a place that an operator has paused, or resumed.
#[must_use]
pub fn place_set(paused: bool) -> AuditWords {
    match paused {
        true => PLACE_PAUSED,
        false => PLACE_ACTIVE,
    }
}

/// How a new destination's first place is called.
#[must_use]
pub fn start(start: Start) -> &'static str {
    match start {
        Start::Oldest => "oldest",
        Start::Now => "now",
    }
}

/// The words by the names that stand for them in SQL.
const BY_NAME: &[(&str, AuditWords)] = &[
    ("park", PARK),
    ("dead", DEAD),
    ("skip", SKIP),
    ("dead_again", DEAD_AGAIN),
    ("skip_again", SKIP_AGAIN),
    ("delivered", DELIVERED),
    ("join", JOIN),
    ("dead_retry", DEAD_RETRY),
    ("dead_skip", DEAD_SKIP),
    ("dead_discard", DEAD_DISCARD),
    ("forget", FORGET),
    ("evacuate", EVACUATE),
    ("destination_created", DESTINATION_CREATED),
    ("read_again", READ_AGAIN),
    ("destination_active", DESTINATION_ACTIVE),
    ("destination_paused", DESTINATION_PAUSED),
    ("place_active", PLACE_ACTIVE),
    ("place_paused", PLACE_PAUSED),
    ("destination_emptied", DESTINATION_EMPTIED),
    ("destination_removed", DESTINATION_REMOVED),
    ("address_changed", ADDRESS_CHANGED),
    ("cluster_changed", CLUSTER_CHANGED),
    ("recut", RECUT),
    ("fence", FENCE),
    ("release", RELEASE),
    ("withdraw", WITHDRAW),
    ("incarnation", INCARNATION),
    ("sequence", SEQUENCE),
    ("truncate", TRUNCATE),
    ("new_era", NEW_ERA),
    ("take_over", TAKE_OVER),
];

/// A statement of SQL with the words of the audit filled in, as literals: `{action:park}` and
/// `{detail:park}` for [`PARK`], and so on; `{lease_over}`, `{of_the_original}`, `{without_id}`.
/// Other braces stay.
#[must_use]
pub fn with_audit_words(sql: &str) -> String {
    let (mut filled, mut rest) = (String::with_capacity(sql.len()), sql);
    while let Some(open) = rest.find('{') {
        let (before, at) = rest.split_at(open);
        filled.push_str(before);
        let named = at.find('}').and_then(|close| {
            let text = text_of(&at[1..close])?;
            Some((text, close))
        });
        rest = match named {
            Some((text, close)) => {
                filled.push_str(&format!("'{}'", text.replace('\'', "''")));
                &at[close + 1..]
            }
            None => {
                filled.push('{');
                &at[1..]
            }
        };
    }
    filled + rest
}

fn text_of(placeholder: &str) -> Option<&'static str> {
    let words = |name: &str| BY_NAME.iter().find(|(n, _)| *n == name).map(|(_, w)| *w);
    match placeholder {
        "lease_over" => Some(LEASE_OVER),
        "of_the_original" => Some(OF_THE_ORIGINAL),
        "without_id" => Some(WITHOUT_ID),
        _ => match placeholder.split_once(':')? {
            ("action", name) => words(name).map(|words| words.action),
            ("detail", name) => words(name).map(|words| words.detail),
            _ => None,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_detail_takes_its_values_in_their_order() {
        assert_eq!(
            FENCE.detail(&[&"a", &7, &LEASE_OVER]),
            "relay `a` (7): its lease is over"
        );
        assert_eq!(DESTINATION_PAUSED.detail(&[]), "");
        assert_eq!(RELEASE.detail(&[&3]), "3 partitions");
    }

    #[test]
    fn a_statement_gets_the_words_as_literals() {
        let sql =
            "select {action:fence}, format({detail:release}, $1), {of_the_original}, '{a,{b}'";
        assert_eq!(
            with_audit_words(sql),
            "select 'fence', format('%s partitions', $1), 'it is the original''s', '{a,{b}'"
        );
    }
}
