//! The checker: what arrived, held against what was sent and accepted.

use std::collections::{BTreeMap, BTreeSet};

use uuid::Uuid;

use super::SuiteEvent;

/// Whether `arrived` is what a consumer may see after `sent`, in this order, of which `accepted`
/// were accepted: nothing lost, invented, damaged or repeated, and each key in order. An event that
/// is in `sent` twice may arrive twice.
///
/// # Errors
/// The first fault, in words.
pub fn check_arrivals(
    sent: &[SuiteEvent],
    accepted: &BTreeSet<Uuid>,
    arrived: &[SuiteEvent],
) -> Result<(), String> {
    let mut sent_at: BTreeMap<Uuid, Vec<usize>> = BTreeMap::new();
    for (position, event) in sent.iter().enumerate() {
        sent_at.entry(event.id).or_default().push(position);
    }
    let mut arrivals: BTreeMap<Uuid, usize> = BTreeMap::new();
    // Each key must be a subsequence of its sendings: an arrival stands for the earliest sending
    // behind the one before it.
    let mut last_of_key: BTreeMap<&str, usize> = BTreeMap::new();
    for event in arrived {
        let Some(positions) = sent_at.get(&event.id) else {
            return Err(format!("invented: {event:?}"));
        };
        let times = arrivals.entry(event.id).or_default();
        if *times == positions.len() {
            return Err(format!("repeated: {event:?}"));
        }
        let origin = &sent[positions[*times]];
        *times += 1;
        let differences = event.differences(origin);
        if !differences.is_empty() {
            let names = differences.join(", ");
            return Err(format!(
                "damaged in {names}: sent {origin:?}, arrived {event:?}"
            ));
        }
        if let Some(key) = &event.key {
            let before = last_of_key.get(key.as_str()).copied();
            let Some(&position) = positions.iter().find(|&&at| before.is_none_or(|b| at > b))
            else {
                return Err(format!("out of order: {event:?}"));
            };
            last_of_key.insert(key, position);
        }
    }
    match accepted.iter().find(|id| !arrivals.contains_key(id)) {
        Some(lost) => Err(format!("accepted but lost: {lost}")),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn events() -> Vec<SuiteEvent> {
        (0..6)
            .map(|n| SuiteEvent::new(Some(["a", "b"][n % 2]), format!("{n}")))
            .collect()
    }

    fn verdict(arrived: impl FnOnce(&mut Vec<SuiteEvent>)) -> Result<(), String> {
        let sent = events();
        let accepted = sent.iter().map(|event| event.id).collect();
        let mut seen = sent.clone();
        arrived(&mut seen);
        check_arrivals(&sent, &accepted, &seen)
    }

    #[test]
    fn a_faithful_delivery_passes() {
        verdict(|_| {}).unwrap();
        // Two keys owe each other no order.
        verdict(|seen| seen.swap(0, 1)).unwrap();
    }

    #[test]
    fn each_fault_is_found() {
        type Fault = fn(&mut Vec<SuiteEvent>);
        let faults: [(&str, Fault); 6] = [
            ("lost", |seen| drop(seen.remove(2))),
            ("out of order", |seen| seen.swap(0, 2)),
            ("invented", |seen| seen.push(SuiteEvent::new(None, "x"))),
            ("repeated", |seen| seen.push(seen[5].clone())),
            ("damaged in payload", |seen| seen[1].payload = None),
            ("damaged in headers", |seen| {
                seen[1].headers.push(("x".to_owned(), None));
            }),
        ];
        for (name, fault) in faults {
            let found = verdict(fault).unwrap_err();
            assert!(found.contains(name), "{name}: {found}");
        }
    }

    #[test]
    fn a_contiguous_replay_passes_and_a_late_repeat_does_not() {
        let once = events();
        let sent = [once.clone(), once.clone()].concat();
        let accepted = once.iter().map(|event| event.id).collect();
        let replay = [&once[..4], &once[..]].concat();
        check_arrivals(&sent, &accepted, &replay).unwrap();
        let late = [&sent[..], &once[..1]].concat();
        assert!(check_arrivals(&sent, &accepted, &late).is_err());
        let swapped = [
            once[2].clone(),
            once[0].clone(),
            once[4].clone(),
            once[2].clone(),
        ];
        let found = check_arrivals(&sent, &BTreeSet::new(), &swapped).unwrap_err();
        assert!(found.contains("out of order"), "{found}");
    }

    #[test]
    fn what_was_not_accepted_may_be_absent() {
        let sent = events();
        check_arrivals(&sent, &BTreeSet::new(), &sent[..3]).unwrap();
    }
}
