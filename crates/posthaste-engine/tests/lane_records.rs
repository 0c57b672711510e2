//! The account of a lane's records: one verdict for each, whatever the order of the answers.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::collections::{BTreeMap, BTreeSet, HashMap};

use posthaste_engine::{
    Cause, Decision, LaneRecords, Outcome, Record, RejectionKind, Unavailability, Verdict,
};
use posthaste_testkit::sink_suite::{SuiteEvent, records};
use proptest::prelude::*;

/// Time is a number; a record in flight is known by its ticket.
type Records = LaneRecords<u64, u64>;

fn batch(keys: &[Option<&str>], first_ticket: u64) -> Vec<Record> {
    let events: Vec<_> = keys.iter().map(|key| SuiteEvent::new(*key, "v")).collect();
    records(&events, first_ticket)
}

fn rejected() -> Outcome {
    Outcome::rejected(RejectionKind::Other, "no")
}

fn fault() -> Unavailability {
    Unavailability {
        cause: Cause::Connection,
        reason: "gone".to_owned(),
        wait: None,
    }
}

/// Sends all that waits. Answers the slots, by ticket.
fn send_all(records: &mut Records) -> BTreeMap<u64, usize> {
    let mut slots = BTreeMap::new();
    records.decide(|item, next| {
        slots.insert(item.record.ticket(), next.slot);
        Decision::Sent(item.record.ticket())
    });
    slots
}

/// Ticket, and the cause or the letter of its outcome.
fn told(verdicts: &[Verdict]) -> Vec<(u64, &'static str)> {
    let told = verdicts.iter().map(|verdict| {
        let outcome = match &verdict.outcome {
            Outcome::Accepted(_) => "accepted",
            Outcome::Rejected(_) => "rejected",
            Outcome::Later(_) => "later",
            Outcome::Unavailable(why) => why.cause.as_str(),
        };
        (verdict.ticket, outcome)
    });
    told.collect()
}

#[test]
fn a_larger_value_than_the_limit_is_rejected_and_never_sent() {
    let values = [
        (Some("k"), "12"),
        (Some("k"), "123"),
        (Some("k"), "1"),
        (None, "1"),
    ];
    let events = values.map(|(key, value)| SuiteEvent::new(key, value));
    let mut lane = Records::default();
    lane.limit_values(Some(2));
    lane.submit(records(&events, 0), 0);
    assert_eq!(send_all(&mut lane).into_keys().collect::<Vec<_>>(), [0, 3]);
    let verdicts = lane.hand_out();
    assert_eq!(told(&verdicts), [(1, "rejected"), (2, "behind_failure")]);
    let Outcome::Rejected(why) = &verdicts[0].outcome else {
        panic!("{verdicts:?}");
    };
    assert_eq!(why.kind, RejectionKind::TooLarge);
    assert!(why.reason.contains("max_event_bytes=2"), "{}", why.reason);
}

#[test]
fn a_slot_is_answered_once() {
    let mut records = Records::default();
    records.submit(batch(&[None, None], 7), 0);
    let slots = send_all(&mut records);
    assert_eq!(records.accept(slots[&7]), Some(7));
    assert_eq!(records.accept(slots[&7]), None);
    assert_eq!(records.answer(99, rejected()), None);
    assert_eq!(told(&records.hand_out()), [(7, "accepted")]);
    assert!(!records.is_settled());
    assert_eq!(records.answer(slots[&8], rejected()), Some(8));
    assert!(records.is_settled());
    assert_eq!(told(&records.hand_out()), [(8, "rejected")]);
    assert!(records.hand_out().is_empty());
}

#[test]
fn slots_are_used_again_and_all_comes_in_the_order_of_submission() {
    let mut records = Records::default();
    records.submit(batch(&[None; 4], 0), 0);
    let slots = send_all(&mut records);
    assert_eq!(records.accept(slots[&1]), Some(1));
    records.submit(batch(&[None], 4), 0);
    assert_eq!(send_all(&mut records)[&4], slots[&1]);
    assert_eq!(records.get(slots[&1]), Some(&4));
    assert_eq!(
        records.answer_all(&Outcome::accepted()),
        [0, 2, 3, 4],
        "the sink's notes"
    );
    let tickets: Vec<u64> = records.hand_out().iter().map(|v| v.ticket).collect();
    assert_eq!(tickets, [1, 0, 2, 3, 4]);
}

#[test]
fn a_record_behind_a_failure_is_answered_unless_its_sender_knew() {
    let mut records = Records::default();
    records.submit(batch(&[Some("k"), Some("other")], 0), 0);
    let slots = send_all(&mut records);
    records.submit(batch(&[Some("k"), Some("other"), None], 2), 0);
    records.answer(slots[&0], rejected());
    assert_eq!(send_all(&mut records).len(), 2);
    assert_eq!(
        told(&records.hand_out()),
        [(0, "rejected"), (2, "behind_failure")]
    );
    records.submit(batch(&[Some("k")], 5), 0);
    assert_eq!(send_all(&mut records).len(), 1);
}

