-- $1 destinations, $2 start, $3 rows looked at, $4 rows counted, at the most.
with candidates as materialized (
    select o.seq, o.xid, o.key, {order_key} as order_key, o.slot, o.inserted_at
    from posthaste.outbox o
    where o.seq > $2::bigint
    order by o.seq
    limit $3::bigint
), places as materialized (
    -- Each group with its partitions, unless it has them all.
    select c.low, c.high, c.seq, c.floor_min, 16384 / d.partitions as slots,
        case when count(*) < d.partitions then (
            select array_agg(a.cursor_id = c.id order by a.partition) from posthaste.partitions a
            where a.destination_id = d.id) end as mask
    from posthaste.destinations d
    join posthaste.partitions p on p.destination_id = d.id
    join posthaste.cursors c on c.id = p.cursor_id
    where d.id = any($1::bigint[])
    group by d.id, c.id
), unfinished as (
    -- An infinite time, which a plain INSERT may set, cannot be subtracted.
    select least(greatest(o.inserted_at, timestamptz 'epoch'), clock_timestamp()) as inserted_at
    from candidates o
    where exists (
            select from places c
            where (c.mask is null or c.mask[o.slot / c.slots + 1])
                -- No snapshot of this era tells which rows of another one are passed.
                and o.seq > c.floor_min
                and not (
                    pg_catalog.pg_visible_in_snapshot(o.xid, c.low)
                    or coalesce(o.seq <= c.seq and pg_catalog.pg_visible_in_snapshot(o.xid, c.high), false)))
        or (o.key is not null and exists (
            select from posthaste.destinations d
            -- Behind `offset 0` a marker is looked up by its key. A join may go through all of them
            -- for each event.
            cross join lateral (
                select from posthaste.markers m
                where m.destination_id = d.id
                    and m.key = case when {by_topic:d} then o.order_key else o.key end
                    -- Up to here retention has copied them.
                    and o.seq > m.floor_min
                    and not (
                        pg_catalog.pg_visible_in_snapshot(o.xid, m.low)
                        or coalesce(o.seq <= m.seq and pg_catalog.pg_visible_in_snapshot(o.xid, m.high), false))
                offset 0) held
            where d.id = any($1::bigint[])))
    order by o.seq
    limit $4::bigint
)
select
    (select count(*) from candidates) as candidates,
    count(*) as pending,
    (extract(epoch from clock_timestamp() - min(u.inserted_at)) * 1000000)::bigint as oldest_age
from unfinished u
