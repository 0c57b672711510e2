//! The shortest histories that punish a left-out rule. Each runs on the rules as they are and must
//! hold, and with the rule left out and must fail: the positive control.

use super::sim::{Naive, Rules, Trial};

fn punishes(naive: Naive, history: impl Fn(&mut Trial)) {
    let mut sound = Trial::new(Rules::default());
    history(&mut sound);
    sound
        .verdict()
        .unwrap_or_else(|broken| panic!("{naive:?}: the rules themselves: {broken}"));
    let mut control = Trial::new(Rules(Some(naive)));
    history(&mut control);
    assert!(control.verdict().is_err(), "{naive:?} was not punished");
}

/// The same for a database that breaks an assumption.
fn punishes_database(history: impl Fn(&mut Trial, bool)) {
    for broken in [false, true] {
        let mut trial = Trial::new(Rules::default());
        history(&mut trial, broken);
        assert_eq!(trial.verdict().is_err(), broken);
    }
}

#[test]
fn trace_1_a_floor_from_the_same_poll() {
    // xid 1 lies at xmax and is absent from xip: the normal case on a quiet server.
    punishes(Naive::UnprovenFloor, |t| {
        let w = t.db.begin();
        t.db.insert(w, 0);
        let poll = t.send();
        t.db.commit(w);
        t.take(poll);
    });
}

#[test]
fn trace_2_a_straggler_with_the_floor_of_the_new_low() {
    punishes(Naive::StragglerTakesNewFloor, |t| {
        let w = t.db.begin();
        t.db.insert(w, 0);
        t.poll();
        t.advance();
        let poll = t.send();
        t.db.commit(w);
        t.take(poll);
    });
}

#[test]
fn trace_4_paging_without_a_fixed_high() {
    punishes(Naive::PageWithItsOwnSnapshot, |t| {
        t.page_size = 1;
        let w = t.db.begin();
        t.db.insert(w, 0);
        t.db.insert(w, 0);
        t.db.commit(w);
        t.poll();
        let other = t.db.begin();
        t.db.insert(other, 1);
        t.db.commit(other);
        t.poll();
    });
}

#[test]
fn trace_5_a_proof_at_the_answer_instead_of_the_sending() {
    punishes(Naive::ProofAtTheAnswer, |t| {
        let w = t.db.begin();
        t.db.insert(w, 0);
        t.poll();
        let poll = t.send();
        t.db.commit(w);
        t.advance();
        t.take(poll);
    });
}

#[test]
fn trace_6_a_proof_by_the_time_the_difference_ends() {
    punishes(Naive::ProofAtTheEnd, |t| {
        t.page_size = 1;
        let (a, b, late) = (t.db.begin(), t.db.begin(), t.db.begin());
        t.db.insert(a, 0);
        t.db.insert(late, 1);
        t.db.insert(b, 2);
        t.db.commit(a);
        t.db.commit(b);
        t.poll();
        t.db.commit(late);
        t.advance();
        t.poll();
    });
}

#[test]
fn trace_7_the_sequence_read_by_the_advance_itself() {
    punishes(Naive::SequenceReadByTheAdvance, |t| {
        t.poll();
        let mut advance = t.advance_send().unwrap();
        let xid = t.advance_begin().unwrap();
        let w = t.db.begin();
        t.db.insert(w, 0);
        t.advance_commit(&mut advance, xid);
        t.sweep.advanced(&advance);
        let poll = t.send();
        t.db.commit(w);
        t.take(poll);
    });
}

#[test]
fn trace_7b_the_sequence_read_by_the_claim_itself() {
    punishes(Naive::ClaimProvesWhatItReads, |t| {
        let received = t.db.sequence();
        let xid = t.claim_begin();
        let w = t.db.begin();
        t.db.insert(w, 0);
        t.claim_end(xid, received);
        let poll = t.send();
        t.db.commit(w);
        t.take(poll);
    });
}

#[test]
fn trace_8_an_advance_that_got_no_transaction() {
    punishes(Naive::ProofWithoutTransaction, |t| {
        let w = t.db.begin();
        t.db.insert(w, 0);
        t.poll();
        t.advance();
        let poll = t.send();
        t.db.commit(w);
        t.take(poll);
    });
}

#[test]
fn trace_9a_seq_drawn_before_the_transaction_has_its_number() {
    punishes_database(|t, broken| {
        let early = broken.then(|| t.db.draw());
        let number = (!broken).then(|| t.db.begin());
        let seq = early.unwrap_or_else(|| t.db.draw());
        t.poll();
        t.advance();
        t.poll();
        let w = number.unwrap_or_else(|| t.db.begin());
        t.db.insert_with(w, seq, 0);
        t.db.commit(w);
    });
}

