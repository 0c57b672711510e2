//! Histories of samples by name. Random ones of whole readers are in `histories.rs`.

use super::*;

fn sample(tickets: &[u64], prepared: &[&str]) -> Sample {
    Sample {
        tickets: tickets.iter().map(|&ticket| (ticket, 1, 1)).collect(),
        prepared: prepared.iter().map(|xid| xid.as_bytes().to_vec()).collect(),
    }
}

fn after(samples: &[(u64, Sample)]) -> u64 {
    let mut proof = Proof::default();
    for (high, sample) in samples {
        proof.sampled(*high, sample);
    }
    proof.decided()
}

#[test]
fn with_nobody_writing_one_sample_decides() {
    assert_eq!(after(&[(7, sample(&[], &[]))]), 7);
}

#[test]
fn a_writer_is_waited_for_and_those_who_came_later_are_not() {
    let begun = (7, sample(&[1, 2], &[]));
    assert_eq!(after(std::slice::from_ref(&begun)), 0);
    assert_eq!(after(&[begun.clone(), (7, sample(&[2, 3], &[]))]), 0);
    assert_eq!(after(&[begun, (7, sample(&[3], &[]))]), 7);
}

#[test]
fn a_ticket_that_is_gone_for_one_sample_is_gone() {
    let history = [
        (7, sample(&[1, 2], &[])),
        (7, sample(&[2], &[])),
        (7, sample(&[1], &[])),
    ];
    assert_eq!(after(&history), 7);
}

#[test]
fn prepared_transactions_of_the_sample_without_tickets_are_waited_for() {
    let detached = [
        (7, sample(&[1], &[])),
        (7, sample(&[], &["x"])),
        (7, sample(&[], &["x", "y"])),
    ];
    assert_eq!(after(&detached), 0);
    let mut ended = detached.to_vec();
    ended.push((7, sample(&[5], &["y"])));
    assert_eq!(after(&ended), 7);
    // Prepared and detached before the first sample.
    assert_eq!(after(&[(7, sample(&[], &["x"]))]), 0);
    assert_eq!(after(&[(7, sample(&[], &["x"])), (7, sample(&[], &[]))]), 7);
}

#[test]
fn a_sample_says_nothing_of_numbers_that_were_read_after_it() {
    let mut proof = Proof::default();
    proof.sampled(7, &sample(&[1], &[]));
    proof.sampled(9, &sample(&[4], &[]));
    assert_eq!(proof.decided(), 7);
    proof.sampled(9, &sample(&[5], &[]));
    assert_eq!(proof.decided(), 9);
    assert!(!proof.wants_sample(Some(8)) && proof.wants_sample(Some(10)));
    assert!(!proof.wants_sample(None));
}

#[test]
fn a_long_transaction_delays_the_holes_of_its_time_and_memory_is_bounded() {
    let mut proof = Proof::default();
    for high in 1..1_000 {
        proof.sampled(high, &sample(&[1, 100 + high], &[]));
        assert!(proof.obligations.len() <= OBLIGATIONS_MAX);
    }
    assert_eq!(proof.decided(), 0);
    proof.sampled(1_000, &sample(&[2_000], &[]));
    assert!(proof.decided() > 0);
    proof.sampled(1_000, &sample(&[], &[]));
    assert_eq!(proof.decided(), 1_000);
}

#[test]
fn a_doubt_ends_everything() {
    let mut proof = Proof::default();
    proof.sampled(7, &sample(&[], &[]));
    proof.sampled(9, &sample(&[1], &[]));
    proof.doubt();
    assert_eq!(proof, Proof::default());
}

#[test]
fn a_granted_lock_stands_for_an_empty_list() {
    let mut proof = Proof::default();
    proof.sampled(7, &sample(&[1], &[]));
    proof.granted(9, BTreeSet::from([b"x".to_vec()]));
    assert_eq!(proof.decided(), 0);
    proof.granted(9, BTreeSet::new());
    assert_eq!(proof.decided(), 9);
}
