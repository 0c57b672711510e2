-- $1 whether numbers were given a second time, $2 rows counted at the most. One row a cursor:
-- behind which `seq` all is sent, and how much that is. All behind `known` is sent: it may have
-- been written here, and its transactions' numbers mean nothing to a snapshot of the original.
with places as materialized (
    -- Each group with its partitions, unless it has them all.
    select c.id, c.destination_id, d.name, c.low, c.high, c.seq, c.floor_min, greatest(c.floor, c.seq) as known,
        16384 / d.partitions as slots,
        case when count(*) < d.partitions then (
            select array_agg(a.cursor_id = c.id order by a.partition) from posthaste.partitions a
            where a.destination_id = d.id) end as mask
    from posthaste.destinations d
    join posthaste.partitions p on p.destination_id = d.id
    join posthaste.cursors c on c.id = p.cursor_id
    group by d.id, c.id
)
select p.id, p.destination_id, p.name, f.start, l.looked, l.passed, l.unfinished
from places p
cross join lateral (
    select case when $1::boolean then 0 else coalesce((
        select o.seq - 1
        from posthaste.outbox o
        where o.seq > p.floor_min and o.seq <= p.known
            and (p.mask is null or p.mask[o.slot / p.slots + 1])
            and not {passed}
        order by o.seq
        limit 1), p.known) end as start
) f
cross join lateral (
    select count(*) as looked,
        count(*) filter (where r.ours and r.passed) as passed,
        count(*) filter (where r.ours and not (r.known and r.passed)) as unfinished
    from (
        select (p.mask is null or p.mask[o.slot / p.slots + 1]) as ours, o.seq <= p.known as known, {passed} as passed
        from posthaste.outbox o
        where o.seq > f.start
        order by o.seq
        limit $2::bigint
    ) r
) l
order by p.name, p.id
