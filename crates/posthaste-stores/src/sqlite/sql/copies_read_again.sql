-- Skipped copies that removed destinations of this name left, and whose events stand in the outbox:
-- a destination that begins at the oldest event sends these itself.
select p.id
from posthaste_destinations as d
join posthaste_parked as p on p.destination_id = d.id and p.state = 'skipped'
join posthaste_outbox as o on o.seq = p.seq and o.id is p.event_id
where d.name = :name and d.state = 'removed'
