-- A destination that has passed nothing sends these itself, from the outbox: tried again, the copies
-- that removed destinations of its name left would be sent a second time. Each claim asks: the order
-- of the joins (cross join keeps it) ends the search where the destination has passed something.
update posthaste_parked set state = 'discarded', closed_at = :now, payload = null
where id in (
    select p.id
    from posthaste_destinations as n
    cross join posthaste_destinations as d on d.name = n.name and d.state = 'removed'
    cross join posthaste_parked as p on p.destination_id = d.id and p.state = 'skipped'
    cross join posthaste_outbox as o on o.seq = p.seq and o.id is p.event_id
    where n.id = :id and p.id > :after
      and not exists (select 1 from posthaste_cursors as c where c.destination_id = n.id and c.seq > 0)
    order by p.id
    limit :limit)
returning id
