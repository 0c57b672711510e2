//! The headers of a record in a map, which has a name once.

use std::collections::HashMap;

use posthaste_engine::Record;

type Header<'r> = (&'r str, Option<&'r str>);

/// Those that stand in the map, and the rest: repeated names, and others that may not. A header of
/// the relay stands there whatever headers the event has of its own.
pub(crate) fn split(
    record: &Record,
    may_stand: impl Fn(&str, Option<&str>) -> bool,
) -> (Vec<Header<'_>>, Vec<Header<'_>>) {
    let mut counts: HashMap<&str, usize> = HashMap::new();
    for (name, _) in record.own_headers() {
        *counts.entry(name).or_default() += 1;
    }
    let added = record.own_headers().added_len();
    let (mut standing, mut rest) = (Vec::new(), Vec::new());
    for (at, (name, value)) in record.own_headers().enumerate() {
        let is_alone = at < added || counts.get(name) == Some(&1);
        match is_alone && may_stand(name, value) {
            true => standing.push((name, value)),
            false => rest.push((name, value)),
        }
    }
    (standing, rest)
}

#[cfg(test)]
mod tests {
    use posthaste_testkit::sink_suite::{SuiteEvent, records};

    use super::*;

    #[test]
    fn a_header_of_the_relay_is_not_hidden_by_one_of_the_event() {
        let header = |name: &str, value: &str| (name.to_owned(), Some(value.to_owned()));
        let event = SuiteEvent {
            headers: vec![
                header("a", "event"),
                header("b", "1"),
                header("c", "1"),
                header("c", "2"),
                header("-", "1"),
            ],
            ..SuiteEvent::new(None, "x")
        };
        let record = records(&[event], 0).remove(0);
        let record = record.with_added_headers(vec![("a".into(), Some("relay".into()))]);
        let (standing, rest) = split(&record, |name, _| name != "-");
        assert_eq!(standing, [("a", Some("relay")), ("b", Some("1"))]);
        let own = [("a", "event"), ("c", "1"), ("c", "2"), ("-", "1")];
        assert_eq!(rest, own.map(|(name, value)| (name, Some(value))));
    }
}
