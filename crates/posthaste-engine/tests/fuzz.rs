//! Templates and routes as people may write them, and events of any content on a page.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use bolero::check;
use posthaste_engine::{
    DeliveryPolicy, Field, PageBuilder, Route, RouteAction, RouteDecision, RouteMatch, Routes,
    StoredEvent, StoredFields, Template,
};
use posthaste_testkit::fuzz::{iterations, spelled, words};
use uuid::Uuid;

fn event(texts: [Option<&str>; 9], headers: &[(&str, Option<&str>)]) -> StoredEvent {
    let mut page = PageBuilder::default();
    let fields = StoredFields {
        seq: 1,
        id: Uuid::nil(),
        occurred_at: 0,
        inserted_at: 0,
        slot: 0,
        texts,
        payload: None,
    };
    page.push(&fields, headers.iter().copied()).unwrap();
    page.finish().remove(0)
}

const TEMPLATE_WORDS: &str = "\
    {|}|{{|}}|{topic}|{key}|{type}|{tenant_id}|{header.a}|{header.ü}|{header.|{header.}|topic|\
    header|.|{correlation_id}|ü|🚚|-";

/// A template that is taken prints as a template that is the same; one that is not names the
/// character.
#[test]
fn fuzz_templates() {
    let full = event(
        [
            Some("TOPIC"),
            Some("KEY"),
            Some("TYPE"),
            None,
            None,
            None,
            Some("TENANT"),
            None,
            None,
        ],
        &[("a", Some("A")), ("ü", Some("U"))],
    );
    let bare = event(
        [
            Some("TOPIC"),
            None,
            None,
            None,
            None,
            None,
            None,
            None,
            None,
        ],
        &[("a", None)],
    );
    check!()
        .with_iterations(iterations(2_000))
        .with_max_len(24)
        .for_each(|input: &[u8]| {
            let parts = input
                .iter()
                .map(|&byte| PARTS[usize::from(byte) % PARTS.len()]);
            let (source, rendered): (String, String) = parts.unzip();
            if !source.is_empty() {
                let template: Template = source.parse().unwrap();
                assert_eq!(template.render(&full).unwrap(), rendered, "{source}");
            }
            let text = spelled(input, &words(TEMPLATE_WORDS));
            match text.parse::<Template>() {
                Ok(template) => {
                    let printed = template.to_string();
                    assert_eq!(printed.parse::<Template>().unwrap(), template);
                    assert_eq!(printed, text, "as it was written");
                    if let Err(missing) = template.render(&bare) {
                        assert!(
                            text.contains(&format!("{{{}}}", missing.field)),
                            "{missing}"
                        );
                    }
                }
                Err(error) => {
                    let characters = text.chars().count().max(1);
                    assert!(
                        (1..=characters).contains(&error.position),
                        "{text:?}: {error}"
                    );
                    let at = text.chars().nth(error.position - 1);
                    assert!(matches!(at, None | Some('{' | '}')), "{text:?}: {error}");
                }
            }
        });
}

/// Parts of templates, each with what it becomes.
const PARTS: [(&str, &str); 10] = [
    ("{{", "{"),
    ("}}", "}"),
    ("{topic}", "TOPIC"),
    ("{key}", "KEY"),
    ("{type}", "TYPE"),
    ("{tenant_id}", "TENANT"),
    ("{header.a}", "A"),
    ("{header.ü}", "U"),
    ("topic", "topic"),
    ("ü", "ü"),
];

const GLOB_WORDS: &str = "\
    *|?|[|]|[ab]|[!ab]|[^a]|[a-c]|[-a]|[]a]|{|}|,|{a,b}|{,a}|{a,{b,c}}|\\|\\*|\\[|.|/|a|b|c|ü|\
    order|orders.*|-|!";

fn routed(pattern: &str) -> Option<impl Fn(&str) -> bool + use<>> {
    let route = Route {
        matches: RouteMatch {
            topic: Some(pattern.to_owned()),
            ..RouteMatch::default()
        },
        action: RouteAction::Drop,
        attempts: None,
        on_dead: None,
    };
    let routes = Routes::new(vec![route]);
    if let Err(error) = &routes {
        assert_eq!(error.number, 1);
        assert!(error.reason.contains("glob"), "{error}");
    }
    let routes = routes
        .ok()?
        .for_destination("any", DeliveryPolicy::default());
    Some(move |topic: &str| {
        let mut texts = [None; 9];
        texts[Field::Topic as usize] = Some(topic);
        routes.decide(&event(texts, &[])) == RouteDecision::Dropped
    })
}

