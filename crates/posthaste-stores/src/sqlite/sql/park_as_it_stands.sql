-- Columns that could not be read are not lost: all but the key, by which the event was found.
update posthaste_parked
set event_id = o.id, topic = o.topic, type = o.type, content_type = o.content_type, payload = o.payload,
    headers = o.headers, occurred_at = o.occurred_at, correlation_id = o.correlation_id, causation_id = o.causation_id,
    tenant_id = o.tenant_id, traceparent = o.traceparent, tracestate = o.tracestate, inserted_at = o.inserted_at
from posthaste_outbox as o
where posthaste_parked.id = :id and o.seq = posthaste_parked.seq
