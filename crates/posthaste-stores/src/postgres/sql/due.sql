-- $1 destination, $2 at most, $3 and $4 slots (see slots.sql). Columns in the order of a read, then
-- the copy's own. The header row comes first and has no topic: the wait until the next falls due as
-- seq, the released keys as headers.
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
                where p.destination_id = m.destination_id and p.key = m.key and {holds_key}
                offset 0)
        order by m.since, m.key
        limit $2::bigint) as headers,
    null::timestamptz as occurred_at, null::timestamptz as inserted_at,
    null::text as correlation_id, null::text as causation_id, null::text as tenant_id,
    null::text as traceparent, null::text as tracestate, null::smallint as slot,
    null::bigint as id, null::integer as attempts, null::boolean as holds_key, null::boolean as never_tried
union all
(select w.seq, w.event_id, w.topic, w.key, w.type, w.content_type, w.payload, w.headers, w.occurred_at, w.inserted_at,
    w.correlation_id, w.causation_id, w.tenant_id, w.traceparent, w.tracestate, w.slot, w.id, w.attempts,
    w.settled_at is null as holds_key, w.kind in ('evacuated', 'not_routed') as never_tried
from (
    (select p.*
    from posthaste.parked p
    where p.destination_id = $1::bigint and p.state = 'parked' and p.due_at <= clock_timestamp()
        and ($3::bytea is null or pg_catalog.get_bit($3::bytea, (p.slot >> $4::integer)::bigint) = 1)
    order by p.due_at, p.id
    limit $2::bigint)
    union all
    -- Copies that retention made have their turn one by one, behind all that waits of their key.
    (select f.*
    from posthaste.markers m
    cross join lateral (
        select p.*
        from posthaste.parked p
        where p.destination_id = m.destination_id and p.key = m.key and {holds_key}
        order by p.id
        limit 1
    ) f
    where m.destination_id = $1::bigint and f.state = 'parked' and f.due_at is null
        and ($3::bytea is null or pg_catalog.get_bit($3::bytea, (m.slot >> $4::integer)::bigint) = 1)
    order by f.id
    limit $2::bigint)
) w
order by coalesce(w.due_at, w.parked_at), w.id
limit $2::bigint)