/// A glob is refused or used, and matches what a plain reading of it matches. A text matches
/// itself, escaped.
#[test]
fn fuzz_globs() {
    check!()
        .with_iterations(iterations(200))
        .with_max_len(20)
        .for_each(|input: &[u8]| {
            let (pattern, topic) = input.split_at(input.len() / 2);
            let pattern = spelled(pattern, &words(GLOB_WORDS));
            let topic = spelled(
                topic,
                &["a", "b", "c", ".", "/", "order", "orders.new", "ab", "-"],
            );
            // Two stars mean something of their own beside a slash.
            if let Some(matches) = routed(&pattern)
                && !pattern.contains("**")
                && let Some(expected) = plainly(pattern.as_bytes(), topic.as_bytes())
            {
                assert_eq!(matches(&topic), expected, "{pattern:?} and {topic:?}");
            }
            let escaped: String = topic.chars().flat_map(|c| ['\\', c]).collect();
            let same = routed(&escaped).unwrap();
            assert!(same(&topic), "{topic:?}");
            assert!(!same(&format!("{topic}x")), "{topic:?}");
            let any = routed(&format!("*{escaped}*")).unwrap();
            assert!(any(&format!("x/{topic}.")), "{topic:?}");
        });
}

/// Whether a glob matches a text, by the words of its documentation; none where those say nothing.
fn plainly(pattern: &[u8], text: &[u8]) -> Option<bool> {
    let Some((&first, rest)) = pattern.split_first() else {
        return Some(text.is_empty());
    };
    let next = |rest: &[u8]| match text.split_first() {
        Some((_, text)) => plainly(rest, text),
        None => Some(false),
    };
    match first {
        b'*' => {
            let mut found = false;
            for from in 0..=text.len() {
                found |= plainly(rest, &text[from..])?;
            }
            Some(found)
        }
        b'?' => next(rest),
        // Characters in brackets, and choices of choices, are left to the cases above and below.
        b'[' => {
            let end = rest.iter().position(|&byte| byte == b']')?;
            let (chosen, rest) = (&rest[..end], &rest[end + 1..]);
            let plain = !chosen.is_empty() && chosen.iter().all(u8::is_ascii_lowercase);
            match plain {
                true if text.first().is_some_and(|byte| chosen.contains(byte)) => next(rest),
                true => Some(false),
                false => None,
            }
        }
        b'{' => {
            let end = rest.iter().position(|&byte| byte == b'}')?;
            let (choices, rest) = (&rest[..end], &rest[end + 1..]);
            if choices.iter().any(|byte| b"{\\[".contains(byte)) {
                return None;
            }
            let mut found = false;
            for choice in choices.split(|&byte| byte == b',') {
                found |= plainly(&[choice, rest].concat(), text)?;
            }
            Some(found)
        }
        b'\\' => match rest.split_first() {
            Some((escaped, rest)) if text.first() == Some(escaped) => next(rest),
            Some(_) => Some(false),
            None => None,
        },
        _ if text.first() == Some(&first) => next(rest),
        _ => Some(false),
    }
}

type AnyFields = (
    i64,
    u128,
    i64,
    u16,
    [Option<String>; 9],
    Option<Vec<u8>>,
    Vec<(String, Option<String>)>,
);

/// An event comes off a page byte for byte, whatever stands beside it.
#[test]
fn fuzz_pages() {
    check!()
        .with_iterations(iterations(400))
        .with_type::<Vec<AnyFields>>()
        .for_each(|all| {
            let mut page = PageBuilder::default();
            for (seq, id, time, slot, texts, payload, headers) in all {
                let fields = StoredFields {
                    seq: *seq,
                    id: Uuid::from_u128(*id),
                    occurred_at: *time,
                    inserted_at: !*time,
                    slot: *slot,
                    texts: std::array::from_fn(|at| texts[at].as_deref()),
                    payload: payload.as_deref(),
                };
                let before = page.bytes();
                let headers = headers
                    .iter()
                    .map(|(name, value)| (&**name, value.as_deref()));
                page.push(&fields, headers).unwrap();
                assert!(page.bytes() > before);
            }
            let bytes = page.bytes();
            let events = page.finish();
            assert_eq!(events.len(), all.len());
            assert_eq!(
                events.iter().map(StoredEvent::footprint).sum::<usize>(),
                bytes
            );
            for (event, (seq, id, time, slot, texts, payload, headers)) in events.iter().zip(all) {
                assert_eq!(
                    (event.seq(), event.id().as_u128(), event.slot()),
                    (*seq, *id, *slot)
                );
                assert_eq!((event.occurred_at(), event.inserted_at()), (*time, !*time));
                for (field, text) in FIELDS.into_iter().zip(texts) {
                    assert_eq!(event.text(field), text.as_deref());
                }
                assert_eq!(event.payload(), payload.as_deref());
                assert_eq!(event.payload_bytes().as_deref(), payload.as_deref());
                let expected = headers
                    .iter()
                    .map(|(name, value)| (&**name, value.as_deref()));
                assert!(event.headers().eq(expected));
            }
        });
}

const FIELDS: [Field; 9] = [
    Field::Topic,
    Field::Key,
    Field::Type,
    Field::ContentType,
    Field::CorrelationId,
    Field::CausationId,
    Field::TenantId,
    Field::Traceparent,
    Field::Tracestate,
];
