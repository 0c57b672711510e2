select cast(seq as signed) as seq, lower(hex(id)) as id, topic, `key`, `type`, content_type,
       correlation_id, causation_id,
       tenant_id, traceparent, tracestate, payload,
       timestampdiff(microsecond, timestamp'1970-01-01 00:00:00', occurred_at) as occurred_at,
       convert(headers using utf8mb4) as headers
from posthaste_outbox
where seq > ?
order by seq
