-- A destination that has passed nothing sends these itself, from the outbox: tried again, the
-- copies that removed destinations of its name left would be sent a second time.
select p.id
from posthaste_destinations as d
join posthaste_parked as p on p.destination_id = d.id and p.state = 'skipped'
join posthaste_outbox as o on o.seq = p.seq and o.id <=> p.event_id
where d.name = :name and d.state = 'removed' and p.id > :after
order by p.id
limit :limit
