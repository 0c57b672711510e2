//! A sink in front of the one under test that gives each fixture topics of its own: the suite's
//! topics have the same names in every case.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use posthaste_engine::{
    CheckReport, Lane, LaneSpec, Record, Sink, SinkError, SinkInfo, StoredProgress, Verdict,
};

/// The broker's names of the suite's topics, by the suite's.
pub(super) struct Names {
    prefix: String,
    known: Mutex<BTreeMap<String, String>>,
}

impl Names {
    pub(super) fn new() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self {
            prefix: format!("case-{:04}-", NEXT.fetch_add(1, Ordering::Relaxed)),
            known: Mutex::default(),
        }
    }

    /// The broker's name; `make` makes the topic when it is new.
    pub(super) fn add(&self, topic: &str, make: &dyn Fn(&str)) -> String {
        let mut known = self.known.lock().unwrap();
        if let Some(name) = known.get(topic) {
            return name.clone();
        }
        // As long as a name may be, when the suite's is.
        let mut name = format!("{}{topic}", self.prefix);
        name.truncate(249);
        make(&name);
        known.insert(topic.to_owned(), name.clone());
        name
    }

    pub(super) fn all(&self) -> Vec<String> {
        self.known.lock().unwrap().values().cloned().collect()
    }

    /// A name for something else of the fixture's.
    pub(super) fn own(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }

    pub(super) fn is_ours(&self, name: &str) -> bool {
        name.starts_with(&self.prefix)
    }

    pub(super) fn original(&self, name: &str) -> String {
        let known = self.known.lock().unwrap();
        let found = known.iter().find(|(_, known)| *known == name);
        found.expect("a topic of ours").0.clone()
    }
}

type Make = Arc<dyn Fn(&str) + Send + Sync>;

pub(super) struct Renamed {
    sink: Arc<dyn Sink>,
    names: Arc<Names>,
    make: Make,
}

impl Renamed {
    pub(super) fn new(sink: Arc<dyn Sink>, names: Arc<Names>, make: Make) -> Self {
        Self { sink, names, make }
    }
}

#[async_trait]
impl Sink for Renamed {
    fn info(&self) -> SinkInfo {
        self.sink.info()
    }

    async fn check(&self) -> Result<CheckReport, SinkError> {
        self.sink.check().await
    }

    async fn open_lane(&self, spec: LaneSpec) -> Result<Box<dyn Lane>, SinkError> {
        Ok(Box::new(RenamedLane {
            lane: self.sink.open_lane(spec).await?,
            names: Arc::clone(&self.names),
            make: Arc::clone(&self.make),
        }))
    }
}

struct RenamedLane {
    lane: Box<dyn Lane>,
    names: Arc<Names>,
    make: Make,
}

#[async_trait]
impl Lane for RenamedLane {
    async fn submit(&mut self, batch: Vec<Record>) {
        let renamed = batch
            .into_iter()
            .map(|record| {
                let name = self.names.add(record.topic(), &*self.make);
                record.with_topic(name)
            })
            .collect();
        self.lane.submit(renamed).await;
    }

    async fn outcomes(&mut self) -> Vec<Verdict> {
        self.lane.outcomes().await
    }

    async fn take_over(&mut self) -> Result<Option<String>, SinkError> {
        self.lane.take_over().await
    }

    fn progressed(&mut self, progress: StoredProgress) {
        self.lane.progressed(progress);
    }

    async fn abort(self: Box<Self>) {
        self.lane.abort().await;
    }

    async fn close(self: Box<Self>, limit: Duration) -> Vec<Verdict> {
        self.lane.close(limit).await
    }
}
