select d.name, coalesce(o.partition_to - o.partition_from, 0), coalesce(o.epoch, 0), m.reaches
from posthaste_destinations as d
left join posthaste_members as m on m.destination_id = d.id and m.registration = :registration
left join posthaste_ownership as o on o.destination_id = d.id and o.registration = :registration
where d.state <> 'removed' and coalesce(m.registration, o.registration) is not null
order by d.name
