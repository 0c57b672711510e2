select seq, id::pg_catalog.text, topic, key, type, content_type, correlation_id, causation_id, tenant_id, traceparent, tracestate,
       payload, headers,
       (extract(epoch from occurred_at) operator(pg_catalog.*) 1000000)::bigint as occurred_at
from posthaste.outbox
where xid operator(pg_catalog.=) pg_catalog.pg_current_xact_id_if_assigned() and seq operator(pg_catalog.>) $1::bigint
order by seq
