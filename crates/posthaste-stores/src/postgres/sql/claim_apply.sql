-- $1 destination, $2 registration, $3 its name, $4 epoch, $5 cursors that are ours now, $6 cursors
-- that we give up, $7 microseconds for which bytes of ours may still arrive, $8 partitions that we
-- want at the most, $9 the sink's address, $10 whether another look is worth its while, $11 actions
-- for the audit and $12 their details.
with owned as (
    update posthaste.cursors c
    set relay = $2::uuid, epoch = $4::bigint, left_by = null, left_name = null, left_dead = false
    where c.id = any($5::bigint[])
), released as (
    {release}
), known as (
    select m.partitions_max from posthaste.members m where m.destination_id = $1::bigint and m.registration = $2::uuid
), enlisted as (
    insert into posthaste.members (destination_id, registration, partitions_max)
    values ($1::bigint, $2::uuid, $8::integer)
    on conflict (destination_id, registration) do update set partitions_max = excluded.partitions_max
), noted as (
    insert into posthaste.audit (relay, relay_name, action, destination, detail)
    select $2::uuid, $3::text, n.action, d.name, n.detail
    from posthaste.destinations d, unnest($11::text[], $12::text[]) n (action, detail)
    where d.id = $1::bigint
    union all
    select $2::uuid, $3::text, {action:address_changed}, d.name, format({detail:address_changed}, d.address, $9::text)
    from posthaste.destinations d
    where d.id = $1::bigint and d.address not in ('', $9::text)
)
update posthaste.destinations d
set epoch = $4::bigint, address = $9::text,
    shares_version = d.shares_version
        + ($10::boolean or not exists (select from known k where k.partitions_max = $8::integer))::integer
where d.id = $1::bigint
