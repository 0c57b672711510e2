-- $1 registration, $2 at most so many.
with due as (
    select id from ({parked_due}) d limit $2::bigint
), gone as (
    -- An operator may have it tried again meanwhile: then it stays.
    delete from posthaste.parked p
    where p.id = any(array(select id from due)) and p.state <> 'parked'
    returning p.id, p.state, p.destination_id, p.event_id, p.seq
), tried as (
    delete from posthaste.attempts a
    where a.parked_id = any(array(select id from gone))
    returning a.parked_id
), noted as (
    insert into posthaste.audit (relay, action, destination, detail)
    select $1::uuid, {action:forget}, d.name,
        format({detail:forget}, coalesce(g.event_id::text, {without_id}), g.seq)
    from gone g join posthaste.destinations d on d.id = g.destination_id
    where g.state = 'dead'
)
select (select count(*) from gone) as parked, (select count(*) from tried) as attempts
