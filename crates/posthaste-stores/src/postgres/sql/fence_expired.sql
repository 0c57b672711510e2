-- $1 by, $2 destination. Fences the owners whose lease is over. First the fence, then the epoch:
-- else a renewal slips between, and two relays hand over. No row: we are fenced.
with myself as (
    select registration, name from posthaste.relays
    where registration = $1::uuid and fenced_at is null
    for share
), expired as (
    select r.registration
    from posthaste.relays r
    where r.fenced_at is null and r.lease_until <= clock_timestamp() and r.registration <> $1::uuid
        and exists (select from myself)
        and r.registration in (
            select c.relay from posthaste.cursors c where c.destination_id = $2::bigint and c.relay is not null)
    order by r.registration
    for update
), fenced as (
    update posthaste.relays r set fenced_at = clock_timestamp(), fenced_by = $1::uuid
    from expired e where r.registration = e.registration
    returning r.registration, r.name
), noted as (
    insert into posthaste.audit (relay, relay_name, action, detail)
    select m.registration, m.name, {action:fence}, format({detail:fence}, f.name, f.registration, {lease_over})
    from fenced f, myself m
)
select name from myself
