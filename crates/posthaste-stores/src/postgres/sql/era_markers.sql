-- $1 whether numbers were given a second time. One row a marker, as era_cursors.sql: rows of its
-- key alone. `waiting` are those that the cursor is past and the marker is not: the others that are
-- pending, the cursor counts.
with places as materialized (
    select m.destination_id, m.key, m.low, m.high, m.seq, m.floor_min, greatest(m.floor, m.seq) as known, a.cursor_id,
        {by_topic:d} as by_topic
    from posthaste.markers m
    join posthaste.destinations d on d.id = m.destination_id
    join posthaste.partitions a on a.destination_id = d.id and a.partition = m.slot / (16384 / d.partitions)
), stretch as materialized (
    -- Once, for however many keys.
    select o.seq, o.xid, k.key, k.by_topic
    from posthaste.outbox o
    cross join lateral (values (o.key, false), ({order_key}, true)) k (key, by_topic)
    where o.seq > (select case when $1::boolean then 0 else min(p.floor_min) end from places p)
        and k.key in (select p.key from places p)
), judged as materialized (
    select m.destination_id, m.key, o.seq, o.seq <= m.known as known, j.passed,
        o.seq <= greatest(c.floor, c.seq) and r.passed as read
    from places m
    join stretch o on o.key = m.key and o.by_topic = m.by_topic
    join posthaste.cursors c on c.id = m.cursor_id
    cross join lateral (select {passed} as passed from (select m.low, m.high, m.seq, m.floor_min) p) j
    cross join lateral (select {passed} as passed from (select c.low, c.high, c.seq, c.floor_min) p) r
), starts as materialized (
    select p.destination_id, p.key,
        case when $1::boolean then 0
            else coalesce(min(j.seq) filter (where j.known and not j.passed) - 1, p.known) end as start
    from places p
    left join judged j on j.destination_id = p.destination_id and j.key = p.key
    group by p.destination_id, p.key, p.known
)
select s.destination_id, s.key, s.start,
    count(*) filter (where j.passed) as passed,
    count(*) filter (where j.read and not (j.known and j.passed)) as waiting
from starts s
left join judged j on j.destination_id = s.destination_id and j.key = s.key and j.seq > s.start
group by s.destination_id, s.key, s.start
