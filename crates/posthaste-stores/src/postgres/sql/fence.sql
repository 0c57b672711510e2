-- $1 by, $2 dead, $3 why, $4 only if its lease is over. Who is fenced fences nobody.
with myself as (
    select registration from posthaste.relays
    where registration = $1::uuid and fenced_at is null
    for share
), fenced as (
    update posthaste.relays r
    set fenced_at = clock_timestamp(), fenced_by = $1::uuid
    from myself
    where r.registration = $2::uuid and r.fenced_at is null
        and (not $4::boolean or r.lease_until <= clock_timestamp())
    returning r.registration, r.name
)
insert into posthaste.audit (relay, action, detail)
select $1::uuid, 'fence', 'relay ' || name || ' (' || registration || '): ' || $3::text from fenced
