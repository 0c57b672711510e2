-- $1 destination, $2 number of partitions, $3 name of the relay, $4 its registration.
with gone as (
    delete from posthaste.partitions p where p.destination_id = $1::bigint and p.partition >= $2::integer
), noted as (
    insert into posthaste.audit (relay, relay_name, action, destination, detail)
    select $4::uuid, $3::text, {action:recut}, d.name, format({detail:recut}, d.partitions, $2::integer)
    from posthaste.destinations d where d.id = $1::bigint
)
update posthaste.destinations d set partitions = $2::integer, shares_version = d.shares_version + 1
where d.id = $1::bigint
