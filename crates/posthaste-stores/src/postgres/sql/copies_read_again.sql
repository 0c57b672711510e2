-- $1 destination, $2 copies that are looked at, $3 registration, $4 behind this one; answers the
-- last of them, if there may be more. A destination that has passed nothing sends these events
-- itself, from the outbox: tried again, the copies that removed destinations of its name left would
-- be sent a second time. The copies are chosen first, and each is looked up (offset): the planner
-- knows too little of them for a join.
with looked_at as materialized (
    select p.id, p.seq, p.event_id
    from posthaste.parked p
    where p.id > $4::bigint and p.state = 'skipped'
        and p.destination_id = any(array(
            select d.id
            from posthaste.destinations n
            join posthaste.destinations d on d.name = n.name and d.state = 'removed'
            where n.id = $1::bigint and {passed_nothing}))
    order by p.id
    limit $2::bigint
), discarded as (
    update posthaste.parked p
    set state = 'discarded', settled_at = clock_timestamp(), payload = null
    where p.state = 'skipped' and p.id = any(array(
        select l.id
        from looked_at l
        where exists (
            select from posthaste.outbox o
            where o.seq = l.seq and o.id is not distinct from l.event_id offset 0)))
    returning p.id
), noted as (
    insert into posthaste.audit (relay, action, destination, detail)
    select $3::uuid, {action:read_again},
        (select n.name from posthaste.destinations n where n.id = $1::bigint),
        format({detail:read_again}, count(*))
    from discarded
    having count(*) > 0
)
select case when count(*) = $2::bigint then max(id) end as behind from looked_at
