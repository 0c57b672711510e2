-- $1 by, $2 dead, $3 why. A fenced relay fences nobody.
with myself as (
    select registration, name from posthaste.relays
    where registration = $1::uuid and fenced_at is null
    for share
), fenced as (
    update posthaste.relays r
    set fenced_at = clock_timestamp(), fenced_by = $1::uuid
    from myself
    where r.registration = $2::uuid and r.fenced_at is null
    returning r.registration, r.name
), noticed as (
    update posthaste.destinations d set shares_version = d.shares_version + 1
    from fenced f
    where d.id in (select m.destination_id from posthaste.members m where m.registration = f.registration)
), noted as (
    insert into posthaste.audit (relay, relay_name, action, detail)
    select m.registration, m.name, {action:fence}, format({detail:fence}, f.name, f.registration, $3::text)
    from fenced f, myself m
)
select name from myself