#[test]
fn trace_9b_a_fresh_sequence_taken_for_one_and_any_value_too_high() {
    punishes_database(|t, broken| {
        t.db.bias = i64::from(broken);
        t.poll();
        t.advance();
        t.poll();
        let w = t.db.begin();
        t.db.insert(w, 0);
        t.db.commit(w);
    });
}

#[test]
fn trace_9c_a_sequence_cache_of_two() {
    punishes_database(|t, broken| {
        let first = t.db.begin();
        t.db.insert(first, 0);
        let cached = broken.then(|| t.db.draw());
        t.db.commit(first);
        t.poll();
        t.advance();
        t.poll();
        let second = t.db.begin();
        let seq = cached.unwrap_or_else(|| t.db.draw());
        t.db.insert_with(second, seq, 0);
        t.db.commit(second);
    });
}

/// A stored straggler, finished while nobody looked.
fn straggler_over_a_restart(t: &mut Trial) {
    let w = t.db.begin();
    t.db.insert(w, 0);
    t.poll();
    t.advance();
    let poll = t.send();
    t.db.commit(w);
    t.take(poll);
    t.advance();
    t.restart(0);
}

#[test]
fn trace_10_stragglers_after_a_restart() {
    punishes(
        Naive::RestartGivesStragglersTheFloor,
        straggler_over_a_restart,
    );
    punishes(Naive::FloorMinWithoutStragglers, straggler_over_a_restart);
}

#[test]
fn trace_11_the_floor_of_high_stored_beside_low() {
    punishes(Naive::StoresFloorOfHigh, |t| {
        t.page_size = 1;
        let (a, b) = (t.db.begin(), t.db.begin());
        t.db.insert(a, 0);
        t.db.insert(b, 1);
        t.db.insert(a, 0);
        t.poll();
        t.advance();
        t.db.commit(a);
        t.poll();
        t.db.commit(b);
        t.advance();
        t.restart(0);
    });
}

#[test]
fn trace_12_the_least_floor_of_high_stored_beside_low() {
    punishes(Naive::StoresFloorMinOfHigh, |t| {
        t.page_size = 1;
        let (a, b) = (t.db.begin(), t.db.begin());
        t.db.insert(a, 0);
        t.db.insert(b, 1);
        t.poll();
        t.advance();
        t.db.commit(a);
        t.db.commit(b);
        t.poll();
        t.advance();
        t.db.truncate();
    });
}

#[test]
fn trace_13_a_finished_straggler_one_poll_late() {
    punishes(Naive::FinishedStragglerOnePollLate, |t| {
        let w = t.db.begin();
        t.db.insert(w, 0);
        t.poll();
        t.advance();
        t.poll();
        t.db.commit(w);
        t.poll();
    });
}

#[test]
fn trace_14_stragglers_read_apart_invert_their_key() {
    punishes(Naive::StragglersApart, |t| {
        let first = t.db.begin();
        t.db.insert(first, 0);
        t.poll();
        t.advance();
        t.poll();
        t.db.commit(first);
        let second = t.db.begin();
        t.db.insert(second, 0);
        t.db.commit(second);
        t.poll();
    });
}

#[test]
fn trace_15_the_end_of_an_earlier_poll() {
    punishes(Naive::EndOfAnEarlierPoll, |t| {
        t.page_size = 1;
        t.poll();
        let w = t.db.begin();
        t.db.insert(w, 0);
        t.db.insert(w, 0);
        t.db.commit(w);
        t.poll();
        t.poll();
    });
}

#[test]
fn trace_16_a_short_page_taken_for_the_end() {
    punishes(Naive::ShortPageIsTheEnd, |t| {
        t.page_size = 1;
        t.bits = 1;
        t.restart(0);
        let (a, open) = (t.db.begin(), t.db.begin());
        t.db.insert(a, 0);
        t.db.insert(a, 0);
        t.db.insert(open, 1);
        t.db.insert(a, 0);
        t.db.commit(a);
        for _ in 0..3 {
            t.poll();
        }
        t.db.commit(open);
    });
}

#[test]
fn trace_17_a_snapshot_in_memory_outlives_a_crash() {
    punishes(Naive::NoToken, |t| {
        let w = t.db.begin();
        t.db.insert(w, 0);
        t.db.abort(w);
        t.poll();
        t.db.crash();
        let again = t.db.begin();
        assert_eq!(again, w, "the number is issued a second time");
        t.db.insert(again, 0);
        t.db.commit(again);
        t.poll();
    });
}

#[test]
fn trace_18_a_token_read_after_the_cursor() {
    punishes(Naive::TokenReadLater, |t| {
        let w = t.db.begin();
        t.db.insert(w, 0);
        t.db.abort(w);
        t.poll();
        t.advance_unflushed();
        t.load();
        t.db.crash();
        t.adopt();
        let again = t.db.begin();
        assert_eq!(again, w, "the number is issued a second time");
        t.db.insert(again, 0);
        t.db.commit(again);
        t.poll();
    });
}
