-- $1 destination, $2 id, $3 key: none means any; $4 copies that are looked at, $5 behind this one;
-- answers the last of them, if there may be more. Skipped copies that a removed destination left go
-- to the one that has its name now, unless that one has a copy of the event, or reads the event
-- itself (copies_read_again.sql). Of several copies of an event the newest one goes.
with named as materialized (
    select d.id, d.name
    from posthaste.destinations d
    where d.state <> 'removed' and ($1::text is null or d.name = $1::text)
    for share
), looked_at as materialized (
    select p.id, p.seq, p.event_id, named.id as destination_id, named.name
    from named
    join posthaste.destinations d on d.name = named.name and d.state = 'removed'
    join posthaste.parked p on p.destination_id = d.id and p.state = 'skipped'
    where p.id > $5::bigint
        and ($2::uuid is null or p.event_id = $2::uuid)
        and ($3::text is null or {plain_key} = $3::text)
    order by p.id
    limit $4::bigint
), left_over as materialized (
    select l.id
    from looked_at l
    join posthaste.destinations n on n.id = l.destination_id
    where not exists (
            -- By destination and seq, which its index has (offset keeps the planner to that).
            select from posthaste.destinations e
            cross join lateral (
                select q.id from posthaste.parked q where q.destination_id = e.id and q.seq = l.seq offset 0) q
            where e.name = l.name and (e.id = l.destination_id or q.id > l.id))
        and not (
            exists (select from posthaste.outbox o where o.seq = l.seq and o.id is not distinct from l.event_id)
            and {passed_nothing})
), adopted as (
    -- By their ids alone: a join may begin with all copies that there are.
    update posthaste.parked p
    set (destination_id, key) = (
        select n.id, case when {by_topic:n} then p.topic || {separator} else '' end || {plain_key}
        from posthaste.destinations d join posthaste.destinations n on n.name = d.name
        where d.id = p.destination_id and n.state <> 'removed')
    where p.state = 'skipped' and p.id = any(array(select l.id from left_over l))
    returning p.id
)
select case when count(*) = $4::bigint then max(l.id) end as behind from looked_at l
