use super::*;
use crate::{PageBuilder, StoredFields};
use uuid::Uuid;

const POLICY: DeliveryPolicy = DeliveryPolicy {
    attempts: Some(3),
    on_dead: OnDead::Block,
};

fn event(topic: &str, event_type: Option<&str>, headers: &[(&str, Option<&str>)]) -> StoredEvent {
    event_of(0, topic, event_type, headers)
}

fn event_of(
    inserted_at: i64,
    topic: &str,
    event_type: Option<&str>,
    headers: &[(&str, Option<&str>)],
) -> StoredEvent {
    let mut page = PageBuilder::default();
    let mut texts = [None; 9];
    texts[Field::Topic as usize] = Some(topic);
    texts[Field::Type as usize] = event_type;
    let fields = StoredFields {
        seq: 1,
        id: Uuid::nil(),
        occurred_at: 0,
        inserted_at,
        slot: 0,
        texts,
        payload: None,
    };
    page.push(&fields, headers.iter().copied()).unwrap();
    page.finish().remove(0)
}

fn route(topic: Option<&str>, event_type: Option<&str>, action: RouteAction) -> Route {
    Route {
        matches: RouteMatch {
            topic: topic.map(str::to_owned),
            event_type: event_type.map(str::to_owned),
            headers: Vec::new(),
        },
        action,
        attempts: None,
        on_dead: None,
    }
}

fn to(names: &[&str]) -> RouteAction {
    RouteAction::To(names.iter().map(|&name| name.to_owned()).collect())
}

#[test]
fn without_routes_everybody_takes_everything() {
    let routes = Routes::default();
    assert!(routes.catch_all());
    let decision = routes
        .for_destination("any", POLICY)
        .decide(&event("t", None, &[]));
    assert_eq!(decision, RouteDecision::Take(POLICY));
}

/// An event that no route takes is told all the same.
#[test]
fn a_destination_takes_its_time_only() {
    let of = |routes: Routes| routes.for_destination("a", POLICY).inserted(10..20);
    let all = of(Routes::default());
    for (inserted_at, is_taken) in [(9, false), (10, true), (19, true), (20, false)] {
        let decision = all.decide(&event_of(inserted_at, "t", None, &[]));
        let expected = match is_taken {
            true => RouteDecision::Take(POLICY),
            false => RouteDecision::OutOfTime,
        };
        assert_eq!(decision, expected, "{inserted_at}");
    }
    let routes = Routes::new(vec![route(Some("other"), None, to(&["a"]))]).unwrap();
    let decision = of(routes).decide(&event_of(9, "t", None, &[]));
    assert_eq!(decision, RouteDecision::Unrouted);
}

#[test]
fn the_first_match_decides_for_every_destination() {
    let mut first = route(Some("orders.*"), None, to(&["a", "b"]));
    first.attempts = Some(9);
    first.on_dead = Some(OnDead::Skip);
    let routes = Routes::new(vec![
        first,
        route(Some("debug{,.*}"), None, RouteAction::Drop),
        route(None, Some("*.placed"), to(&["b"])),
    ])
    .unwrap();
    assert!(!routes.catch_all());
    let a = routes.for_destination("a", POLICY);
    let b = routes.for_destination("b", POLICY);

    let special = DeliveryPolicy {
        attempts: Some(9),
        on_dead: OnDead::Skip,
    };
    let crossing = event("orders.eu.new", Some("order.placed"), &[]);
    assert_eq!(a.decide(&crossing), RouteDecision::Take(special));
    assert_eq!(b.decide(&crossing), RouteDecision::Take(special));

    let typed = event("stock", Some("order.placed"), &[]);
    assert_eq!(a.decide(&typed), RouteDecision::NotOurs);
    assert_eq!(b.decide(&typed), RouteDecision::Take(POLICY));

    assert_eq!(
        a.decide(&event("debug.x", None, &[])),
        RouteDecision::Dropped
    );
    for (topic, event_type) in [("orders", None), ("stock", None), ("stock", Some("placed"))] {
        let unrouted = event(topic, event_type, &[]);
        assert_eq!(a.decide(&unrouted), RouteDecision::Unrouted);
        assert_eq!(b.decide(&unrouted), RouteDecision::Unrouted);
    }
}

