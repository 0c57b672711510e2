-- $1 low, $2 floor, $3 and $4 the transactions in progress at low and their floors.
{header}
union all
(select
    seq, id, topic, key, type, content_type, payload, headers, occurred_at, inserted_at,
    correlation_id, causation_id, tenant_id, traceparent, tracestate, slot
from posthaste.outbox
-- Transactions that this very snapshot sees finished set the start back to their own floors.
-- In a select of its own: else the function copies and sorts the snapshot anew for each of them.
where seq > (
        select least($2::bigint, min(u.floor))
        from unnest($3::xid8[], $4::bigint[]) u (xid, floor)
        where pg_catalog.pg_visible_in_snapshot(u.xid, (select pg_catalog.pg_current_snapshot())))
    and not pg_catalog.pg_visible_in_snapshot(xid, $1::pg_snapshot)
order by seq
limit {limit})
