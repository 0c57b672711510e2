//! Places that are held back, as a relay's row tells of them: a text of JSON for operators alone.
//!
//! It is ASCII, with everything else escaped: a broker's words must not keep a relay from renewing
//! its lease, and a database need not be able to store them.

use std::time::Duration;

use posthaste_engine::{HeldPlace, RelayReport, merge_places};
use serde_json::{Map, Value, json};

/// Of a broker's answer, so many characters are stored.
const REASON_CHARS_MAX: usize = 500;

/// The text for a relay's row; empty where nothing is held back.
pub(crate) fn written(report: &RelayReport) -> String {
    let held = report.iter().filter(|(_, of)| of.places_held > 0);
    let told = held.map(|(name, of)| {
        let places: Value = of.places.iter().map(place_json).collect();
        (
            name.clone(),
            json!({ "held": of.places_held, "places": places }),
        )
    });
    let told: Map<String, Value> = told.collect();
    match told.is_empty() {
        true => String::new(),
        false => ascii(&Value::from(told).to_string()),
    }
}

/// The places of a destination, by the texts of all live relays. A text that cannot be read tells
/// of none: nothing is decided by it.
pub(crate) fn read(destination: &str, texts: &[impl AsRef<str>]) -> (usize, Vec<HeldPlace>) {
    merge_places(texts.iter().filter_map(|text| {
        let told: Value = serde_json::from_str(text.as_ref()).ok()?;
        let told = told.get(destination)?;
        let places = told["places"].as_array()?.iter().filter_map(place);
        Some((number(&told["held"]), places.collect()))
    }))
}

fn place_json(place: &HeldPlace) -> Value {
    json!({
        "name": place.name,
        "reason": place.reason.chars().take(REASON_CHARS_MAX).collect::<String>(),
        "held_micros": u64::try_from(place.held_for.as_micros()).unwrap_or(u64::MAX),
        "returns": place.returns,
        "paused": place.is_paused,
        "in_memory": place.in_memory,
        "set_aside": place.set_aside,
    })
}

fn place(told: &Value) -> Option<HeldPlace> {
    Some(HeldPlace {
        name: told["name"].as_str()?.into(),
        reason: told["reason"].as_str()?.into(),
        held_for: Duration::from_micros(told["held_micros"].as_u64()?),
        returns: told["returns"].as_bool()?,
        is_paused: told["paused"].as_bool()?,
        in_memory: number(&told["in_memory"]),
        set_aside: number(&told["set_aside"]),
    })
}

fn number(told: &Value) -> usize {
    let number = told.as_u64().unwrap_or(0);
    usize::try_from(number).unwrap_or(usize::MAX)
}

/// JSON with all other characters escaped; they stand in its strings alone.
fn ascii(json: &str) -> String {
    let mut text = String::with_capacity(json.len());
    for c in json.chars() {
        if c.is_ascii() {
            text.push(c);
            continue;
        }
        for unit in c.encode_utf16(&mut [0; 2]) {
            text.push_str(&format!("\\u{unit:04x}"));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use posthaste_engine::DestinationReport;

    use super::*;

    fn report(name: &str, reason: &str, held: u64) -> RelayReport {
        let place = HeldPlace {
            name: name.into(),
            reason: reason.into(),
            held_for: Duration::from_secs(held),
            returns: false,
            is_paused: true,
            in_memory: 3,
            set_aside: 4,
        };
        let of = DestinationReport {
            accepted_per_second: 1.0,
            places_held: 1,
            places: vec![place],
        };
        RelayReport::from([
            ("d".to_owned(), of),
            ("other".to_owned(), DestinationReport::default()),
        ])
    }

    #[test]
    fn any_words_are_kept_as_ascii() {
        let words = "a\u{0}b \"q\" \\ é 中 \u{1f600}\n";
        let told = report(words, words, 1);
        let text = written(&told);
        assert!(text.is_ascii() && !text.contains('\0'), "{text}");
        assert_eq!(read("d", &[text]), (1, told["d"].places.clone()));
    }

    #[test]
    fn nothing_is_written_where_nothing_is_held_and_long_words_are_cut() {
        assert_eq!(written(&RelayReport::new()), "");
        let text = written(&report("t", &"x".repeat(10_000), 1));
        let (_, places) = read("d", &[text]);
        assert_eq!(places[0].reason.len(), REASON_CHARS_MAX);
    }

    #[test]
    fn the_words_of_several_relays_are_one_report() {
        let texts = [
            written(&report("t", "younger", 5)),
            "no JSON".to_owned(),
            written(&report("t", "older", 9)),
            written(&report("u", "another", 7)),
        ];
        let (held, places) = read("d", &texts);
        let [t, u] = &places[..] else {
            panic!("{places:?}")
        };
        assert_eq!((held, &*t.name, &*u.name), (2, "t", "u"));
        assert_eq!((&*t.reason, t.held_for.as_secs()), ("older", 9));
        assert_eq!((t.in_memory, t.set_aside, u.in_memory), (6, 8, 3));
        assert_eq!(read("other", &texts), (0, Vec::new()));
    }
}
