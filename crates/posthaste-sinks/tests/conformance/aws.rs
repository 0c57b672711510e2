//! The tests of all sinks on AWS share these.

use std::sync::Arc;

use posthaste_engine::Sink;
use posthaste_testkit::servers::moto::MotoServer;

use crate::{
    driving::{accept, accepted, plain, send},
    outcome::{put_off, short},
};

#[cfg(any(feature = "sns", feature = "sqs"))]
pub(crate) mod read;

/// The place of the topic `there` takes events over the same lane, however that of the topic `away`
/// fails, whose name stands in its requests.
pub(crate) async fn expect_places_fail_alone(
    server: &MotoServer,
    sink: &Arc<dyn Sink>,
    away: &str,
) {
    let mut events = plain(20);
    for (at, event) in events.iter_mut().enumerate() {
        event.topic = if at % 2 == 0 { "there" } else { "away" }.to_owned();
    }
    let mut flight = sink.open_lane(short(1)).await.unwrap();
    for (fault, words) in [
        ("status=503", "answered 503"),
        ("status=403", "answered 403 without a code"),
        ("act=cut", "the connection broke"),
        ("act=silent", "no whole answer within 900ms"),
    ] {
        server.fail(away, fault);
        for (at, outcome) in send(&mut flight, &events).await.iter().enumerate() {
            match at % 2 {
                0 => assert!(accepted(outcome), "{fault}: {outcome:?}"),
                _ => {
                    let told = put_off(outcome);
                    assert!(told.contains(words), "{fault}: {told}");
                    assert!(
                        told.contains(away.trim_start_matches('/')),
                        "{fault}: {told}"
                    );
                }
            }
        }
        server.heal(away);
    }
    accept(&mut flight, &events).await;
}