#[test]
fn a_verdict_on_its_way_is_not_known_to_the_sender() {
    let mut records = Records::default();
    records.submit_from(batch(&[Some("k")], 0), 0, 0);
    let slots = send_all(&mut records);
    records.answer(slots[&0], rejected());
    let taken = records.take_verdicts();
    assert_eq!((taken.verdicts.len(), taken.failures), (1, 1));
    records.submit_from(batch(&[Some("k")], 1), 0, 0);
    assert!(send_all(&mut records).is_empty());
    let again = records.take_verdicts();
    records.submit_from(batch(&[Some("k")], 2), taken.failures, 0);
    assert!(send_all(&mut records).is_empty(), "it follows the follower");
    records.submit_from(batch(&[Some("k")], 3), again.failures + 1, 0);
    assert_eq!(send_all(&mut records).len(), 1);
}

#[test]
fn a_key_that_waits_is_not_overtaken() {
    let mut records = Records::default();
    let keys = [Some("a"), Some("b"), Some("a"), None, Some("b")];
    records.submit(batch(&keys, 0), 0);
    let mut sent = Vec::new();
    records.decide(|item, _| match item.record.ticket() {
        0 => Decision::Wait,
        3 => Decision::WaitAll,
        ticket => {
            sent.push(ticket);
            Decision::Sent(ticket)
        }
    });
    assert_eq!(sent, [1]);
    assert_eq!(
        send_all(&mut records).into_keys().collect::<Vec<_>>(),
        [0, 2, 3, 4]
    );
    assert!(!records.has_waiting());
}

#[test]
fn the_end_answers_everything_and_all_that_comes_later() {
    let mut records = Records::default();
    records.submit(batch(&[None, None], 0), 3);
    records.decide(|item, next| match next.in_flight {
        0 => Decision::Sent(item.record.ticket()),
        _ => Decision::WaitAll,
    });
    assert_eq!(records.oldest(), Some(3));
    assert_eq!(records.end(fault()), [0]);
    assert_eq!(records.oldest(), None);
    records.submit(batch(&[None], 2), 4);
    assert!(records.is_settled() && records.has_ended());
    assert_eq!(
        told(&records.hand_out()),
        [(0, "connection"), (1, "lane_ended"), (2, "lane_ended")]
    );
}

#[test]
fn a_lane_that_never_runs_empty_keeps_no_failures_that_are_known() {
    let mut records = Records::default();
    let mut held = Vec::new();
    for round in 0..1_000 {
        let key = format!("key-{round}");
        records.submit(batch(&[Some(&key)], round), round);
        // Always one record waits, and the one before it is rejected.
        records.decide(|item, _| match item.record.ticket() == round {
            true => Decision::Wait,
            false => Decision::Answered(rejected()),
        });
        records.hand_out();
        assert!(records.has_waiting());
        held.push(format!("{records:?}").len());
    }
    assert!(held[999] < 2 * held[9], "{} and {}", held[9], held[999]);
}

/// One thing that happens to a lane.
#[derive(Debug, Clone)]
enum Action {
    Submit(Vec<Option<u8>>),
    /// The decision about each record that waits, in turn.
    Decide(Vec<u8>),
    Answer(usize, bool),
    AnswerAll(bool),
    HandOut,
    End,
}

fn any_action() -> impl Strategy<Value = Action> {
    prop_oneof![
        4 => prop::collection::vec(prop::option::of(0..3_u8), 0..5).prop_map(Action::Submit),
        4 => prop::collection::vec(0..5_u8, 1..8).prop_map(Action::Decide),
        6 => (0..8_usize, any::<bool>()).prop_map(|(slot, ok)| Action::Answer(slot, ok)),
        1 => any::<bool>().prop_map(Action::AnswerAll),
        4 => Just(Action::HandOut),
        1 => Just(Action::End),
    ]
}

/// A lane, and what its sender knows of it.
#[derive(Default)]
struct Sender {
    records: Records,
    /// The key of each ticket.
    keys: Vec<Option<u8>>,
    verdicts: HashMap<u64, Outcome>,
    /// Tickets that were sent and not answered, by slot.
    in_flight: HashMap<usize, u64>,
    /// Tickets that were rejected, in the order in which the lane learned of it.
    rejected: Vec<u64>,
    /// Tickets that were sent, each with how many were rejected before.
    sent: Vec<(u64, usize)>,
}

