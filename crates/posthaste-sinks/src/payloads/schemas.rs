//! A sink whose lanes give payloads the form that the schemas of a registry tell.

mod avro;
mod avro_value;
mod encoding;
mod fault;
mod json;
mod protobuf;
mod registry;
mod row;
mod schema;
mod server;
mod source;
mod subject;

use std::sync::Arc;

use async_trait::async_trait;
use posthaste_engine::{
    CheckReport, Fact, Finding, Lane, LaneSpec, Severity, Sink, SinkError, SinkInfo,
};

use super::{inside::Inside, lane::PayloadLane};
use encoding::Encoding;
use registry::Registry;
use server::Server;
use subject::Subjects;

/// The subject of an event, where nobody says otherwise: that of most clients.
const SUBJECT: &str = "{topic}-value";

/// The schemas of a destination.
pub(super) struct Schemas {
    registry: Arc<Registry>,
    subjects: Subjects,
}

impl Schemas {
    /// The schemas at an address; asks for nothing yet.
    ///
    /// # Errors
    /// [`SinkError::Misconfigured`] with the fix. It repeats nothing of the address: a login may
    /// stand there by mistake.
    pub(super) fn of(url: &str, subject: Option<&str>) -> Result<Self, SinkError> {
        let server = Server::of(url).map_err(|error| match error {
            SinkError::Misconfigured { reason, .. } => wrong("`schema_registry`", reason),
            other => other,
        })?;
        let subjects = Subjects::parse(subject.unwrap_or(SUBJECT)).ok_or_else(|| {
            let reason = "a subject is a text with `{topic}` and `{type}`, and no other braces; \
                          write schema_subject = \"{topic}-value\", for example";
            wrong("`schema_subject`", reason.to_owned())
        })?;
        Ok(Self {
            registry: Arc::new(Registry::new(server)),
            subjects,
        })
    }

    async fn check(&self, report: &mut CheckReport) {
        let checked = self.registry.server.check().await;
        let answers = if checked.is_ok() { "yes" } else { "no" };
        let facts = vec![
            Fact::seen("subjects", self.subjects.template()),
            Fact::seen("answers", answers),
        ];
        let name = self.registry.server.name();
        report.part("schema registry", &name, facts);
        if let Err(fault) = checked {
            let (fault, mend) = fault.told();
            report.finding(Finding {
                severity: Severity::Stops,
                place: format!("schema registry `{name}`"),
                fault: format!("{fault}, so events wait for their schemas"),
                mend,
            });
        }
    }
}

fn wrong(target: &str, reason: String) -> SinkError {
    SinkError::Misconfigured {
        target: target.to_owned(),
        reason,
    }
}

pub(super) struct SchemaSink {
    pub(super) inner: Arc<dyn Sink>,
    pub(super) schemas: Schemas,
}

#[async_trait]
impl Sink for SchemaSink {
    fn info(&self) -> SinkInfo {
        SinkInfo {
            // That of the sink is one of payloads as they are sent.
            event_bytes_max: None,
            ..self.inner.info()
        }
    }

    async fn check(&self) -> Result<CheckReport, SinkError> {
        let mut report = self.inner.check().await?;
        self.schemas.check(&mut report).await;
        Ok(report)
    }

    async fn open_lane(&self, spec: LaneSpec) -> Result<Box<dyn Lane>, SinkError> {
        let Schemas { registry, subjects } = &self.schemas;
        let limit = spec.publish_timeout;
        let encoding = Encoding::new(Arc::clone(registry), subjects.clone(), limit);
        let lane = self.inner.open_lane(spec).await?;
        let inside = Inside::new(lane, &self.inner.info());
        Ok(Box::new(PayloadLane::new(inside, encoding)))
    }
}

#[cfg(test)]
mod tests;
