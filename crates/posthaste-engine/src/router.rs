use std::borrow::Cow;

use crate::{
    DeliveryPolicy, DestinationRoutes, Record, Rejection, RejectionKind, RouteDecision,
    StoredEvent, Template, record::key_hash,
};

/// How one destination sees events: which it takes, and what they look like on the wire.
#[derive(Debug, Clone)]
pub struct Router {
    /// Which events it takes.
    pub routes: DestinationRoutes,
    /// The record's topic; none: the event's own.
    pub topic: Option<Template>,
    /// The record's key; none: the event's own.
    pub key: Option<Template>,
}

impl Router {
    /// An event that the store could not read is every destination's: what its routes would look at
    /// may be what is missing, and no attempt will read more of it.
    pub(crate) fn decide(&self, event: &StoredEvent) -> RouteDecision {
        let decision = self.routes.decide(event);
        match (event.fault(), decision) {
            (None, decision) => decision,
            (Some(_), RouteDecision::Take(policy)) => RouteDecision::Take(once(policy)),
            (Some(_), RouteDecision::OutOfTime) => RouteDecision::OutOfTime,
            (Some(_), _) => RouteDecision::Take(once(self.routes.policy())),
        }
    }

    /// The policy for this event when it is rejected. The routes may have changed since it was
    /// parked: then its destination goes on without it as it would with any other.
    pub(crate) fn policy(&self, event: &StoredEvent) -> DeliveryPolicy {
        match self.decide(event) {
            RouteDecision::Take(policy) => policy,
            _ => self.routes.policy(),
        }
    }

    /// A hash of [`topic_of`](Self::topic_of).
    pub(crate) fn topic_hash(&self, event: &StoredEvent) -> u64 {
        key_hash(&self.topic_of(event))
    }

    /// The record's topic; of an event that cannot be made into a record, its own.
    pub(crate) fn topic_of<'a>(&self, event: &'a StoredEvent) -> Cow<'a, str> {
        let rendered = self.topic.as_ref().map(|topic| topic.render(event));
        match rendered {
            Some(Ok(topic)) => topic.into(),
            Some(Err(_)) | None => event.topic().into(),
        }
    }

    pub(crate) fn record(&self, ticket: u64, event: StoredEvent) -> Result<Record, Rejection> {
        if let Some(fault) = event.fault() {
            return Err(Rejection {
                kind: RejectionKind::Undecodable,
                reason: fault.to_owned(),
            });
        }
        let render = |template: &Option<Template>| match template {
            None => Ok(None),
            Some(template) => template
                .render(&event)
                .map(Some)
                .map_err(|missing| Rejection {
                    kind: RejectionKind::Invalid,
                    reason: missing.to_string(),
                }),
        };
        let (topic, key) = (render(&self.topic)?, render(&self.key)?);
        let mut record = Record::new(ticket, event);
        if let Some(topic) = topic {
            record = record.with_topic(topic);
        }
        if let Some(key) = key {
            record = record.with_key(Some(key.into_bytes()));
        }
        Ok(record)
    }
}

fn once(policy: DeliveryPolicy) -> DeliveryPolicy {
    DeliveryPolicy {
        attempts: Some(1),
        ..policy
    }
}
