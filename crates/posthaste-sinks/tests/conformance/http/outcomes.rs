//! The meaning of an endpoint's answers.

use std::time::Duration;

use jiff::{Timestamp, fmt::rfc2822};
use libtest_mimic::Trial;
use posthaste_engine::{Cause, Outcome, RejectionKind};
use posthaste_testkit::{servers::http::WebhookServer, sink_suite::SuiteEvent};
use serde_json::json;

use super::{
    place::{Place, beside, cause, put_off, rejection, short},
    trial,
};
use crate::driving::{accept, accepted, lane, plain, send};

pub(super) fn trials() -> Vec<Trial> {
    vec![
        trial("an_event_is_refused_alone", an_event_is_refused_alone),
        trial(
            "a_refusal_tells_the_endpoint_s_words",
            a_refusal_tells_the_endpoint_s_words,
        ),
        trial(
            "a_refusal_of_all_blames_no_event",
            a_refusal_of_all_blames_no_event,
        ),
        trial("the_endpoint_may_ask_to_wait", the_endpoint_may_ask_to_wait),
        trial("a_failing_endpoint_is_away", a_failing_endpoint_is_away),
        trial(
            "an_event_over_which_an_endpoint_fails_is_found",
            an_event_over_which_an_endpoint_fails_is_found,
        ),
        trial(
            "requests_under_way_are_waited_for",
            requests_under_way_are_waited_for,
        ),
        trial(
            "redirections_are_not_followed",
            redirections_are_not_followed,
        ),
        trial(
            "an_endpoint_that_is_gone_waits",
            an_endpoint_that_is_gone_waits,
        ),
        trial("too_many_headers_are_refused", too_many_headers_are_refused),
        trial(
            "requests_have_what_the_address_gives",
            requests_have_what_the_address_gives,
        ),
    ]
}

fn server() -> &'static WebhookServer {
    WebhookServer::shared()
}

async fn an_event_is_refused_alone() {
    use RejectionKind::{Invalid, Other, TooLarge, Unroutable};
    let place = Place::new(server());
    let sink = place.sink();
    let mut flight = lane(&sink).await;
    for (status, kind) in [
        (400, Invalid),
        (404, Unroutable),
        (405, Unroutable),
        (409, Other),
        (413, TooLarge),
        (415, Invalid),
        (422, Invalid),
        (431, TooLarge),
        (451, Other),
    ] {
        let events = plain(10);
        place.fail(&json!({ "status": status, "only": events[4].id.to_string() }));
        // The id is a header: another place for it, where the server looks.
        let mut marked = events.clone();
        marked[4].payload = Some(events[4].id.to_string().into_bytes());
        for (at, outcome) in send(&mut flight, &marked).await.iter().enumerate() {
            match at {
                4 => assert_eq!(rejection(outcome).0, kind, "{status}"),
                _ => assert!(accepted(outcome), "{outcome:?}"),
            }
        }
    }
}

async fn a_refusal_tells_the_endpoint_s_words() {
    let place = Place::new(server());
    let body = format!("no\r\n\tsuch\u{202e} order {}", "x".repeat(1_000));
    place.fail(&json!({ "status": 422, "body": body }));
    let outcomes = send(&mut lane(&place.sink()).await, &plain(1)).await;
    let (_, words) = rejection(&outcomes[0]);
    let told = "the endpoint answered 422 Unprocessable Entity: no such order xxx";
    assert!(words.starts_with(told) && words.len() < 300, "{words}");
}

