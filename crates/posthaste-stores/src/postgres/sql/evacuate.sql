-- Followers of blocked keys get out of the way: a few of them are copied, and their markers say so.
-- In one round trip, as retention_truncate.sql. Rows at or below the least floor of all cursors are
-- copied: every group has passed them over, and no other row will ever come to lie there. One
-- reading of that floor bounds the copies and moves the markers. The rest of a marker's place
-- stays: from now on all at or below its floor counts as done with as well.
set local statement_timeout = '5s';
set local lock_timeout = '50ms';
set local synchronous_commit = local;
do $retention$
declare
    destinations bigint[];
    start bigint;
    stop bigint;
    due boolean;
    of_destination bigint[];
    of_key text[];
    copied bigint;
    reached bigint;
begin
    perform pg_catalog.set_config('posthaste.went', 'another', true);
{retention_lock}    begin
        perform pg_catalog.set_config('posthaste.went', 'kept', true);
        -- Not while somebody claims or removes the destination (shares_lock.sql).
        destinations := array(
            select l.destination_id
            from posthaste.destination_locks l join posthaste.destinations d on d.id = l.destination_id
            where d.state <> 'removed' and exists (select from posthaste.markers m where m.destination_id = d.id)
            for share of l skip locked);
        select min(m.floor_min), (select min(c.floor_min) from posthaste.cursors c) into start, stop
        from posthaste.markers m
        where m.destination_id = any(destinations) and exists (
            select from posthaste.parked p
            where p.destination_id = m.destination_id and p.key = m.key and {holds_key}
            offset 0);
        select greatest(start, o.seq - 1), {past_window} into start, due
        from posthaste.outbox o where o.seq > start order by o.seq limit 1;
        stop := least(stop, start + {numbers});
        if (due and start < stop) is not true then
            return;
        end if;
        -- A marker that is being changed has its turn another time. ...
        select array_agg(l.destination_id), array_agg(l.key) into of_destination, of_key
        from (
            select m.destination_id, m.key from posthaste.markers m
            where m.destination_id = any(destinations) and m.floor_min < stop and exists (
                select from posthaste.parked p
                where p.destination_id = m.destination_id and p.key = m.key and {holds_key}
                offset 0)
            order by m.floor_min, m.key limit {keys}
            for update skip locked
        ) l;
        -- ... Something that waits holds the key, and goes on waiting until we are done: no side read
        -- has begun.
        select array_agg(k.destination_id), array_agg(k.key) into of_destination, of_key
        from unnest(of_destination, of_key) k (destination_id, key)
        cross join lateral (
            select from posthaste.parked p
            where p.destination_id = k.destination_id and p.key = k.key and {holds_key}
            limit 1
            for update skip locked
        ) held;
        with moving as materialized (
            select m.*, {by_topic:d} as by_topic from unnest(of_destination, of_key) k (destination_id, key)
            join posthaste.markers m on m.destination_id = k.destination_id and m.key = k.key
            join posthaste.destinations d on d.id = m.destination_id
        ), stretch as materialized (
            -- Once, for however many keys.
            select o.seq, o.id, o.xid, o.key, {order_key} as order_key, {past_window} as due,
                coalesce(octet_length(o.payload), 0) + pg_catalog.pg_column_size(o.headers) as bytes
            from posthaste.outbox o
            where o.seq > start and o.seq <= stop
        ), past as materialized (
            select coalesce(min(s.seq) - 1, stop) as last from stretch s where not s.due
        ), found as materialized (
            select m.destination_id, m.key, s.seq, s.id, s.bytes
            from past
            cross join stretch s
            -- As two keys: no hash table serves a condition with a case.
            cross join lateral (values (s.key, false), (s.order_key, true)) k (key, by_topic)
            join moving m on m.key = k.key and m.by_topic = k.by_topic
            where s.seq <= past.last and s.seq > m.floor_min
                and not pg_catalog.pg_visible_in_snapshot(s.xid, m.low)
                and not coalesce(s.seq <= m.seq and pg_catalog.pg_visible_in_snapshot(s.xid, m.high), false)
        ), counted as (
            select f.seq, row_number() over w as number, sum(f.bytes) over w as bytes
            from found f
            window w as (order by f.seq, f.destination_id rows unbounded preceding)
        ), reach as materialized (
            -- One number goes whatever its size.
            select coalesce(min(c.seq) - 1, (select past.last from past)) as last
            from counted c
            where (c.number > {rows} or c.bytes > {bytes}) and c.seq > (select min(f.seq) from found f)
        ), copies as (
            insert into posthaste.parked
                (destination_id, state, attempts, kind, reason, evacuated, seq, event_id, slot, topic, key, type,
                 content_type, payload, headers, occurred_at, inserted_at, correlation_id, causation_id, tenant_id,
                 traceparent, tracestate)
            select f.destination_id, 'parked', 0, 'evacuated', 'waits for its turn behind an earlier event of its key', true,
                o.seq, o.id, coalesce(o.slot, 0::smallint) & 16383::smallint, o.topic, f.key, o.type, o.content_type,
                o.payload, o.headers, o.occurred_at, o.inserted_at, o.correlation_id, o.causation_id, o.tenant_id,
                o.traceparent, o.tracestate
            from found f
            cross join reach r
            cross join lateral (
                select * from posthaste.outbox o where o.seq = f.seq and o.id is not distinct from f.id limit 1
            ) o
            where f.seq <= r.last
            order by f.seq
            returning destination_id
        ), moved as (
            update posthaste.markers m
            set floor_min = r.last, floor = greatest(m.floor, r.last),
                seq = case when m.high is not null then greatest(m.seq, r.last) end
            from moving k, reach r
            where m.destination_id = k.destination_id and m.key = k.key and m.floor_min < r.last
            returning m.key
        ), noted as (
            insert into posthaste.audit (relay, action, destination, detail)
            select {relay}, {action:evacuate}, d.name,
                pg_catalog.format({detail:evacuate}, c.copies, (select r.last from reach r))
            from (select destination_id, count(*) as copies from copies group by destination_id) c
            join posthaste.destinations d on d.id = c.destination_id
        )
        select (select count(*) from copies), (select r.last from reach r where exists (select from moved))
        into copied, reached;
        if reached is not null then
            perform pg_catalog.set_config('posthaste.went', copied::text, true);
        end if;
    exception when lock_not_available then
        perform pg_catalog.set_config('posthaste.went', 'in use', true);
    end;
end
$retention$;
select pg_catalog.current_setting('posthaste.went') as went;