impl Sender {
    fn act(&mut self, action: Action) {
        match action {
            Action::Submit(keys) => {
                let names: Vec<_> = keys.iter().map(|key| key.map(|k| k.to_string())).collect();
                let names: Vec<_> = names.iter().map(Option::as_deref).collect();
                let first = self.keys.len() as u64;
                self.records.submit(batch(&names, first), first);
                self.keys.extend(keys);
            }
            Action::Decide(choices) => {
                let mut choices = choices.into_iter().cycle();
                let (in_flight, sent) = (&mut self.in_flight, &mut self.sent);
                let failures = &mut self.rejected;
                self.records.decide(|item, next| match choices.next() {
                    Some(0) => Decision::Wait,
                    Some(1) => Decision::WaitAll,
                    Some(2) => {
                        failures.push(item.record.ticket());
                        Decision::Answered(rejected())
                    }
                    _ => {
                        let ticket = item.record.ticket();
                        assert_eq!(next.in_flight, in_flight.len());
                        assert_eq!(in_flight.insert(next.slot, ticket), None);
                        sent.push((ticket, failures.len()));
                        Decision::Sent(ticket)
                    }
                });
            }
            Action::Answer(slot, accepted) => {
                let outcome = if accepted {
                    Outcome::accepted()
                } else {
                    rejected()
                };
                let known = self.in_flight.remove(&slot);
                self.rejected.extend(known.filter(|_| !accepted));
                assert_eq!(self.records.answer(slot, outcome), known);
            }
            Action::AnswerAll(accepted) => {
                let outcome = if accepted {
                    Outcome::accepted()
                } else {
                    rejected()
                };
                self.records.answer_all(&outcome);
                let answered = self.in_flight.drain().map(|(_, ticket)| ticket);
                self.rejected.extend(answered.filter(|_| !accepted));
            }
            Action::HandOut => {
                let verdicts = self.records.hand_out();
                self.take(verdicts);
            }
            Action::End => {
                self.records.end(fault());
                self.in_flight.clear();
            }
        }
    }

    fn take(&mut self, verdicts: Vec<Verdict>) {
        for Verdict { ticket, outcome } in verdicts {
            assert!(
                ticket < self.keys.len() as u64,
                "{ticket} was never submitted"
            );
            let former = self.verdicts.insert(ticket, outcome);
            assert_eq!(former, None, "{ticket} has two verdicts");
        }
    }
}

proptest! {
    /// Every record gets exactly one verdict, whatever is answered when, twice or never, and the
    /// oldest batch that owes an answer is known.
    #[test]
    fn each_record_has_one_verdict(actions in prop::collection::vec(any_action(), 0..60)) {
        let mut sender = Sender::default();
        for action in actions {
            sender.act(action);
            let settled = sender.records.is_settled();
            prop_assert_eq!(settled, sender.records.oldest().is_none());
            prop_assert_eq!(sender.records.in_flight_count(), sender.in_flight.len());
            let noted: BTreeSet<u64> = sender.records.in_flight().copied().collect();
            let expected: BTreeSet<u64> = sender.in_flight.values().copied().collect();
            prop_assert_eq!(noted, expected);
        }
        sender.act(Action::End);
        sender.act(Action::HandOut);
        prop_assert_eq!(sender.verdicts.len(), sender.keys.len());
        prop_assert!(sender.records.is_settled());
    }

    /// Nothing of a key is sent out of order, nor behind a failure that its sender did not know.
    #[test]
    fn nothing_of_a_key_is_sent_behind_an_unknown_failure(
        actions in prop::collection::vec(any_action(), 0..60),
    ) {
        let mut sender = Sender::default();
        // By ticket, the verdicts that its sender had when it was submitted.
        let mut known_at: Vec<BTreeSet<u64>> = Vec::new();
        for action in actions {
            sender.act(action);
            let known: BTreeSet<u64> = sender.verdicts.keys().copied().collect();
            known_at.resize(sender.keys.len(), known);
        }
        let key_of = |ticket: u64| sender.keys[usize::try_from(ticket).unwrap()];
        for &(ticket, failures) in &sender.sent {
            let known = &known_at[usize::try_from(ticket).unwrap()];
            let behind = sender.rejected[..failures].iter().any(|&other| {
                let of_one_key = key_of(ticket).is_some() && key_of(other) == key_of(ticket);
                of_one_key && !known.contains(&other)
            });
            prop_assert!(!behind, "{} was sent behind a failure", ticket);
        }
        // By key, in the order of tickets: nothing that waits is overtaken.
        let mut last: HashMap<u8, u64> = HashMap::new();
        for &(ticket, _) in &sender.sent {
            if let Some(key) = key_of(ticket) {
                let former = last.insert(key, ticket);
                prop_assert!(former.is_none_or(|former| former < ticket), "{} overtook", ticket);
            }
        }
    }
}
