-- $2 low, $3 high, $4 last, $5 until (within the segment of last + 1).
{header}
union all
(select
    seq, id, topic, key, type, content_type, payload, headers, occurred_at, inserted_at,
    correlation_id, causation_id, tenant_id, traceparent, tracestate, slot
from posthaste.outbox
where seq > $4::bigint and seq <= $5::bigint
    {slots}
    and not pg_catalog.pg_visible_in_snapshot(xid, $2::pg_snapshot)
    and pg_catalog.pg_visible_in_snapshot(xid, $3::pg_snapshot)
order by seq
limit {limit})
