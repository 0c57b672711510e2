-- $1 whether numbers were given a second time. One row a marker, as era_cursors.sql: rows of its key alone.
with places as materialized (
    select m.destination_id, m.key, m.low, m.high, m.seq, m.floor_min, greatest(m.floor, m.seq) as known
    from posthaste.markers m
), stretch as materialized (
    -- Once, for however many keys.
    select o.seq, o.xid, o.key
    from posthaste.outbox o
    where o.seq > (select case when $1::boolean then 0 else min(p.floor_min) end from places p)
        and o.key in (select p.key from places p)
), judged as materialized (
    select p.destination_id, p.key, o.seq, o.seq <= p.known as known, {passed} as passed
    from places p
    join stretch o on o.key = p.key
), starts as materialized (
    select p.destination_id, p.key,
        case when $1::boolean then 0
            else coalesce(min(j.seq) filter (where j.known and not j.passed) - 1, p.known) end as start
    from places p
    left join judged j on j.destination_id = p.destination_id and j.key = p.key
    group by p.destination_id, p.key, p.known
)
select s.destination_id, s.key, s.start, count(j.seq) as passed
from starts s
left join judged j on j.destination_id = s.destination_id and j.key = s.key and j.passed and j.seq > s.start
group by s.destination_id, s.key, s.start