/// The first one behind an accepted event may be that event's own; the others are not.
async fn a_refusal_of_all_blames_no_event() {
    let place = Place::new(server());
    let sink = place.sink();
    for (status, expected, fix, kind) in [
        (
            401,
            Cause::Denied,
            "`secret_headers`",
            RejectionKind::Denied,
        ),
        (
            403,
            Cause::Denied,
            "`secret_headers`",
            RejectionKind::Denied,
        ),
        (
            404,
            Cause::Misconfigured,
            "correct the path",
            RejectionKind::Unroutable,
        ),
        (
            405,
            Cause::Misconfigured,
            "correct the path",
            RejectionKind::Unroutable,
        ),
        (
            410,
            Cause::Misconfigured,
            "route them elsewhere",
            RejectionKind::Other,
        ),
    ] {
        place.fail(&json!({ "status": status }));
        for _ in 0..2 {
            let outcomes = send(&mut lane(&sink).await, &plain(1)).await;
            let (why, words, _) = cause(&outcomes[0]);
            assert_eq!(why, expected);
            assert!(words.contains(fix), "{words}");
        }
        place.heal();
        accept(&mut lane(&sink).await, &plain(3)).await;
        place.fail(&json!({ "status": status }));
        let outcomes = send(&mut lane(&sink).await, &plain(1)).await;
        assert_eq!(rejection(&outcomes[0]).0, kind);
        let outcomes = send(&mut lane(&sink).await, &plain(1)).await;
        assert_eq!(cause(&outcomes[0]).0, expected);
    }
}

async fn the_endpoint_may_ask_to_wait() {
    let place = Place::new(server());
    let sink = place.sink();
    let until = Timestamp::now() + Duration::from_secs(100);
    let date = rfc2822::DateTimePrinter::new()
        .timestamp_to_rfc9110_string(&until)
        .unwrap();
    for (status, asked, expected) in [
        (429, Some("7".to_owned()), 7..=7),
        (429, Some(date.clone()), 60..=100),
        (503, Some("7".to_owned()), 7..=7),
        (429, None, 0..=0),
        (429, Some("soon".to_owned()), 0..=0),
    ] {
        let headers = asked.map(|asked| json!({ "Retry-After": asked }));
        place.fail(&json!({ "status": status, "headers": headers.unwrap_or(json!({})) }));
        let outcomes = send(&mut lane(&sink).await, &plain(1)).await;
        let (why, words, wait) = cause(&outcomes[0]);
        assert_eq!(why, Cause::Throttled, "{words}");
        assert!(
            expected.contains(&wait.unwrap_or_default().as_secs()),
            "{wait:?}"
        );
    }
}

async fn a_failing_endpoint_is_away() {
    let place = Place::new(server());
    let sink = place.sink();
    for status in [408, 425, 500, 501, 502, 503, 504, 599] {
        place.fail(&json!({ "status": status }));
        for outcome in send(&mut lane(&sink).await, &plain(3)).await {
            let (why, words, _) = cause(&outcome);
            assert!([Cause::Unknown, Cause::LaneEnded].contains(&why), "{words}");
            assert!(words.contains(&status.to_string()), "{words}");
        }
    }
    place.heal();
    assert_eq!(place.requests().len(), 0);
    accept(&mut lane(&sink).await, &plain(3)).await;
}

/// Alone it is no better than an endpoint that fails over all; beside others it is.
async fn an_event_over_which_an_endpoint_fails_is_found() {
    let place = Place::new(server());
    let sink = place.sink_with("&requests=2");
    let mut poison = SuiteEvent::new(Some("poison"), "POISON");
    poison.id = plain(1)[0].id;
    place.fail(&json!({ "status": 500, "only": "POISON" }));
    let outcomes = send(&mut lane(&sink).await, &[poison.clone()]).await;
    assert_eq!(cause(&outcomes[0]).0, Cause::Unknown);
    let silent = json!({ "act": "silent", "only": "POISON" });
    place.fail(&silent);
    let mut flight = sink.open_lane(short(1)).await.unwrap();
    let outcome = beside(&mut flight, &poison, || SuiteEvent::new(None, "x")).await;
    let why = put_off(&outcome);
    assert!(why.is_silent, "{why:?}");
    assert!(why.reason.contains("within 900ms"), "{}", why.reason);
}

