-- $1 name, $2 how many at the most, $3 registration. A destination that begins at the oldest event
-- sends these itself, from the outbox: tried again, the copies that removed destinations of its name
-- left would be sent a second time. One that was created meanwhile may have begun elsewhere.
with discarded as (
    update posthaste.parked
    set state = 'discarded', settled_at = clock_timestamp(), payload = null
    where id in (
        select p.id
        from posthaste.destinations d
        join posthaste.parked p on p.destination_id = d.id and p.state = 'skipped'
        where d.name = $1::text and d.state = 'removed'
            and exists (
                select from posthaste.outbox o where o.seq = p.seq and o.id is not distinct from p.event_id)
            and not exists (
                select from posthaste.destinations n where n.name = $1::text and n.state <> 'removed')
        limit $2::bigint)
    returning id
), noted as (
    insert into posthaste.audit (relay, action, destination, detail)
    select $3::uuid, {action:read_again}, $1::text, format({detail:read_again}, count(*))
    from discarded
    having count(*) > 0
)
select count(*) as discarded from discarded
