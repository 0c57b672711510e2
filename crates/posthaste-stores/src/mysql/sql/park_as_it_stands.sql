update posthaste_parked as p join posthaste_outbox as o on o.seq = p.seq
set p.event_id = o.id, p.topic = o.topic, p.`type` = o.`type`, p.content_type = o.content_type,
    p.payload = o.payload, p.headers = convert(o.headers using utf8mb4),
    p.occurred_at = timestampdiff(microsecond, '1970-01-01', o.occurred_at),
    p.correlation_id = o.correlation_id, p.causation_id = o.causation_id,
    p.tenant_id = o.tenant_id, p.traceparent = o.traceparent, p.tracestate = o.tracestate,
    p.inserted_at = timestampdiff(microsecond, '1970-01-01', o.inserted_at)
where p.id = :id
