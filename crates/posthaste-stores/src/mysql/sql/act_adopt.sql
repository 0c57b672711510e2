-- Unless the one that has the name now has a copy of the event, or reads the event itself
-- (copies_read_again.sql). Of several copies of an event the newest one goes. Numbers that were
-- drawn again may be those of another event, whose place a copy would take.
select p.id, n.id
from posthaste_destinations as n
join posthaste_destinations as d on d.name = n.name and d.state = 'removed'
join posthaste_parked as p on p.destination_id = d.id and p.state = 'skipped'
where p.id > :after and n.state <> 'removed'
    and (:destination is null or n.name = :destination)
    and (:event_id is null or p.event_id = :event_id)
    and (:key is null or {is_key})
    and (:state is null or p.state = :state)
    and not exists (
        select 1 from posthaste_outbox as o where o.seq = p.seq and not (o.id <=> p.event_id))
    and not (
        exists (select 1 from posthaste_outbox as o where o.seq = p.seq)
        and not exists (
            select 1 from posthaste_cursors as c where c.destination_id = n.id and c.high > 0))
    and not exists (
        select 1 from posthaste_destinations as e
        join posthaste_parked as q on q.destination_id = e.id
        where e.name = n.name and q.seq = p.seq and (e.id = n.id or q.id > p.id))
order by p.id
limit :limit
