select distinct d.name, d.state
from posthaste_ownership as o join posthaste_destinations as d on d.id = o.destination_id
where o.registration = :registration
