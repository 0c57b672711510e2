//! Settings that do not fit the sink, or each other.

use async_trait::async_trait;
use posthaste_engine::{CheckReport, Deduplication, Lane, LaneSpec, SinkInfo};

use super::*;

/// A sink that says this of itself.
struct Saying(SinkInfo);

#[async_trait]
impl Sink for Saying {
    fn info(&self) -> SinkInfo {
        self.0.clone()
    }

    async fn check(&self) -> Result<CheckReport, SinkError> {
        Ok(CheckReport::default())
    }

    async fn open_lane(&self, _: LaneSpec) -> Result<Box<dyn Lane>, SinkError> {
        Err(misconfigured(self, "it has no lanes".to_owned()))
    }
}

fn info() -> SinkInfo {
    crate::open("null:").unwrap().info()
}

fn refusal(info: SinkInfo, settings: &PayloadSettings) -> String {
    match around(Arc::new(Saying(info)), settings) {
        Err(error @ SinkError::Misconfigured { .. }) => error.to_string(),
        Err(other) => panic!("{other:?}"),
        Ok(_) => panic!("they were taken"),
    }
}

fn stored(bytes: Option<usize>) -> PayloadSettings {
    PayloadSettings {
        claim_check: Some("file:///srv/objects".to_owned()),
        claim_check_bytes: bytes,
        ..PayloadSettings::default()
    }
}

#[test]
fn progress_in_the_broker_and_stored_payloads_exclude_each_other() {
    let keeping = SinkInfo {
        deduplication: Some(Deduplication {
            window: DedupWindow::UntilStored,
            ids_max: None,
        }),
        ..info()
    };
    let said = refusal(keeping.clone(), &stored(None));
    assert!(said.contains("leave out `claim_check`"), "{said}");
    let compressed = PayloadSettings {
        compression: Some(Compression::Zstd),
        ..PayloadSettings::default()
    };
    assert!(around(Arc::new(Saying(keeping)), &compressed).is_ok());
}

#[test]
fn no_payload_is_too_large_for_the_sink_and_too_small_for_the_storage() {
    let limited = || SinkInfo {
        event_bytes_max: Some(1_000),
        ..info()
    };
    let said = refusal(limited(), &stored(Some(1_001)));
    assert!(said.contains("claim_check_bytes = \"1000B\""), "{said}");
    for bytes in [None, Some(1_000)] {
        let sink = around(Arc::new(Saying(limited())), &stored(bytes)).unwrap();
        assert_eq!(sink.info().event_bytes_max, None);
        assert!(sink.info().parts.is_some());
    }
}
