-- $1 destination, $2 id, $3 key: none means any; $4 at most. Skipped copies that a removed
-- destination left go to the one that has its name now, unless that one has a copy of the event, or
-- reads the event itself (copies_read_again.sql). Of several copies of an event the newest one goes.
with named as materialized (
    select d.id, d.name
    from posthaste.destinations d
    where d.state <> 'removed' and ($1::text is null or d.name = $1::text)
    for share
), left_over as (
    select p.id, n.id as destination_id
    from named n
    join posthaste.destinations d on d.name = n.name and d.state = 'removed'
    join posthaste.parked p on p.destination_id = d.id and p.state = 'skipped'
    where ($2::uuid is null or p.event_id = $2::uuid)
        and ($3::text is null or p.key = $3::text)
        and not exists (
            select from posthaste.destinations e
            join posthaste.parked q on q.destination_id = e.id
            where e.name = n.name and q.seq = p.seq and (e.id = n.id or q.id > p.id))
        and not (
            exists (select from posthaste.outbox o where o.seq = p.seq and o.id is not distinct from p.event_id)
            and {passed_nothing})
    order by p.id
    limit $4::bigint
    for update of p
), adopted as (
    update posthaste.parked p
    set destination_id = l.destination_id
    from left_over l
    where p.id = l.id and p.state = 'skipped'
    returning p.id
)
select count(*) as adopted from adopted
