-- Skipped copies that a removed destination left go to the one that has its name now, unless that
-- one has a copy of the event, or reads the event itself (copies_read_again.sql). Of several copies of an event the newest one goes. Numbers that were
-- drawn again may be another event's, whose place a copy would take.
update posthaste_parked as p
set (destination_id, key) = (
    select n.id, {before_key:n} || {plain_key}
    from posthaste_destinations as d join posthaste_destinations as n on n.name = d.name
    where d.id = p.destination_id and n.state <> 'removed')
where id in (
    select p.id
    from posthaste_destinations as n
    join posthaste_destinations as d on d.name = n.name and d.state = 'removed'
    join posthaste_parked as p on p.destination_id = d.id and p.state = 'skipped'
    where p.id > :after and n.state <> 'removed'
      and (:destination is null or n.name = :destination)
      and (:event_id is null or p.event_id = :event_id)
      and (:key is null or {is_key})
      and not exists (select 1 from posthaste_outbox as o where o.seq = p.seq and o.id is not p.event_id)
      and not (
          exists (select 1 from posthaste_outbox as o where o.seq = p.seq)
          and not exists (select 1 from posthaste_cursors as c where c.destination_id = n.id and c.seq > 0))
      and not exists (
          -- The planner would look at each copy there is (cross join keeps it from that).
          select 1 from posthaste_destinations as e
          cross join posthaste_parked as q on q.destination_id = e.id
          where e.name = n.name and q.seq = p.seq and (e.id = n.id or q.id > p.id))
    order by p.id
    limit :limit)
returning id
