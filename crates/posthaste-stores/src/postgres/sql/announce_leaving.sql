-- $1 registration. No row: it is fenced.
with myself as (
    select registration from posthaste.relays where registration = $1::uuid and fenced_at is null
), told as (
    update posthaste.members m set leaving = true
    from myself where m.registration = myself.registration and not m.leaving
    returning m.destination_id
), ordered as (
    select d.id from posthaste.destinations d where d.id in (select destination_id from told) order by d.id for update
), noticed as (
    update posthaste.destinations d set shares_version = d.shares_version + 1
    from ordered o where d.id = o.id
)
select registration from myself
