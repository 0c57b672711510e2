//! The meaning of refusals, and what a check sees.

use libtest_mimic::Trial;
use posthaste_engine::{Cause, RejectionKind, Severity};
use posthaste_sinks::open;
use posthaste_testkit::{servers::moto::MotoServer, sink_suite::SuiteEvent, unique_name};

use super::{place::Place, trial};
use crate::{
    aws::expect_places_fail_alone,
    driving::{accept, accepted, lane, plain, send},
    outcome::{cause, put_off, rejection},
};

pub(super) fn trials() -> Vec<Trial> {
    vec![
        trial(
            "a_topic_that_is_not_there_is_waited_for",
            a_topic_that_is_not_there_is_waited_for,
        ),
        trial(
            "the_answer_to_another_request_stores_nothing",
            the_answer_to_another_request_stores_nothing,
        ),
        trial(
            "an_arn_that_sns_does_not_take_is_no_events_fault",
            an_arn_that_sns_does_not_take_is_no_events_fault,
        ),
        trial("topics_fail_alone", topics_fail_alone),
        trial(
            "a_topic_holds_up_no_other_however_it_fails",
            a_topic_holds_up_no_other_however_it_fails,
        ),
        trial(
            "a_message_is_measured_with_its_attributes",
            a_message_is_measured_with_its_attributes,
        ),
        trial(
            "a_check_shows_the_topic_and_who_gets_its_events",
            a_check_shows_the_topic_and_who_gets_its_events,
        ),
    ]
}

/// It is the destination's only one.
async fn a_topic_that_is_not_there_is_waited_for() {
    let server = MotoServer::shared();
    let place = Place::new(server, "");
    let sink = place.sink_with("");
    let mut flight = lane(&sink).await;
    accept(&mut flight, &plain(3)).await;
    server.delete_topic(&place.name);
    for outcome in send(&mut flight, &plain(1)).await {
        let (why, words) = cause(&outcome);
        assert_eq!(why, Cause::Misconfigured, "{words}");
        assert!(words.contains(&place.name), "{words}");
    }
    assert_eq!(
        sink.check().await.unwrap_err().cause(),
        Cause::Misconfigured
    );
    server.create_topic(&place.name);
    accept(&mut lane(&sink).await, &plain(3)).await;
}

/// A proxy in between may be out of step.
async fn the_answer_to_another_request_stores_nothing() {
    let server = MotoServer::shared();
    let place = Place::new(server, "");
    let mut flight = lane(&place.sink_with("")).await;
    server.fail(&place.name, "act=stale");
    accept(&mut flight, &plain(10)).await;
    for outcome in send(&mut flight, &plain(10)).await {
        assert!(put_off(&outcome).contains("nothing of this event"));
    }
    assert_eq!(place.events().len(), 10);
    server.heal(&place.name);
    accept(&mut flight, &plain(10)).await;
    assert_eq!(place.events().len(), 20);
}

/// That of a topic of another region, as a wrong `endpoint` makes it.
async fn an_arn_that_sns_does_not_take_is_no_events_fault() {
    let server = MotoServer::shared();
    let place = Place::new(server, "");
    let words = "Invalid+parameter:+TopicArn";
    let answer = format!(
        "%3CErrorResponse%3E%3CError%3E%3CType%3ESender%3C/Type%3E%3CCode%3EInvalidParameter\
         %3C/Code%3E%3CMessage%3E{words}%3C/Message%3E%3C/Error%3E%3C/ErrorResponse%3E"
    );
    server.fail(&place.name, &format!("status=400&body={answer}"));
    for count in [1, 10] {
        let mut flight = lane(&place.sink_with("")).await;
        for outcome in send(&mut flight, &plain(count)).await {
            let (why, words) = cause(&outcome);
            assert_eq!(why, Cause::Misconfigured, "{words}");
            assert!(words.contains("correct ARN, region"), "{words}");
        }
    }
    server.heal(&place.name);
    accept(&mut lane(&place.sink_with("")).await, &plain(3)).await;
}

async fn topics_fail_alone() {
    let server = MotoServer::shared();
    let name = unique_name("sink");
    let arn = server.arn(&format!("{name}-{{topic}}"));
    let sink = open(&format!("sns://{arn}?{}", server.options())).unwrap();
    server.create_topic(&format!("{name}-there"));
    let mut events = plain(20);
    for (at, event) in events.iter_mut().enumerate() {
        event.topic = if at % 2 == 0 { "there" } else { "away" }.to_owned();
    }
    let mut wrong = SuiteEvent::new(None, "x");
    wrong.topic = "a.b".to_owned();
    events.push(wrong);
    let mut flight = lane(&sink).await;
    let outcomes = send(&mut flight, &events).await;
    for (at, outcome) in outcomes.iter().enumerate() {
        match at {
            20 => assert_eq!(rejection(outcome).0, RejectionKind::Invalid),
            _ if at % 2 == 0 => assert!(accepted(outcome), "{outcome:?}"),
            _ => assert!(put_off(outcome).contains(&format!("{name}-away"))),
        }
    }
    assert_eq!(server.messages(&format!("{name}-there")).len(), 10);
    sink.check().await.unwrap();
}

async fn a_topic_holds_up_no_other_however_it_fails() {
    let server = MotoServer::shared();
    let name = unique_name("sink");
    let arn = server.arn(&format!("{name}-{{topic}}"));
    let sink = open(&format!("sns://{arn}?{}", server.options())).unwrap();
    for place in ["there", "away"] {
        server.create_topic(&format!("{name}-{place}"));
    }
    expect_places_fail_alone(server, &sink, &format!("{name}-away")).await;
}

async fn a_message_is_measured_with_its_attributes() {
    let place = Place::new(MotoServer::shared(), "");
    let mut flight = lane(&place.sink_with("")).await;
    let mut wide = SuiteEvent::new(None, "x".repeat(200_000));
    wide.headers = vec![("a".to_owned(), Some("x".repeat(62_500)))];
    // In base64 it is a third larger.
    let bytes = SuiteEvent::new(None, vec![0xff; 200_000]);
    accept(&mut flight, &[SuiteEvent::new(None, "x".repeat(200_000))]).await;
    let outcomes = send(&mut flight, &[wide, bytes]).await;
    let (kind, words) = rejection(&outcomes[0]);
    assert_eq!(kind, RejectionKind::TooLarge, "{words}");
    let (kind, words) = rejection(&outcomes[1]);
    assert_eq!(kind, RejectionKind::TooLarge, "{words}");
    assert!(words.contains("in base64"), "{words}");
    assert_eq!(place.events().len(), 1);
}

/// moto counts no subscription, whatever there is.
async fn a_check_shows_the_topic_and_who_gets_its_events() {
    let place = Place::new(MotoServer::shared(), ".fifo");
    let report = place.sink_with("").check().await.unwrap();
    let names: Vec<_> = report.parts().iter().map(|part| &*part.name).collect();
    assert_eq!(names, ["sns", &*place.name]);
    let findings: Vec<_> = report.findings().iter().map(|f| f.severity).collect();
    assert_eq!(findings, [Severity::Risk]);
}
