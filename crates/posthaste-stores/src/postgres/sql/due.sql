-- $1 destination, $2 at most, $3 and $4 slots (see slots.sql). Columns in the order of a read, then the copy's own. The header row comes first and has no
-- topic: the wait until the next falls due as seq, the released keys as headers.
select
    (select (extract(epoch from p.due_at - clock_timestamp()) * 1000000)::bigint
        from posthaste.parked p
        where p.destination_id = $1::bigint and p.state = 'parked' and p.due_at > clock_timestamp()
            and ($3::bytea is null or pg_catalog.get_bit($3::bytea, (p.slot >> $4::integer)::bigint) = 1)
        order by p.due_at, p.id
        limit 1) as seq,
    null::uuid as event_id, null::text as topic, null::text as key, null::text as type, null::text as content_type,
    null::bytea as payload,
    array(
        select m.key
        from posthaste.markers m
        where m.destination_id = $1::bigint
            and ($3::bytea is null or pg_catalog.get_bit($3::bytea, (m.slot >> $4::integer)::bigint) = 1)
            and not exists (
                select from posthaste.parked p
                where p.destination_id = m.destination_id and p.key = m.key and p.state in ('parked', 'dead'))
        order by m.since, m.key
        limit $2::bigint) as headers,
    null::timestamptz as occurred_at, null::timestamptz as inserted_at,
    null::text as correlation_id, null::text as causation_id, null::text as tenant_id,
    null::text as traceparent, null::text as tracestate, null::smallint as slot,
    null::bigint as id, null::integer as attempts
union all
(select p.seq, p.event_id, p.topic, p.key, p.type, p.content_type, p.payload, p.headers, p.occurred_at, p.inserted_at,
    p.correlation_id, p.causation_id, p.tenant_id, p.traceparent, p.tracestate, p.slot, p.id, p.attempts
from posthaste.parked p
where p.destination_id = $1::bigint and p.state = 'parked' and p.due_at <= clock_timestamp()
    and ($3::bytea is null or pg_catalog.get_bit($3::bytea, (p.slot >> $4::integer)::bigint) = 1)
order by p.due_at, p.id
limit $2::bigint)
