-- $1 destination, $2 how many at the most, $3 registration, $4 behind this copy. A destination that
-- has passed nothing sends these itself, from the outbox: tried again, the copies that removed
-- destinations of its name left would be sent a second time.
with discarded as (
    update posthaste.parked
    set state = 'discarded', settled_at = clock_timestamp(), payload = null
    where state = 'skipped' and id in (
        select p.id
        from posthaste.destinations n
        join posthaste.destinations d on d.name = n.name and d.state = 'removed'
        join posthaste.parked p on p.destination_id = d.id and p.state = 'skipped'
        where n.id = $1::bigint and p.id > $4::bigint
            and exists (
                select from posthaste.outbox o where o.seq = p.seq and o.id is not distinct from p.event_id)
            and {passed_nothing}
        order by p.id
        limit $2::bigint)
    returning id
), noted as (
    insert into posthaste.audit (relay, action, destination, detail)
    select $3::uuid, {action:read_again},
        (select n.name from posthaste.destinations n where n.id = $1::bigint),
        format({detail:read_again}, count(*))
    from discarded
    having count(*) > 0
)
select count(*) as discarded, max(id) as last from discarded
