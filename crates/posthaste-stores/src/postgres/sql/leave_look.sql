-- $1 registration, $2 destination's name, none: all that it serves. No row: it is fenced. Its row
-- is locked, so that nobody fences it while it gives up what it owns.
with myself as (
    select registration, name from posthaste.relays where registration = $1::uuid and fenced_at is null
    for update
), owned as (
    select c.id
    from myself
    join posthaste.cursors c on c.relay = myself.registration
    join posthaste.destinations d on d.id = c.destination_id and ($2::text is null or d.name = $2::text)
    order by c.id
    for update of c
)
select name, array(select id from owned) as owned from myself
