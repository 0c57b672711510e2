select d.name, c.partitions, c.epoch, m.reaches
from posthaste_destinations as d
left join posthaste_members as m
    on m.destination_id = d.id and m.registration = :registration
left join posthaste_cursors as c on c.destination_id = d.id and c.relay = :registration
where d.state <> 'removed' and coalesce(m.registration, c.relay) is not null
order by d.name, c.id
