-- $1 name, $2 start now (else at the oldest event), $3 registration. The snapshot is the statement's own, taken before
-- its transaction has a number. Floors of zero are always proven.
with created as (
    insert into posthaste.destinations (name) values ($1::text)
    on conflict (name) where state <> 'removed' do nothing
    returning id, name
), partitions as (
    select value::integer - 1 as last from posthaste.settings where name = 'partitions'
), owned as (
    -- Sinks compare epochs: a name that was removed goes on above them.
    insert into posthaste.ownership (destination_id, first_partition, last_partition, epoch)
    select c.id, 0, p.last, coalesce((
        select max(o.epoch) from posthaste.ownership o
        join posthaste.destinations d on d.id = o.destination_id
        where d.name = $1::text), 0)
    from created c, partitions p
), placed as (
    insert into posthaste.cursors (destination_id, first_partition, last_partition, low, floor, floor_min)
    select c.id, 0, p.last,
        case when $2::boolean then pg_catalog.pg_current_snapshot() else '1:1:'::pg_snapshot end, 0, 0
    from created c, partitions p
)
insert into posthaste.audit (relay, action, destination, detail)
select $3::uuid, 'destination created', name, case when $2::boolean then 'start now' else 'start oldest' end
from created
