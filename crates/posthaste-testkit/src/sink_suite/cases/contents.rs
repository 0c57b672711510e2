//! Key, headers, payload and id arrive as they were sent (I9).

use super::super::{SuiteEvent, bench::Bench};

pub(super) async fn everything_arrives_unchanged(bench: Bench) {
    let mut events = payloads();
    events.extend(keys_and_headers());
    events.push(every_attribute());
    let mut flight = bench.lane().await;
    for event in &events {
        flight.submit(std::slice::from_ref(event)).await;
    }
    flight.settle().await;
    flight.log().expect_all_accepted();
    let accepted = flight.log().accepted();
    bench.expect_arrivals(&events, &accepted).await;
}

fn payloads() -> Vec<SuiteEvent> {
    let mut tombstone = SuiteEvent::new(Some("tombstone"), "");
    tombstone.payload = None;
    let mut events = vec![
        tombstone,
        SuiteEvent::new(Some("empty"), ""),
        SuiteEvent::new(Some("json"), r#"{"a":"b\n\u0000","c":[1,2.50,1e400]}"#),
        SuiteEvent::new(Some("lines"), "one\ntwo\r\nthree\n\n"),
        SuiteEvent::new(Some("control"), (0..=0x7f).collect::<Vec<u8>>()),
        SuiteEvent::new(Some("every byte"), (0..=0xff).collect::<Vec<u8>>()),
        SuiteEvent::new(Some("not utf-8"), [0xff, 0xfe, 0, b'a', 0xc3]),
        SuiteEvent::new(
            Some("unicode"),
            "žluťoučký 馬 🐎 \u{2028}\u{feff}\u{10ffff}",
        ),
        SuiteEvent::new(Some("nul"), [0]),
        SuiteEvent::new(Some("no text type"), "null"),
    ];
    // Each remainder of a group of three, for encodings of binary data.
    events.extend((1..=6).map(|len| SuiteEvent::new(Some("lengths"), vec![0x80; len])));
    events
}

fn keys_and_headers() -> Vec<SuiteEvent> {
    let mut events: Vec<SuiteEvent> = [
        None,
        Some(""),
        Some("with \"quotes\", \\ and\nlines"),
        Some("🐎"),
        Some(&*"k".repeat(1024)),
    ]
    .into_iter()
    .map(|key| SuiteEvent::new(key, "keys"))
    .collect();
    let long = "v".repeat(16 << 10);
    let headers: [&[(&str, Option<&str>)]; 5] = [
        &[
            ("b", Some("1")),
            ("a", Some("2")),
            ("b", Some("3")),
            ("b", Some("1")),
        ],
        &[("absent", None), ("empty", Some("")), ("absent", None)],
        &[("", Some("no name")), ("ünï", Some("🐎\n\"\\\t\u{1}"))],
        // Names of our own attributes: both must be seen.
        &[
            ("id", Some("x")),
            ("type", Some("y")),
            ("content-type", None),
        ],
        &[("long", Some(&long))],
    ];
    events.extend(headers.into_iter().map(|pairs| {
        let mut event = SuiteEvent::new(Some("headers"), "headers");
        event.headers = pairs
            .iter()
            .map(|(name, value)| ((*name).to_owned(), value.map(str::to_owned)))
            .collect();
        event
    }));
    events
}

fn every_attribute() -> SuiteEvent {
    let mut event = SuiteEvent::new(Some("attributes"), "attributes");
    event.topic = "t".repeat(249);
    event.kind = Some("order.placed".to_owned());
    event.content_type = Some("application/json; charset=\"utf-8\"".to_owned());
    event.occurred_at = 1;
    event.correlation_id = Some("c".repeat(255));
    event.causation_id = Some("čau".to_owned());
    event.tenant_id = Some(String::new());
    event.traceparent = Some("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01".to_owned());
    event.tracestate = Some("a=1,b=2".to_owned());
    event
}

pub(super) async fn ten_megabytes_arrive_unchanged(bench: Bench) {
    const LEN: usize = 10_000_000;
    let text = SuiteEvent::new(Some("text"), "0123456789".repeat(LEN / 10));
    let bytes: Vec<u8> = (0..LEN)
        .map(|n| u8::try_from(n % 251).unwrap() ^ 0x80)
        .collect();
    let binary = SuiteEvent::new(Some("binary"), bytes);
    let events = [text, binary, SuiteEvent::new(Some("text"), "small")];
    let mut flight = bench.lane().await;
    // Each larger than a batch may be, so each is submitted alone.
    for event in &events {
        flight.submit(std::slice::from_ref(event)).await;
    }
    flight.settle().await;
    flight.log().expect_all_accepted();
    let accepted = flight.log().accepted();
    bench.expect_arrivals(&events, &accepted).await;
}

pub(super) async fn routed_topic_and_key_arrive(bench: Bench) {
    let mut flight = bench.lane().await;
    let event = |payload: &str| SuiteEvent::new(Some("own key"), payload);
    let routed = [
        flight
            .submit_routed(&event("1"), "elsewhere", Some("another"))
            .await,
        flight.submit_routed(&event("2"), "elsewhere", None).await,
        flight
            .submit_routed(&SuiteEvent::new(None, "3"), "third", Some("given"))
            .await,
    ];
    flight.settle().await;
    flight.log().expect_all_accepted();
    let accepted = flight.log().accepted();
    bench.expect_arrivals(&routed, &accepted).await;
}
