select seq, id, occurred_at, inserted_at, headers, payload,
       topic, key, type, content_type, correlation_id, causation_id, tenant_id, traceparent, tracestate
from posthaste_outbox
where seq > :after and seq <= :until
order by seq
