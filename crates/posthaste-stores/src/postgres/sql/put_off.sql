-- $1 destination, $2 at most, $3 and $4 slots (see slots.sql), $5 and $6 the copy behind which it
-- begins: when it is due, in microseconds, and its id. Columns in the order of a read, then the
-- copy's own.
select p.seq, p.event_id, p.topic, p.key, p.type, p.content_type, p.payload, p.headers, p.occurred_at, p.inserted_at,
    p.correlation_id, p.causation_id, p.tenant_id, p.traceparent, p.tracestate, p.slot, p.id, p.attempts,
    p.settled_at is null as holds_key, p.kind in ('evacuated', 'not_routed') as never_tried,
    (extract(epoch from p.due_at) * 1000000)::bigint as due_at
from posthaste.parked p
where p.destination_id = $1::bigint and p.state = 'parked' and p.due_at > clock_timestamp()
    and p.kind in ('not_now', 'evacuated')
    and (p.due_at, p.id) > (
        coalesce('epoch'::timestamptz + $5::bigint * interval '1 microsecond', '-infinity'),
        coalesce($6::bigint, 0))
    and ($3::bytea is null or pg_catalog.get_bit($3::bytea, (p.slot >> $4::integer)::bigint) = 1)
order by p.due_at, p.id
limit $2::bigint