/// Of a lane that is to end none is given up, since each of these would come twice.
async fn requests_under_way_are_waited_for() {
    let place = Place::new(server());
    let sink = place.sink();
    let mut events = plain(16);
    events[7].payload = Some(b"BUSY".to_vec());
    place.fail(&json!({ "status": 429, "only": "BUSY" }));
    let outcomes = send(&mut lane(&sink).await, &events).await;
    for (at, outcome) in outcomes.iter().enumerate() {
        match at {
            7 => assert_eq!(cause(outcome).0, Cause::Throttled),
            _ => assert!(accepted(outcome), "{outcome:?}"),
        }
    }
    assert_eq!(place.requests().len(), 15);
}

async fn redirections_are_not_followed() {
    let (place, other) = (Place::new(server()), Place::new(server()));
    for status in [301, 302, 303, 307, 308] {
        let location = format!("{}?token=S3CRET", server().url(&other.name));
        place.fail(&json!({ "status": status, "headers": { "Location": location } }));
        let outcomes = send(&mut lane(&place.sink()).await, &plain(1)).await;
        let (why, words, _) = cause(&outcomes[0]);
        assert_eq!(why, Cause::Misconfigured);
        assert!(
            words.contains(&other.name) && !words.contains("S3CRET"),
            "{words}"
        );
    }
    assert!(other.requests().is_empty() && place.requests().is_empty());
}

async fn an_endpoint_that_is_gone_waits() {
    let place = Place::new(server());
    let sink = place.sink();
    place.fail(&json!({ "status": 410 }));
    let outcomes = send(&mut lane(&sink).await, &plain(1)).await;
    let (why, words, wait) = cause(&outcomes[0]);
    assert_eq!(
        (why, wait),
        (Cause::Misconfigured, Some(Duration::from_secs(300)))
    );
    assert!(
        words.contains("410 Gone; it wants no more events"),
        "{words}"
    );
    place.heal();
    accept(&mut lane(&sink).await, &plain(1)).await;
}

async fn too_many_headers_are_refused() {
    let place = Place::new(server());
    let mut wide = SuiteEvent::new(None, "x");
    wide.headers = vec![("a".to_owned(), Some("x".repeat(9_000)))];
    let outcomes = send(&mut lane(&place.sink()).await, &[wide.clone()]).await;
    let (kind, words) = rejection(&outcomes[0]);
    assert_eq!(kind, RejectionKind::TooLarge);
    assert!(words.contains("`format=structured`"), "{words}");
    assert!(place.requests().is_empty());
    accept(
        &mut lane(&place.sink_with("&format=structured")).await,
        &[wide],
    )
    .await;
}

async fn requests_have_what_the_address_gives() {
    let place = Place::new(server());
    let options = "&secret_query=a%3D1%26b&secret_headers=Authorization: Bearer T%0AX-Two: 2";
    accept(&mut lane(&place.sink_with(options)).await, &plain(1)).await;
    let request = place.requests().remove(0);
    assert_eq!(request.target, format!("/{}?a=1&b", place.name));
    assert_eq!(request.header("authorization"), Some("Bearer T"));
    assert_eq!(request.header("x-two"), Some("2"));
    let host = format!("127.0.0.1:{}", server().port());
    assert_eq!(request.header("host"), Some(&*host));
    assert_eq!(request.header("webhook-signature"), None);
    let url = server()
        .url(&place.name)
        .replace("http://", "http://me:p%40ss@");
    let sink = posthaste_sinks::open(&format!("{url}?allow_private=true")).unwrap();
    accept(&mut lane(&sink).await, &plain(1)).await;
    assert_eq!(place.told("authorization")[1], "Basic bWU6cEBzcw==");
    let outcome = send(&mut lane(&sink).await, &[SuiteEvent::new(None, "")])
        .await
        .remove(0);
    assert!(matches!(outcome, Outcome::Accepted(_)), "{outcome:?}");
}
