-- $6 whether topics belong to keys of order, $7 to $18: one element an event. The copy is made here, from the row itself: nothing is sent
-- twice, nothing can differ.
with {guard}, input as (
    select *
    from unnest($7::bigint[], $8::uuid[], $9::integer[], $10::text[], $11::text[], $12::bigint[], $13::text[],
            $14::pg_snapshot[], $15::pg_snapshot[], $16::bigint[], $17::bigint[], $18::bigint[])
        with ordinality u (event_seq, event_id, attempts, kind, reason, retry_in, state,
            low, high, last, floor, floor_min, position)
), found as materialized (
    select g.destination_id, u.position, u.attempts, u.kind as failure, u.reason, u.state,
        clock_timestamp() + u.retry_in * interval '1 microsecond' as due_at,
        u.low, u.high, u.last, u.floor, u.floor_min,
        e.*
    from guard g
    cross join input u
    cross join lateral (
        select o.seq, o.id, (coalesce(o.slot, 0::smallint) & 16383::smallint) as slot, o.topic,
            case when $6::boolean then {order_key} else o.key end as key, o.type,
            o.content_type, o.payload, o.headers, o.occurred_at, o.inserted_at, o.correlation_id, o.causation_id,
            o.tenant_id, o.traceparent, o.tracestate
        from posthaste.outbox o
        -- The reader takes an id that is not there for this one.
        where o.seq = u.event_seq and coalesce(o.id, '00000000-0000-0000-0000-000000000000'::uuid) = u.event_id
        limit 1
    ) e
), complete as (
    -- All or none.
    select from found having count(*) = cardinality($7::bigint[])
), copied as (
    insert into posthaste.parked
        (destination_id, state, attempts, kind, reason, due_at, settled_at, seq, event_id, slot, topic, key, type,
         content_type, payload, headers, occurred_at, inserted_at, correlation_id, causation_id, tenant_id,
         traceparent, tracestate)
    select f.destination_id, f.state, f.attempts, f.failure, f.reason, f.due_at,
        case when f.state = 'skipped' then clock_timestamp() end, f.seq, f.id, f.slot, f.topic, f.key, f.type,
        f.content_type, f.payload, f.headers, f.occurred_at, f.inserted_at, f.correlation_id, f.causation_id,
        f.tenant_id, f.traceparent, f.tracestate
    from found f, complete
    order by f.position
    returning id, destination_id, event_id, seq, attempts, kind, reason, state
), tried as (
    insert into posthaste.attempts (parked_id, attempt, kind, reason)
    select id, attempts, kind, reason from copied where attempts > 0
), marked as (
    insert into posthaste.markers (destination_id, key, slot, low, high, seq, floor, floor_min)
    select distinct on (f.key) f.destination_id, f.key, f.slot, f.low, f.high, f.last, f.floor, f.floor_min
    from found f, complete
    -- A skipped event leaves no marker. It takes along one that stands: a side read would bring the
    -- event again.
    where f.key is not null and (f.state <> 'skipped' or exists (
        select from posthaste.markers m where m.destination_id = f.destination_id and m.key = f.key))
    order by f.key, f.position desc
    on conflict (destination_id, key) do update
        set low = excluded.low, high = excluded.high, seq = excluded.seq,
            floor = excluded.floor, floor_min = excluded.floor_min
), noted as (
    insert into posthaste.audit (relay, action, destination, detail)
    select $4::uuid,
        case c.state when 'parked' then {action:park} when 'skipped' then {action:skip} else {action:dead} end,
        d.name,
        format({detail:park}, coalesce(c.event_id::text, {without_id}), c.seq, c.kind)
    from copied c join posthaste.destinations d on d.id = c.destination_id
)
select exists (select from guard) as guarded, exists (select from complete) as complete
