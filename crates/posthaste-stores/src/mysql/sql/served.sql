select d.id, d.name, d.state, d.paused_places
from posthaste_members as m join posthaste_destinations as d on d.id = m.destination_id
where m.registration = :registration
order by d.name
