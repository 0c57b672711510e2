select seq, id::text, topic, key, type, content_type, correlation_id, causation_id, tenant_id, traceparent, tracestate,
       payload, headers, (extract(epoch from occurred_at) * 1000000)::bigint as occurred_at
from posthaste.outbox
where xid = pg_current_xact_id_if_assigned() and seq > $1::bigint
order by seq