#[test]
fn headers_match_by_value_or_by_presence_in_any_repeat() {
    let mut by_header = route(None, None, to(&["a"]));
    by_header.matches.headers = vec![
        ("region".to_owned(), Some("eu".to_owned())),
        ("audit".to_owned(), None),
    ];
    let a = Routes::new(vec![by_header])
        .unwrap()
        .for_destination("a", POLICY);
    let takes = |headers: &[(&str, Option<&str>)]| {
        a.decide(&event("t", None, headers)) == RouteDecision::Take(POLICY)
    };
    assert!(takes(&[
        ("region", Some("us")),
        ("region", Some("eu")),
        ("audit", None)
    ]));
    assert!(!takes(&[("region", Some("eu"))]));
    assert!(!takes(&[("region", None), ("audit", Some("yes"))]));
    assert!(!takes(&[("Region", Some("eu")), ("audit", None)]));
}

#[test]
fn a_glob_too_deep_or_too_long_is_refused_and_breaks_nothing() {
    let deep = "{".repeat(1_000) + &"}".repeat(1_000);
    for pattern in [deep, "a".repeat(5_000)] {
        let routes = Routes::new(vec![route(Some(&pattern), None, RouteAction::Drop)]);
        assert!(routes.unwrap_err().reason.contains("glob"));
    }
}

#[test]
fn an_empty_choice_is_a_choice() {
    let routes = Routes::new(vec![route(Some("debug{,.*}"), None, to(&["a"]))]).unwrap();
    let a = routes.for_destination("a", POLICY);
    for topic in ["debug", "debug.x"] {
        assert_eq!(
            a.decide(&event(topic, None, &[])),
            RouteDecision::Take(POLICY)
        );
    }
    assert_eq!(
        a.decide(&event("debugger", None, &[])),
        RouteDecision::Unrouted
    );
}

#[test]
fn brackets_hold_ascii() {
    for (pattern, good) in [
        ("[ab]ü", true),
        ("\\[ü", true),
        ("[]a]ü", true),
        ("[!]ü]", false),
        ("[aü]", false),
        ("a[a-ü]", false),
    ] {
        let routes = Routes::new(vec![route(Some(pattern), None, RouteAction::Drop)]);
        assert_eq!(routes.is_ok(), good, "{pattern}: {routes:?}");
    }
}

#[test]
fn patience_fits_the_cause() {
    use RejectionKind::{Denied, FailsAlone, Invalid, Other, TooLarge, Undecodable, Unroutable};
    let open = DeliveryPolicy::default();
    for mended_elsewhere in [Unroutable, Denied, Other] {
        assert_eq!(open.attempts_when(mended_elsewhere), 150);
    }
    for costly_or_faulty in [TooLarge, Invalid, Undecodable, FailsAlone] {
        assert_eq!(open.attempts_when(costly_or_faulty), 5);
    }
    let three = DeliveryPolicy {
        attempts: Some(3),
        ..open
    };
    assert_eq!(
        (three.attempts_when(Denied), three.attempts_when(Invalid)),
        (3, 3)
    );
}

#[test]
fn useless_routes_are_refused() {
    let error = |routes| Routes::new(routes).unwrap_err().to_string();
    let all = || route(Some("*"), None, to(&["a"]));
    assert!(error(vec![all(), all()]).starts_with("route 2: it is never reached"));
    let no_glob = error(vec![route(Some("amqp://u:secret@h["), None, to(&["a"]))]);
    assert!(no_glob.contains("`topic` is no glob"), "{no_glob}");
    assert!(!no_glob.contains("secret"), "{no_glob}");
    assert!(error(vec![route(None, None, to(&[]))]).contains("leads nowhere"));
    let mut none = all();
    none.attempts = Some(0);
    assert!(error(vec![none]).contains("at least 1"));
}
