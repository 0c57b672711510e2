select d.id, d.name
from posthaste_members as m join posthaste_destinations as d on d.id = m.destination_id
where m.registration = :registration
order by d.name
