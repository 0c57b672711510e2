select seq, id, topic, key, type, content_type, correlation_id, causation_id, tenant_id, traceparent, tracestate,
       cast(payload as blob) as payload, occurred_at
from posthaste_outbox
where seq > ?
order by seq
