-- $6 former owners. Our own fence is taken by then as well.
with {guard}, taken as (
    update posthaste.cursors c
    set former = array(select f from unnest(c.former) f where f <> all($6::uuid[]) and f <> $4::uuid)
    from guard g
    where c.destination_id = g.destination_id and c.relay = $4::uuid and c.epoch = $3::bigint and c.former <> '{}'
)
select exists (select from guard) as guarded
