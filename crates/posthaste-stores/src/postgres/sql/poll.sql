-- $2 low, $3 floor, $4 and $5 the transactions in progress at low and their floors.
{header}
union all
(select
    seq, id, topic, key, type, content_type, payload, headers, occurred_at, inserted_at,
    correlation_id, causation_id, tenant_id, traceparent, tracestate, slot
from posthaste.outbox
-- Transactions that this very snapshot sees finished set the start back to their own floors.
-- In a select of its own: else the function copies and sorts the snapshot anew for each of them.
where seq > (
        select least($3::bigint, min(u.floor))
        from unnest($4::xid8[], $5::bigint[]) u (xid, floor)
        where pg_catalog.pg_visible_in_snapshot(u.xid, (select pg_catalog.pg_current_snapshot())))
    {slots}
    and not pg_catalog.pg_visible_in_snapshot(xid, $2::pg_snapshot)
order by seq
limit {limit})
