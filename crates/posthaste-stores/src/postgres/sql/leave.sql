-- $1 destination's name (none: all that we serve), $2 registration, $3 its name, $4 action for the
-- audit, $5 whether the registration ends, $6 cursors that we own of it, locked, $7 microseconds
-- for which bytes of ours may still arrive.
with served as (
    delete from posthaste.members m
    using posthaste.destinations d
    where m.registration = $2::uuid and d.id = m.destination_id and ($1::text is null or d.name = $1::text)
    returning d.id, d.name
), released as (
    {release}
), ordered as (
    select d.id from posthaste.destinations d where d.id in (select id from served) order by d.id for update
), noticed as (
    update posthaste.destinations d set shares_version = d.shares_version + 1
    from ordered o where d.id = o.id
), noted as (
    insert into posthaste.audit (relay, relay_name, action, destination, detail)
    select $2::uuid, $3::text, $4::text, s.name, format({detail:release}, count(*))
    from served s
    join posthaste.cursors c on c.destination_id = s.id and c.id = any($6::bigint[])
    join posthaste.partitions p on p.cursor_id = c.id
    group by s.name
)
delete from posthaste.relays r where r.registration = $2::uuid and $5::boolean
