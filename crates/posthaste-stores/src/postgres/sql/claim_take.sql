-- $1 destination, $2 first partition, $3 registration, $4 the owner that was seen, $5 its epoch, $6 settle in
-- microseconds when that owner is dead, else zero, $7 the sink's address. Nothing happens when somebody was quicker, or
-- we are fenced.
with myself as (
    select registration from posthaste.relays
    where registration = $3::uuid and fenced_at is null
    for share
), taken as (
    update posthaste.ownership o
    set relay = $3::uuid, epoch = o.epoch + 1,
        not_before = case when $6::bigint > 0
            then greatest(o.not_before, clock_timestamp() + $6::bigint * interval '1 microsecond')
            else o.not_before end
    from myself
    where o.destination_id = $1::bigint and o.first_partition = $2::integer
        and o.relay is not distinct from $4::uuid and o.epoch = $5::bigint
    returning o.destination_id, o.epoch, o.not_before
), noted as (
    insert into posthaste.audit (relay, action, destination, detail)
    select $3::uuid, 'take-over', d.name, 'epoch ' || t.epoch || ' from relay ' || $4::uuid
    from taken t join posthaste.destinations d on d.id = t.destination_id
    where $4::uuid <> $3::uuid
), readdressed as (
    update posthaste.destinations d set address = $7::text
    from taken t
    where d.id = t.destination_id and d.address <> $7::text
    returning d.name
), renamed as (
    insert into posthaste.audit (relay, action, destination, detail)
    -- The statement's snapshot still has the former address.
    select $3::uuid, 'address changed', d.name, d.address || ' -> ' || $7::text
    from readdressed r join posthaste.destinations d on d.name = r.name and d.state <> 'removed'
    where d.address <> ''
)
select t.epoch,
    (extract(epoch from least(greatest(t.not_before - clock_timestamp(), interval '0'), interval '1 day'))
        * 1000000)::bigint as settle
from taken t
