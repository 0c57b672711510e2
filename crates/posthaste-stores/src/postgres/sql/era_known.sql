-- The greatest `seq` that a place knows of, and whether rows show that a `seq` was given twice: a
-- sequence that came along with less than it had given has perhaps passed it again.
with places as materialized (
    select max(c.updated_at) as newest, max(greatest(c.floor, c.seq)) as floor from posthaste.cursors c
)
select
    greatest(
        0, p.floor,
        (select max(greatest(m.floor, m.seq)) from posthaste.markers m),
        (select max(k.seq) from posthaste.parked k)) as known,
    -- A place knows of no `seq` that was given after it was stored.
    exists (
        select from posthaste.outbox o
        where o.seq <= p.floor and o.inserted_at > p.newest and o.inserted_at < 'infinity')
    or exists (select o.seq from posthaste.outbox o group by o.seq having count(*) > 1) as twice
from places p
