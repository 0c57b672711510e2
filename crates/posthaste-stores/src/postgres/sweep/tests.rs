//! The sweep against a simulated database: every trace that the floors were modelled with, replayed
//! on the state machine (it holds) and on a variant with one rule left out (it loses or inverts).

mod sim;
mod traces;
mod walk;

use super::*;

#[test]
fn a_segment_ends_where_its_leaf_ends() {
    assert_eq!(segment_end(0, 2), 3);
    assert_eq!(segment_end(2, 2), 3);
    assert_eq!(segment_end(3, 2), 7);
    assert_eq!(segment_end(i64::MAX, 19), i64::MAX);
}

#[test]
fn an_advance_never_goes_back() {
    let mut trial = sim::Trial::new(sim::Rules::default());
    trial.page_size = 1;
    for _ in 0..3 {
        let writer = trial.db.begin();
        trial.db.insert(writer, 0);
        trial.db.commit(writer);
    }
    trial.poll();
    let early = trial.place.clone().unwrap();
    trial.poll();
    trial.advance();
    assert!(trial.sweep.advance(&early, None).is_none());
    let late = trial.place.clone().unwrap();
    assert!(trial.sweep.advance(&late, None).is_some());
}

#[test]
fn a_sequence_that_goes_back_or_lies_below_a_row_is_unsound() {
    let mut trial = sim::Trial::new(sim::Rules::default());
    let writer = trial.db.begin();
    trial.db.insert(writer, 0);
    trial.db.commit(writer);
    let request = trial.sweep.request();
    let answer = |sequence, last_row| Answer {
        snapshot: trial.db.snapshot(),
        sequence,
        last_row,
        more: false,
    };
    let below = trial.sweep.answer(request.clone(), answer(0, Some(1)));
    assert_eq!(
        below.unwrap_err(),
        Unsound::BelowRow {
            sequence: 0,
            row: 1
        }
    );
    trial.sweep.answer(request, answer(1, Some(1))).unwrap();
    let back = trial.sweep.answer(trial.sweep.request(), answer(0, None));
    assert_eq!(
        back.unwrap_err(),
        Unsound::WentBack {
            sequence: 0,
            before: 1
        }
    );
}
